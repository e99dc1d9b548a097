"""`escounts bench`, and `benchmarks/engines.py`: what it times, what it says, and that rivals compute the same."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from escounts.cli import app
from escounts.counting import multi_rate_encoding
from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import EscountsError
from escounts.nn.device import counting_precision
from escounts.nn.network import LITE_TINY, Network

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
engines: Any = importlib.import_module("engines")
Engine, Speed = engines.Engine, engines.Speed


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = engines.segment(tmp_path_factory.mktemp("footage") / "small.mp4", size=(128, 96), seconds=3)
    return path


def test_the_plainly_written_model_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of two periods that are equally likely either may win, and to a network that learnt nothing all are.
    monkeypatch.setattr(multi_rate_encoding, "ONE_PERIOD", None)
    torch.manual_seed(0)
    model = MultiRateModel("tiny", Network(LITE_TINY))
    stripes = np.full((64, 64, 3), 40, np.uint8)
    stripes[::9] = 220
    images = [np.roll(stripes, t, 0) for t in range(120)]
    counted = [one.encode_images(images).estimate().density.values for one in (model, engines._plainly(model))]
    assert counted[0].sum() > 0
    np.testing.assert_allclose(counted[0], counted[1], atol=1e-4)


def test_each_part_is_timed(video: Path) -> None:
    speed = engines.measure(Engine("spectral", runs=engines.NUMPY), video)
    assert speed.error is None and speed.seconds == pytest.approx(3, abs=0.1)
    assert set(speed.wall) == set(speed.processor) == {"end to end", "decoding", "decoder"}
    assert all(seconds > 0 for seconds in speed.wall.values())
    alone = engines.measure(Engine("decoding alone", runs=engines.DECODING), video)
    assert set(alone.wall) == {"decoding"} and alone.processor["decoding"] > 0


def test_what_does_not_run_is_a_row_that_says_why(video: Path) -> None:
    speed = engines.measure(Engine("lite", runs=engines.ONNX, folder="nowhere"), video)
    assert speed.error is not None and "nowhere" in speed.error
    shown = engines.markdown(engines.Bench("a processor", None, "versions", 1, (speed,)))
    assert "no GPU" in shown and "did not run: ModelError" in shown


def test_rows_show_video_per_second() -> None:
    wall = {"end to end": 5.0, "decoding": 2.0, "encoder": 0.5}
    speed = Speed(Engine("lite"), 60.0, wall, {"end to end": 10.0}, start=1.5, peak_mb=471.4, count=30.08)
    found = engines.Bench("a processor", "H200", "versions", 1, (speed,))
    row = engines.markdown(found).splitlines()[-1]
    assert row == "| `lite` | cpu | float32 | PyTorch | 12 | 30 | 120 | – | 1.5 | 471 | 30.08 |"
    row = engines.markdown(found, by_processor=True).splitlines()[-1]
    assert row == "| `lite` | cpu | float32 | PyTorch | 6 | – | – | – | 1.5 | 471 | 30.08 |"


def test_rounds_become_their_median() -> None:
    turns = [Speed(Engine("lite"), 60.0, {"decoding": s}, {"decoding": 2 * s}, peak_mb=s) for s in (5.0, 9.0, 4.0)]
    middle = engines.median(turns)
    assert middle.wall == {"decoding": 5.0} and middle.processor == {"decoding": 10.0} and middle.peak_mb == 9.0


def test_engines_of_a_cpu() -> None:
    quick = engines.engines_here("cpu", quick=True)
    assert [engine.model for engine in quick] == ["decoding alone", "spectral", "lite"]
    assert quick[-1].precision == counting_precision(torch.device("cpu")), "what counting uses here"
    every = engines.engines_here("cpu", exported="folder")
    assert {engine.runs for engine in every} >= {engines.PLAIN, engines.ONNX}
    assert {engine.precision for engine in every} == {"bf16", "float32"}
    with pytest.raises(EscountsError, match="it takes auto, cpu or cuda"):
        engines.engines_here("tpu")


def test_a_bench_uses_no_folder_that_others_know_and_leaves_none(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "escounts-benchmarks").write_text("another user's")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(engines, "segment", lambda path, **options: Path(shutil.copy(video, path)))
    monkeypatch.setattr(engines, "alone", lambda engine, video: Speed(engine, float(video.stat().st_size)))
    assert all(speed.seconds > 0 for speed in engines.bench(device="cpu", quick=True).rows)
    assert [path.name for path in tmp_path.iterdir()] == ["escounts-benchmarks"]


def test_the_script_times_every_engine_in_a_child(video: Path) -> None:
    found = engines.bench(video, device="cpu", quick=True)
    assert [speed.error for speed in found.rows] == [None] * 3
    lite = found.rows[-1]
    assert lite.engine.model == "lite" and lite.wall["encoder"] > 0 and lite.peak_mb > 100


def test_the_command_times_a_video(video: Path) -> None:
    run = ["bench", "--device", "cpu", "--video", str(video), "--rounds", "1"]
    done = CliRunner().invoke(app, [*run, "--json"], catch_exceptions=False)
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [row["model"] for row in rows] == ["decoding alone", "lite", "spectral"]
    assert all(row["wall"] > 0 and row["processor"] > 0 for row in rows) and rows[1]["start"] > 0
    shown = CliRunner().invoke(app, [*run, "--quick", "--by-processor"], catch_exceptions=False).stdout
    assert "per second of processor" in shown and "| lite | " in shown and "spectral" not in shown


def test_bf16_is_left_out_where_it_loses(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "bf16_speedup", lambda device: 0.125)
    speed = engines.measure(Engine("lite", precision="bf16"), video)
    assert not speed.wall and speed.error is not None
    assert "a product in bf16 takes 8.0 times as long as in float32 here" in speed.error
