"""What a command spares itself while it imports torch: looking for garbage, and what only a compiler needs."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from escounts.cli import lasting


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
    with lasting():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


WITHOUT_TABLES = """
import sys
from escounts.cli import COMPILER_TABLES, lasting
with lasting():
    import torch
print(COMPILER_TABLES in sys.modules, hasattr(torch, COMPILER_TABLES.rpartition(".")[2]))
"""


def test_every_network_can_be_built_on_paper_without_the_tables_of_the_compiler() -> None:
    """As a checkpoint is before its weights are read; in a process of its own: this one has torch already."""
    code = """
from escounts.nn.decoder import PAPER, Decoder
from escounts.nn.encoders.registry import ENCODERS, build_encoder
from escounts.nn.network import LITE_TINY, Network
with torch.device("meta"):
    built = [*map(build_encoder, ENCODERS), Decoder(PAPER), Network(LITE_TINY)]
print(len(built) == len(ENCODERS) + 2, COMPILER_TABLES in sys.modules)
"""
    assert alone(WITHOUT_TABLES + code) == ["False", "False", "True", "False"]


def test_who_asks_for_the_tables_of_the_compiler_gets_them() -> None:
    code = """
import torch._meta_registrations as tables
print(tables.__file__ is not None, torch.compile(lambda x: x + 1, backend="aot_eager")(torch.zeros(1)).item())
"""
    assert alone(WITHOUT_TABLES + code)[2:] == ["True", "1.0"]
    early = """
import sys
from escounts.cli import COMPILER_TABLES, lasting
with lasting():
    import torch
    print(callable(sys.modules[COMPILER_TABLES].register_meta), COMPILER_TABLES in sys.modules)
"""
    assert alone(early) == ["True", "True"]


def alone(code: str) -> list[str]:
    """The words that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()
