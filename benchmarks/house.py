"""The size of the code at any commit: files, lines, classes, layers, imports inside functions, words of the manual.

    python benchmarks/house.py f9783ed HEAD      # a column each; without a commit: the working tree
    python benchmarks/house.py --names           # public names that nothing but tests uses

What is counted stands beside each row of `TABLE`. The places in which the integer count is decided, and the files one
reads to understand `count video.mp4`, are not counted here: a reader judges them.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CALLED_FROM_OUTSIDE = {"main", "count", "format_commands", "list_commands", "get_command", "forward", "backward"}
"""Names that users, click or torch call."""
COUNTING_PATH = (
    "counter", "results", "confidence", "hypotheses", "density", "spans", "windows", "exemplars", "counting_model",
    "counting", "inference",
)  # fmt: skip
"""Modules and rooms between a decoded video and its count, by the names of before and after the rooms were moved."""
STARTERS = re.compile(
    r"\b(subprocess\.(Popen|run|check_\w+)|\w+\.Process|Process|ProcessPoolExecutor|os\.(fork|exec\w*))$"
)


class Tree:
    """A checkout in a folder: its files, parsed once."""

    def __init__(self, folder: Path, revision: str) -> None:
        self.folder, self.revision = folder, revision
        self.package = {path: path.read_text("utf-8") for path in sorted((folder / "src").rglob("*.py"))}
        self.parsed = {path: ast.parse(text) for path, text in self.package.items()}

    def lines(self, *rooms: str) -> int:
        """Lines of Python below these folders."""
        return sum(path.read_bytes().count(b"\n") for room in rooms for path in (self.folder / room).rglob("*.py"))

    def words(self, *names: str) -> int:
        """Words of Markdown files, as `wc -w` counts them."""
        files = [path for name in names for path in self.folder.glob(name)]
        return sum(len(path.read_text("utf-8").split()) for path in files)

    def nodes(self) -> Iterator[ast.AST]:
        for tree in self.parsed.values():
            yield from ast.walk(tree)


def layers(tree: Tree) -> int:
    """Rows of the first contract of import-linter."""
    contract = (tree.folder / "pyproject.toml").read_text("utf-8").partition("\nlayers = [")[2].partition("\n]")[0]
    return contract.count("\n")


def inner_imports(tree: Tree) -> int:
    """Import statements inside functions, each once however deep."""
    functions = [node for node in tree.nodes() if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return len({id(n) for f in functions for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)})


def constants(tree: Tree) -> int:
    """Upper-case names of the modules on the counting path that are given a number, or several, where they stand."""
    package = tree.folder / "src/escounts"
    rooms = {path: path.relative_to(package).parts[0].removesuffix(".py") for path in tree.parsed}
    paths = [path for path, room in rooms.items() if room in COUNTING_PATH]
    return sum(_numeric(node) for path in paths for node in tree.parsed[path].body)


def _numeric(node: ast.stmt) -> int:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return 0
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    values = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
    numbers = values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return len(names) if numbers and all(name.strip("_").isupper() for name in names) else 0


def starting_sites(tree: Tree) -> int:
    """Modules that start processes: by subprocess, multiprocessing or fork."""

    def starts(module: ast.Module) -> bool:
        calls = [ast.unparse(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)]
        return any(STARTERS.search(call) for call in calls)

    return sum(map(starts, tree.parsed.values()))


def subject_length(tree: Tree) -> str:
    """Characters of the last hundred commits' subjects: the median."""
    text = _git("log", "-100", "--no-merges", "--format=%s", tree.revision or "HEAD").decode()
    return f"{statistics.median(map(len, text.splitlines())):g}"


TABLE: dict[str, Callable[[Tree], object]] = {
    "files in the package": lambda tree: len(tree.package),
    "lines in the package": lambda tree: tree.lines("src"),
    "classes in the package": lambda tree: sum(isinstance(node, ast.ClassDef) for node in tree.nodes()),
    "lines with paper/ and benchmarks/": lambda tree: tree.lines("src", "paper", "benchmarks"),
    "lines of tests": lambda tree: tree.lines("tests"),
    "Python files at the top level": lambda tree: len(list((tree.folder / "src/escounts").glob("*.py"))),
    "import layers": layers,
    "imports inside functions": inner_imports,
    "numeric constants on the counting path": constants,
    "modules that start processes": starting_sites,
    "words in docs/": lambda tree: tree.words("docs/**/*.md"),
    "words in README": lambda tree: tree.words("README.md"),
    "words in the model card": lambda tree: tree.words("docs/models/lite.md"),
    "lines of CHANGELOG": lambda tree: (tree.folder / "CHANGELOG.md").read_bytes().count(b"\n"),
    "commit subjects, median": subject_length,
    "longest file": lambda tree: max(text.count("\n") for text in tree.package.values()),
    "files of fewer than 60 lines": lambda tree: sum(text.count("\n") < 60 for text in tree.package.values()),
    "public names that only tests use": lambda tree: len(without_caller(tree)),
}


def without_caller(tree: Tree) -> list[str]:
    """Public functions, classes and methods that neither the package nor paper/ nor benchmarks/ uses."""
    scripts = [path for room in ("paper", "benchmarks") for path in (tree.folder / room).rglob("*.py")]
    others = [ast.parse(path.read_text("utf-8")) for path in scripts]
    used = {name for module in (*tree.parsed.values(), *others) for name in _used(module)}
    return sorted(
        f"{path.parent.name}/{path.name}: {place}"
        for path, module in tree.parsed.items()
        for name, place in _public(module.body, "")
        if name not in used
    )


def _used(module: ast.Module) -> Iterator[str]:
    """Every name that is read, called or named in a short text; importing it is not a use."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value) if len(node.value) < 200 else ()  # "module.function"


def _public(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    """Public functions, classes and methods: their names, and where they stand. Decorated functions have a caller."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, prefix + node.name
            yield from _public(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            registered = any(isinstance(decorator, ast.Call) for decorator in node.decorator_list)
            if not registered and node.name not in CALLED_FROM_OUTSIDE:
                yield node.name, prefix + node.name


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", metavar="COMMIT")
    parser.add_argument("--names", action="store_true", help="public names that only tests use, of the last column")
    options = parser.parse_args()
    columns = []
    with tempfile.TemporaryDirectory() as place:
        for number, revision in enumerate(options.revisions):
            folder = Path(place) / str(number)
            with tarfile.open(fileobj=io.BytesIO(_git("archive", revision))) as files:
                files.extractall(folder, filter="data")
            columns.append(Tree(folder, revision))
        columns = columns or [Tree(ROOT, "")]
        print(f"| | {' | '.join(tree.revision or 'working tree' for tree in columns)} |")
        print(f"|---|{'---|' * len(columns)}")
        for name, measure in TABLE.items():
            print(f"| {name} | {' | '.join(str(measure(tree)) for tree in columns)} |")
        if options.names:
            print("\n".join(without_caller(columns[-1])))


if __name__ == "__main__":
    main()
