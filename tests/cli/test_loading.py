"""Python's garbage collector while a command imports torch."""

import gc
import sys
from collections.abc import Iterator

import pytest

from escounts.cli.loading import lasting


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
    with lasting():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen


def test_a_model_that_cannot_be_built_leaves_the_collector_on(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ValueError), lasting():
        raise ValueError
    assert gc.isenabled()


def test_a_process_that_has_torch_already_is_left_alone(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    with lasting():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
