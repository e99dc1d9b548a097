"""A hash of the code that makes a figure, so that a figure of other code is known to be stale."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent

TRAINING = (
    "density.py",
    "nn",
    "baselines",
    "training/objective.py",
    "training/optimisation.py",
    "training/sampling.py",
    "training/stored_tokens.py",
    "training/trainer.py",
)
"""What decides the weights a run ends with."""
PREDICTING = (
    "confidence.py",
    "counter.py",
    "decoding.py",
    "density.py",
    "exemplars.py",
    "hypotheses.py",
    "results.py",
    "spans.py",
    "video.py",
    "windows.py",
    "nn",
    "inference",
    "baselines",
    "training/predictions.py",
    "evaluation/released.py",
    "evaluation/exemplar_choice.py",
    "evaluation/evaluated_models.py",
)
"""What decides the counts of given weights."""


@lru_cache(maxsize=8)
def code_digest(places: tuple[str, ...]) -> str:
    """Hash of what some files and folders of the package compute; comments and docstrings do not count."""
    digest = hashlib.sha256()
    for place in places:
        path = PACKAGE / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(str(file.relative_to(PACKAGE)).encode())
            digest.update(ast.dump(_without_docstrings(ast.parse(file.read_text(encoding="utf-8")))).encode())
    return digest.hexdigest()[:16]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
