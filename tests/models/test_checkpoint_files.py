"""Weights on disk: whole or refused, strict, and never able to run code."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from escounts.errors import ModelError
from escounts.models.checkpoint import (
    load_decoder,
    load_encoder,
    load_network,
    read_checkpoint,
    read_tensors,
    save_decoder,
    save_network,
    strict_load,
    write_checkpoint,
)
from escounts.nn.decoder import DecoderConfig
from escounts.nn.network import Network, NetworkConfig

SMALL = NetworkConfig(
    "mae-vit-b",
    {"width": 32, "depth": 1, "heads": 2, "size": 32},
    DecoderConfig(in_channels=32, channels=16, heads=2, latent_tokens=4, grid=(2, 2)),
)


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    return Network(SMALL).eval()


def test_a_network_comes_back_as_it_was(network: Network, tmp_path: Path) -> None:
    digest = save_network(tmp_path / "a.safetensors", network, metadata={"trained on": "nothing"})
    again, metadata = load_network(tmp_path / "a.safetensors")
    assert metadata == {"trained on": "nothing"}
    assert again.config == network.config and not again.training
    for name, tensor in network.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert save_network(tmp_path / "b.safetensors", again) == digest


def test_half_precision_halves_the_file_and_loads_in_float32(network: Network, tmp_path: Path) -> None:
    save_network(tmp_path / "full.safetensors", network)
    save_network(tmp_path / "half.safetensors", network, dtype=torch.float16)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.65 * sizes[0]
    again, _ = load_network(tmp_path / "half.safetensors")
    assert all(parameter.dtype == torch.float32 for parameter in again.parameters())
    frames = torch.randn(1, 16, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(again(frames).density_BT, network(frames).density_BT, atol=5e-3, rtol=0)


def test_half_precision_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a is not finite in"):
        write_checkpoint(tmp_path / "x.safetensors", {"a": torch.tensor([1e6])}, config={}, dtype=torch.float16)
    assert list(tmp_path.iterdir()) == []


def test_halves_are_not_taken_for_one_another(network: Network, tmp_path: Path) -> None:
    save_decoder(tmp_path / "d.safetensors", network.decoder, encoder="mae-vit-b")
    decoder, encoder, _ = load_decoder(tmp_path / "d.safetensors")
    assert encoder == "mae-vit-b" and decoder.config == SMALL.decoder
    with pytest.raises(ModelError, match="does not hold an encoder alone"):
        load_encoder(tmp_path / "d.safetensors")
    with pytest.raises(ModelError, match="not the config of a network"):
        load_network(tmp_path / "d.safetensors")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("bias"), "missing: bias"),
        (lambda t: t.update(extra=torch.zeros(1)), "unexpected: extra"),
        (lambda t: t.update(weight=torch.zeros(3, 2)), "weight is 3×2, expected 2×3"),
    ],
)
def test_strict_loading_names_what_does_not_fit(change: Callable[[dict[str, Tensor]], object], said: str) -> None:
    module = nn.Linear(3, 2)
    tensors = dict(module.state_dict())
    change(tensors)
    with pytest.raises(ModelError, match=said):
        strict_load(module, tensors)


def test_known_unneeded_tensors_are_left_out_and_counters_may_be_absent() -> None:
    module = nn.BatchNorm3d(2)
    tensors = {k: v + 1 for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}
    strict_load(module, tensors | {"fc.weight": torch.zeros(9)}, known_unneeded=("fc.*",))
    assert torch.equal(module.weight, torch.full((2,), 2.0))


def test_one_flipped_bit_is_found(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_network(path, network)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="damaged: its tensors do not have the sha256"):
        load_network(path)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.3, 0.999])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, keep: float) -> None:
    path = tmp_path / f"weights{suffix}"
    tensors = {"a": torch.randn(300, 300), "b": torch.randn(7)}
    save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ModelError, match=r"weights\.\w+ is "):
        read_tensors(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><html>429</html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"\x00\x01\x02 random bytes, no weights at all", "not a file that torch.save wrote"),
        (b"PK\x03\x04 half a download", "truncated or damaged"),
    ],
)
def test_things_that_are_no_weights_are_refused_by_name(tmp_path: Path, content: Any, said: str) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(ModelError, match=said):
        read_tensors(tmp_path / "x.pth")


class Malice:
    """Unpickling this runs a command."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("old_format", [False, True])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path: Path, old_format: bool) -> None:
    mark = tmp_path / "executed"
    content = {"state_dict": {"weight": torch.zeros(2)}, "meta": Malice(mark)}
    torch.save(content, tmp_path / "evil.pth", _use_new_zipfile_serialization=not old_format)
    with pytest.raises(ModelError, match=r"posix\.system.*can run code"):
        read_tensors(tmp_path / "evil.pth")
    assert not mark.exists()


def test_a_plain_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Malice(mark)))
    with pytest.raises(ModelError):
        read_tensors(tmp_path / "evil.pkl")
    assert not mark.exists()


def test_a_file_without_a_state_dict_says_what_it_holds(tmp_path: Path) -> None:
    torch.save({"state_dict": {"weight": torch.zeros(1), "epoch": 3}}, tmp_path / "a.pth")
    with pytest.raises(ModelError, match="epoch are not tensors"):
        read_tensors(tmp_path / "a.pth")
    torch.save([torch.zeros(1)], tmp_path / "b.pth")
    with pytest.raises(ModelError, match="it holds list"):
        read_tensors(tmp_path / "b.pth")


WRITER = """
import sys, torch
from escounts.models.checkpoint import write_checkpoint
tensors = {str(i): torch.full((2**20,), float(i)) for i in range(24)}
print("ready", flush=True)
while True:
    write_checkpoint(sys.argv[1], tensors, config={})
"""


def test_killed_while_writing_the_file_is_whole(tmp_path: Path) -> None:
    """kill -9 at many moments of many writes: the name never points at half a file."""
    path = tmp_path / "store" / "a.safetensors"
    for delay in (0.01, 0.08, 0.21):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if path.exists():
            tensors, _, _ = read_checkpoint(path)
            assert len(tensors) == 24
        assert {p.name for p in path.parent.glob("*.safetensors")} <= {"a.safetensors"}
