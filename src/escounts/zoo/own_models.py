"""Models that were taught an own action: their names in the store of weights, and what their files say of them."""

from __future__ import annotations

from pathlib import Path

from escounts.errors import ModelError
from escounts.zoo import catalogue, store

TAUGHT = "taught"
"""Entry of a checkpoint's metadata that holds the report of what it was taught."""


def own_model_path(name: str, *, replace_old: bool = False) -> Path:
    """Where a model of the user's own lies by name; a name that is taken raises a ModelError.

    replace_old: a model that was taught before may be written over; one that came otherwise never is.
    """
    path = store.stored_path(name)
    reserved = {"default", *(entry.name for entry in catalogue.entries())} - {kept.name for kept in store.stored()}
    if name in reserved:
        raise ModelError(f"{name!r} is a model of its own already; choose another name")
    if path.exists() and not is_own_model(path):
        raise ModelError(f"{name!r} holds weights that were added; choose another name")
    if path.exists() and not replace_old:
        raise ModelError(f"there is a model called {name!r} already; choose another name, or replace it")
    return path


def is_own_model(path: Path) -> bool:
    """Whether a checkpoint was taught an own action."""
    return path.is_file() and TAUGHT in store.header_metadata(path)
