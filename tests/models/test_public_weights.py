"""A public file → `escounts weights add` → a model that counts; everything else is refused with a reason."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import public_files
import pytest
import torch
from click.testing import CliRunner
from filling import input_tensor
from golden_encoders import GOLDEN, checkpoint, clip, fixture
from movies import bouncing, write_movie
from safetensors.torch import save_file
from torch import Tensor

import escounts.cli
from escounts.counter import load
from escounts.counting.paper_windows import PaperWindowModel
from escounts.errors import ModelError
from escounts.models import catalogue
from escounts.models import store as weights
from escounts.models.checkpoint import load_decoder, load_encoder, read_tensors, save_decoder, save_network
from escounts.models.conversion import add, convert
from escounts.nn.decoder import Decoder, DecoderConfig
from escounts.nn.encoders.registry import build_encoder
from escounts.nn.network import Network, NetworkConfig
from escounts.system.extras import install_command

FRAMES = 12
ENCODER_FILES = {
    "videomae-s": public_files.videomae_folder,
    "swin3d-t": public_files.swin3d_pth,
    "r2plus1d-18": public_files.r2plus1d_pth,
    "resnext3d-101": public_files.resnext_pth,
}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of its own; full-size weights do not stay behind."""
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "weights"
    shutil.rmtree(tmp_path)


@pytest.fixture(scope="module")
def short_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bright bar that moves to and fro; so few frames that full-size encoders look at one window."""
    av = pytest.importorskip("av")
    path = tmp_path_factory.mktemp("video") / "bar.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(FRAMES):
            image = np.zeros((48, 64, 3), np.uint8)
            left = 4 * abs(index % 10 - 5)
            image[:, left : left + 8] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


def command(*arguments: str) -> str:
    result = CliRunner().invoke(escounts.cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line says when it refuses: one line on stderr, exit code 2."""
    monkeypatch.setattr(sys, "argv", ["escounts", *arguments])
    with pytest.raises(SystemExit) as stop:
        escounts.cli.main()
    said = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and len(said.splitlines()) == 1
    return said


def small_decoder(encoder: str) -> Decoder:
    torch.manual_seed(0)
    channels = build_on_meta(encoder).spec.channels
    return Decoder(DecoderConfig(in_channels=channels, channels=16, heads=2, latent_tokens=4, grid=(2, 2))).eval()


def build_on_meta(encoder: str) -> Any:
    with torch.device("meta"):
        return build_encoder(encoder)


