"""On which device and in which precision counting runs, and which parts of it stay in float32."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from movies import bouncing, write_movie

from escounts.cli import app
from escounts.errors import ModelError
from escounts.nn import device as module
from escounts.nn.device import (
    PRECISION_VARIABLE,
    InferencePool,
    attention,
    autocast_type,
    choose_device,
    counting_precision,
    cpu_has_bf16,
    in_float32_on_cpu,
    precision,
)

CPU = torch.device("cpu")
FORKED = """
import os, signal, sys
import torch, escounts
torch.set_num_threads(2)
counter = escounts.load("lite", device="cpu")
first = counter.count(sys.argv[1]).count
child = os.fork()
if child == 0:
    signal.alarm(120)  # it waited for ever for threads that are not in it
    os._exit(0 if counter.count(sys.argv[1]).count == first == 4 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRECISION_VARIABLE, raising=False)


def _capabilities(monkeypatch: pytest.MonkeyPatch, **flags: bool) -> None:
    """A processor that says this of itself."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)
    cpu_has_bf16.cache_clear()
    monkeypatch.setattr(module, "cpu_has_bf16", cpu_has_bf16.__wrapped__)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_that_is_forked_after_a_count_counts(tmp_path: Path) -> None:
    """As a DataLoader's worker is."""
    video = write_movie(tmp_path / "a.mp4", bouncing(4, 4.0))
    done = subprocess.run([sys.executable, "-c", FORKED, str(video)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_a_cpu_without_units_counts_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    _capabilities(monkeypatch, avx2=True, avx512_f=True, avx512_bf16=False)
    assert counting_precision(CPU) == "float32"
    with InferencePool(CPU) as cores:
        assert cores.submit(autocast_type, "cpu").result() is None


def test_a_torch_that_does_not_tell_counts_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    _capabilities(monkeypatch)
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert counting_precision(CPU) == "float32"


def test_a_cpu_with_units_counts_in_bf16_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    _capabilities(monkeypatch, avx512_bf16=True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert counting_precision(CPU) == "bf16"
    assert counting_precision(CPU, "float32") == "float32"
    with InferencePool(CPU) as cores:
        assert cores.submit(autocast_type, "cpu").result() == torch.bfloat16
    monkeypatch.setenv(PRECISION_VARIABLE, "float32")
    assert counting_precision(CPU) == "float32"
    assert counting_precision(CPU, "bf16") == "bf16"
    monkeypatch.setenv(PRECISION_VARIABLE, "half")
    with pytest.raises(ModelError, match="ESCOUNTS_PRECISION is 'half'; it takes auto, float32, bf16"):
        counting_precision(CPU)


def test_without_the_library_the_units_are_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    _capabilities(monkeypatch, avx512_bf16=True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert counting_precision(CPU) == "float32"


def test_training_and_the_papers_encoders_stay_in_float32_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _capabilities(monkeypatch, avx512_bf16=True)
    with precision(CPU):
        assert autocast_type("cpu") is None


def test_attention_and_the_last_layers_are_computed_in_float32() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 9, 8).unbind()
    bias = torch.randn(1, 2, 9, 9)
    linear = torch.nn.Linear(8, 3)
    exactly, of_head = attention(q, k, v, bias), linear(q)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention(q, k, v, bias), exactly)
        assert attention(q.bfloat16(), k.bfloat16(), v.bfloat16()).dtype == torch.bfloat16
        assert torch.equal(in_float32_on_cpu(linear, q), of_head)
        assert linear(q).dtype == torch.bfloat16


def test_apples_gpus_are_taken_where_torch_has_them_and_said_to_be_untested(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ModelError, match="no Metal device here; use --device cpu"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps") == torch.device("mps")
    assert "nobody has tried escounts on Apple's GPUs" in caplog.text
    assert choose_device("auto").type != "mps", "what is untested is never chosen by itself"
    with precision(torch.device("mps")) as chosen:
        assert not torch.is_autocast_enabled("mps"), chosen


@pytest.mark.parametrize("command", ["count", "watch", "batch"])
def test_commands_that_count_take_apples_gpus_and_say_that_they_are_untested(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert "auto|cpu|cuda|mps" in shown and "untested" in shown
