"""The size of the code: files, lines, classes, imports inside functions, public names without a caller.

    python benchmarks/house.py [FOLDER] [--names]

FOLDER: another checkout (`git worktree add ../before 3da6a04`). A public name has a caller when the package
or the benchmarks use it anywhere; tests do not count. --names lists those without one.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

CALLED_FROM_OUTSIDE = {"main", "count", "format_commands", "list_commands", "get_command", "forward", "backward"}
"""Names that users, click or torch call."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    files = sorted((options.folder / "src").rglob("*.py"))
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    trees = {file: ast.parse(text) for file, text in texts.items()}
    others = [ast.parse(file.read_text(encoding="utf-8")) for file in (options.folder / "benchmarks").glob("*.py")]
    unused = sorted(_without_caller(trees, others))
    print(f"files                          {len(files)}")
    print(f"lines                          {sum(text.count(chr(10)) for text in texts.values())}")
    print(f"files of fewer than 60 lines   {sum(text.count(chr(10)) < 60 for text in texts.values())}")
    print(f"longest file                   {max(text.count(chr(10)) for text in texts.values())}")
    print(f"classes                        {sum(isinstance(n, ast.ClassDef) for n in _nodes(trees))}")
    print(f"imports inside functions       {sum(map(_inner_imports, trees.values()))}")
    print(f"public names without a caller  {len(unused)}")
    if options.names:
        print("\n".join(unused))


def _nodes(trees: dict[Path, ast.Module]) -> Iterator[ast.AST]:
    for tree in trees.values():
        yield from ast.walk(tree)


def _inner_imports(tree: ast.Module) -> int:
    """Import statements inside functions, each once however deep."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return len({id(n) for f in functions for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)})


def _without_caller(trees: dict[Path, ast.Module], others: list[ast.Module]) -> Iterator[str]:
    used = {name for tree in (*trees.values(), *others) for name in _used(tree)}
    for file, tree in trees.items():
        for name, place in _public(tree.body, ""):
            if name not in used:
                yield f"{file.parent.name}/{file.name}: {place}"


def _used(tree: ast.Module) -> Iterator[str]:
    """Every name that is read or called; importing it is not a use, and neither is `__all__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


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


if __name__ == "__main__":
    main()