@pytest.mark.parametrize("encoder", ENCODER_FILES)
def test_round_trip_from_public_file_to_count(encoder: str, tmp_path: Path, short_video: Path) -> None:
    said = command("weights", "add", str(ENCODER_FILES[encoder](tmp_path)))
    assert said.startswith(f"{encoder}: encoder") and "licence: " in said
    name = f"escounts-{encoder}"
    save_decoder(tmp_path / "trained.safetensors", small_decoder(encoder), encoder=encoder)
    command("weights", "add", str(tmp_path / "trained.safetensors"))
    assert {kept.name: kept.kind for kept in weights.stored()} == {encoder: "encoder", name: "decoder"}
    assert next(entry.state() for entry in catalogue.entries() if entry.name == name) == "ready"
    result = load(name, device="cpu").count(short_video)
    assert result.model == name and np.isfinite(result.raw_count)
    spec = build_on_meta(encoder).spec
    assert len(result.density.values) == -(-FRAMES // (spec.every * spec.frames_per_cell))


def test_released_decoder_counts_in_the_compat_configuration(tmp_path: Path, short_video: Path) -> None:
    command("weights", "add", str(public_files.mae_pyth(tmp_path)))
    said = command("weights", "add", str(public_files.released_decoder_pyth(tmp_path)))
    assert said.startswith("escounts-repcount: decoder")
    assert {kept.name: kept.kind for kept in weights.stored()} == {
        "escounts-repcount": "decoder",
        "mae-vit-b": "encoder",
    }
    model = catalogue.build("escounts-repcount", "cpu")
    assert isinstance(model, PaperWindowModel)
    config = model.network.decoder.config
    assert (config.grid, config.window_residual, config.window_padding) == ((6, 6), False, "released")
    assert model.config.shifts == 2
    encoding = load("escounts-repcount", device="cpu").encode(short_video)
    zero_shot, one_shot = encoding.count(), encoding.count(exemplars=["0.2-1.0"])
    assert np.isfinite(zero_shot.raw_count) and one_shot.raw_count != zero_shot.raw_count
    assert zero_shot.details["calibrated"] == 0.0


def test_released_decoder_keeps_its_numbers_from_one_device_or_several(tmp_path: Path) -> None:
    for folder, prefix in (("one", ""), ("many", "module.")):
        (tmp_path / folder).mkdir()
        add(public_files.released_decoder_pyth(tmp_path / folder, prefix=prefix), name=folder)
    one, many = weights.find("one"), weights.find("many")
    assert one is not None and many is not None and one.sha256 == many.sha256
    decoder, encoder, _ = load_decoder(one.path)
    assert encoder == "mae-vit-b"
    case = json.loads((GOLDEN / "official_decoder.json").read_text())["cases"][0]
    about = case["input"]
    tokens = input_tensor(about["name"], tuple(about["shape"]), about["rule"], about["scale"])
    with torch.inference_mode():
        density_BT = decoder(tokens.view(1, case["T"], case["h"], case["w"], -1)).density_BT
    with np.load(GOLDEN / "official_decoder.npz") as arrays:
        np.testing.assert_allclose(100 * density_BT[0], arrays[case["output_key"]].reshape(-1), atol=5e-6)


def test_both_public_swin_files_hold_the_same_encoder(tmp_path: Path) -> None:
    _, torchvision, *_ = convert(public_files.swin3d_pth(tmp_path))
    _, authors, *_ = convert(public_files.swin3d_authors_pth(tmp_path))
    assert torchvision.keys() == authors.keys()
    for name, tensor in torchvision.items():
        assert torch.equal(tensor, authors[name]), name


def test_converted_weights_still_give_the_golden_numbers(tmp_path: Path) -> None:
    """Through the store and back: R(2+1)D's features."""
    about, arrays = fixture("r2plus1d_18")
    kept = add(public_files.r2plus1d_pth(tmp_path))
    encoder = load_encoder(kept.path)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    with torch.inference_mode():
        tokens_THWC = encoder(clip(about["cases"][0]))[0].numpy()
    expected = arrays["r2plus1d_18/mix/features[0,::16]"]
    np.testing.assert_allclose(tokens_THWC.transpose(3, 0, 1, 2)[::16], expected, atol=5e-6)


def test_a_trained_network_is_a_model_by_name_and_by_path(tmp_path: Path) -> None:
    options = {"width": 32, "depth": 1, "heads": 2, "size": 32}
    decoder = DecoderConfig(in_channels=32, channels=16, heads=2, latent_tokens=4, grid=(2, 2))
    path = tmp_path / "best.safetensors"
    save_network(path, Network(NetworkConfig("mae-vit-b", options, decoder)))
    command("weights", "add", str(path), "--as", "squats-v1")
    named = catalogue.build("squats-v1", "cpu")
    assert isinstance(named, PaperWindowModel)
    assert named.network.config.encoder_options == options
    assert catalogue.build(str(path), "cpu").name == "best"
    rows = json.loads(command("weights", "list", "--json"))
    assert [(row["name"], row["kind"]) for row in rows] == [("squats-v1", "network")]


def test_listing_says_what_can_be_fetched_and_its_licence() -> None:
    said = command("weights", "list")
    assert "(empty)" in said and "VIT_B_16x4_MAE_PT.pyth" in said and "non-commercial" in said


def test_listing_marks_the_file_that_was_added_and_no_other(tmp_path: Path) -> None:
    add(public_files.swin3d_authors_pth(tmp_path))
    add(public_files.released_decoder_pyth(tmp_path))
    said = command("weights", "list")
    assert "swin_tiny_patch244_window877_kinetics400_1k.pth (added)" in said
    assert "repcount_trained.pyth (added)" in said
    assert said.count("(added)") == 2


def test_i3d_and_the_decoder_in_the_package_count(tmp_path: Path) -> None:
    """The decoder ships; its encoder is one command away."""
    entry = catalogue.find("escounts-i3d")
    assert entry.checkpoint is not None and entry.checkpoint.stat().st_size < 16e6
    assert entry.state() == "missing: encoder i3d: `escounts weights add i3d`"
    add(public_files.i3d_ckpt(tmp_path))
    assert catalogue.find("escounts-i3d").state() == "ready"
    counter = load("escounts-i3d", device="cpu")
    result = counter.count(write_movie(tmp_path / "a.mp4", bouncing(2, 1.0)))
    assert result.density.kind == "rate" and result.density.step == pytest.approx(2 / 15)
    assert np.isfinite(result.raw_count) and len(result.density.values) == 8


def test_models_that_lack_weights_say_which_file_and_command() -> None:
    with pytest.raises(ModelError) as refused:
        load("escounts-repcount", device="cpu")
    said = str(refused.value)
    assert "\n" not in said
    for part in ("VIT_B_16x4_MAE_PT.pyth", "repcount_trained.pyth", "escounts weights add"):
        assert part in said


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda t: t.pop("layer2.0.conv1.0.0.weight"), "missing: layer2.0.conv1.0.0.weight"),
        (lambda t: t.update({"layer5.0.weight": torch.zeros(1)}), "unexpected: layer5.0.weight"),
        (lambda t: t.update({"stem.1.bias": torch.zeros(44)}), "stem.1.bias is 44, expected 45"),
        (lambda t: t["stem.0.weight"].fill_(float("nan")), "stem.0.weight holds values that are not finite"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(
    damage: Callable[[dict[str, Tensor]], object],
    said: str,
    tmp_path: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    about, _ = fixture("r2plus1d_18")
    tensors = checkpoint(about["keys"])
    damage(tensors)
    torch.save(tensors, tmp_path / "r2plus1d_18-91a641e6.pth")
    assert said in refusal(monkeypatch, capsys, "weights", "add", str(tmp_path / "r2plus1d_18-91a641e6.pth"))
    assert not list(store.glob("*"))


def test_another_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7), "fc.weight": torch.zeros(10, 64)}, tmp_path / "resnet.pth")
    assert "no model that escounts knows" in refusal(
        monkeypatch, capsys, "weights", "add", str(tmp_path / "resnet.pth")
    )


