"""Models by name: what building one leaves behind in the process."""

import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from escounts.errors import ModelError
from escounts.models import catalogue


@pytest.fixture
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether garbage was looked for while each model was built; "odd" is a model that cannot be."""
    seen: list[bool] = []

    def build(device: str) -> Any:
        seen.append(gc.isenabled())
        if device == "odd":
            raise ModelError("damaged")
        return device

    monkeypatch.setitem(catalogue._ENTRIES, "built", replace(catalogue.find("spectral"), name="built", build=build))
    frozen = gc.get_freeze_count()
    yield seen
    assert gc.isenabled()
    if not frozen:
        gc.unfreeze()


def test_while_torch_is_imported_nobody_looks_for_garbage(
    collecting: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert catalogue.build("built", "cpu") == "cpu"
    assert collecting == [False]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_a_model_that_cannot_be_built_leaves_the_collector_on(
    collecting: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ModelError, match="damaged"):
        catalogue.build("built", "odd")
    assert gc.isenabled()


def test_a_process_that_has_torch_already_is_left_alone(
    collecting: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    before = gc.get_freeze_count()
    catalogue.build("built", "cpu")
    assert collecting == [True]
    assert gc.get_freeze_count() == before
