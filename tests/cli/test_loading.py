"""A command that imports torch pauses the garbage collector meanwhile."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from escounts.cli import collector_paused


@pytest.fixture
def frozen() -> Iterator[int]:
    """How many objects are frozen before; afterwards as many."""
    before = gc.get_freeze_count()
    yield before
    assert gc.isenabled()
    if not before:
        gc.unfreeze()


def test_while_torch_is_imported_nobody_looks_for_garbage(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen


def test_a_model_that_cannot_be_built_leaves_the_collector_on(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ValueError), collector_paused():
        raise ValueError
    assert gc.isenabled()


def test_count_loads_its_model_so() -> None:
    """In a process of its own: this one has torch already."""
    code = (
        "import gc; from types import SimpleNamespace; from escounts.cli.count import _load; "
        "job = SimpleNamespace(model='spectral', device='cpu'); "
    )
    check = subprocess.run(
        [sys.executable, "-c", code + "_load(job); print(gc.get_freeze_count() > 0, gc.isenabled())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert check.stdout.split() == ["True", "True"]


def test_a_process_that_has_torch_already_is_left_alone(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    with collector_paused():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