def test_a_swin_of_another_size_is_refused_with_its_shapes(tmp_path: Path) -> None:
    tensors = read_tensors(public_files.swin3d_pth(tmp_path))
    wide = {name: x.repeat(2, *[1] * (x.ndim - 1)) if x.ndim else x for name, x in tensors.items()}
    torch.save(wide, tmp_path / "swin3d_b.pth")
    with pytest.raises(ModelError, match=r"wrong shape: patch_embed\.proj\.weight is 192×96, expected 96×96"):
        add(tmp_path / "swin3d_b.pth")


def test_folders_of_the_hub_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "clip"
    folder.mkdir()
    assert "without config.json" in refusal(monkeypatch, capsys, "weights", "add", str(folder))
    (folder / "config.json").write_text('{"model_type": "clip"}')
    said = " ".join(refusal(monkeypatch, capsys, "weights", "add", str(folder)).split())
    assert "holds a 'clip' model" in said and f"it needs no adding: --encoder hf:{folder}" in said
    (folder / "config.json").write_text('{"model_type": "videomae"}')
    assert "half a download" in refusal(monkeypatch, capsys, "weights", "add", str(folder))


def hub(folder: Path, sha256: str | None) -> Any:
    """A stand-in for the hub library that serves one folder."""
    listed = [
        SimpleNamespace(rfilename="config.json", lfs=None),
        SimpleNamespace(rfilename="model.safetensors", lfs=SimpleNamespace(sha256=sha256)),
    ]
    info = SimpleNamespace(siblings=listed, sha="0" * 40)
    return SimpleNamespace(
        HfApi=lambda: SimpleNamespace(model_info=lambda name, files_metadata: info),
        snapshot_download=lambda name, revision, allow_patterns: str(folder),
    )


def test_hub_downloads_are_checked_against_the_listed_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = public_files.videomae_folder(tmp_path)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub(folder, "0" * 64))
    assert "sha256 differs" in refusal(monkeypatch, capsys, "weights", "add", "MCG-NJU/videomae-small")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub(folder, digest))
    assert command("weights", "add", "MCG-NJU/videomae-small").startswith("videomae-s: encoder")


def test_without_a_network_the_files_to_fetch_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline() -> Any:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=offline))
    said = refusal(monkeypatch, capsys, "weights", "add", "MCG-NJU/videomae-base")
    assert "model.safetensors" in said and "escounts weights add FOLDER" in said
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert install_command("hub") in refusal(monkeypatch, capsys, "weights", "add", "MCG-NJU/videomae-base")


def test_the_store_lists_whole_files_only_and_sweeps_old_partial_ones(store: Path, tmp_path: Path) -> None:
    source = public_files.r2plus1d_pth(tmp_path)
    add(source)
    whole = store / "r2plus1d-18.safetensors"
    (store / "half.safetensors").write_bytes(whole.read_bytes()[:100_000])
    save_file({"a": torch.zeros(1)}, store / "foreign.safetensors")
    for name, age in (
        (".old.safetensors.0a0a0a0a.partial", 2 * weights.STALE_SECONDS),
        (".new.safetensors.1b1b1b1b.partial", 0),
    ):
        (store / name).write_bytes(b"half")
        past = (store / name).stat().st_mtime - age
        os.utime(store / name, (past, past))
    assert [kept.name for kept in weights.stored()] == ["r2plus1d-18"]
    add(source)
    assert not (store / ".old.safetensors.0a0a0a0a.partial").exists()
    assert (store / ".new.safetensors.1b1b1b1b.partial").exists()


@pytest.mark.parametrize("name", ["../escape", "", "a/b", ".hidden"])
def test_names_cannot_leave_the_store(name: str) -> None:
    with pytest.raises(ModelError, match="cannot name weights"):
        weights.stored_path(name)
