"""From video files to tokens: windows at every offset, exemplars, and every kind of bad video named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from movies import bouncing, levels, write_movie
from torch import Tensor

from escounts.errors import DataError, ModelError, OutputError, VideoError
from escounts.nn.encoders.interface import Encoder, EncoderSpec
from escounts.research.datasets import encoding_plan
from escounts.research.datasets.annotations import Dataset, VideoAnnotation, assemble
from escounts.research.datasets.encoding import encode_video, layout_for, spread
from escounts.research.datasets.encoding_plan import EncodingPlan
from escounts.research.datasets.stores import open_encoder
from escounts.research.datasets.tokens import VideoTokens
from escounts.system.task_processes import TaskError, divided


class MeanLevel(Encoder):
    """One channel: the mean brightness of each pair of frames; so tokens tell which frames they are made of."""

    def __init__(self) -> None:
        super().__init__(
            EncoderSpec(
                "level", 1, window_frames=16, every=4, size=8, mean=(0, 0, 0), std=(1, 1, 1), cells=8, grid=(2, 2)
            )
        )
        self.scale = torch.nn.Parameter(torch.tensor(255.0))

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        level_BT = frames_BTCHW.mean((2, 3, 4)).unflatten(1, (-1, 2)).mean(2) * self.scale  # type: ignore[no-untyped-call]
        return level_BT[:, :, None, None, None].expand(-1, -1, 2, 2, 1)  # type: ignore[no-any-return]


def annotation(name: str, *, spans: tuple[tuple[float, float], ...] = (), **changes: object) -> VideoAnnotation:
    base = VideoAnnotation(name, name, "a", len(spans), spans, 30.0, None, "train")
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def ramp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ramp") / "ramp.mp4"
    write_movie(path, levels(150, step=1), rate=30)
    return path


def test_the_time_it_takes_is_measured_on_the_first_seconds(ramp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = MeanLevel()
    layout = layout_for(encoder.spec, "x", shifts=4, exemplars=2)
    videos = [
        annotation("absent.mp4", duration=5.0),
        annotation("ramp.mp4", duration=5.0, spans=((1.0, 2.0), (2.0, 3.0), (3.0, 4.0))),
    ]
    plan = EncodingPlan(assemble("folder", videos, {"train": 2}), ramp.parent, encoder, layout, ramp, None)
    clock = iter([10.0, 13.0])
    monkeypatch.setattr(encoding_plan, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    # 3 s for the three windows of one offset; 10 windows of four offsets for each video, and two exemplars.
    assert plan.seconds() == pytest.approx(3.0 / 3 * (10 + 12))
    assert replace(plan, videos=ramp.parent / "nowhere").seconds() is None


def test_cells_are_the_frames_they_stand_for(ramp: Path) -> None:
    encoder = MeanLevel()
    layout = layout_for(encoder.spec, "x", shifts=4, exemplars=2)
    assert layout.offsets == (0, 2, 4, 6)
    made = encode_video(ramp, annotation("ramp.mp4", spans=((1.0, 2.0), (2.0, 3.0), (3.0, 4.0))), encoder, layout)
    whole = made.sequences[0][:, 0, 0, 0].float().numpy()
    assert len(whole) == 19, "150 frames, every 4th, two a cell; what lies past the end is cut"
    np.testing.assert_allclose(whole[:18], 8 * np.arange(18) + 2, atol=2.5)
    for offset in (2, 4, 6):
        shifted = made.sequences[offset][:, 0, 0, 0].float().numpy()
        np.testing.assert_allclose(shifted[:12], whole[offset : offset + 12], atol=1e-3)
    assert made.step == pytest.approx(8 / 30)
    assert made.exemplars.shape == (2, 8, 2, 2, 1)
    np.testing.assert_allclose(made.exemplar_spans, [(1.0, 2.0), (3.0, 4.0)])
    levels_of_first = made.exemplars[0, :, 0, 0, 0].float().numpy()
    np.testing.assert_allclose(levels_of_first, 30 + 30 * (np.arange(8) + 0.5) / 8, atol=3)


def test_a_stretch_inside_a_file(ramp: Path) -> None:
    encoder = MeanLevel()
    layout = layout_for(encoder.spec, "x", shifts=1, pool=(1, 1))
    made = encode_video(ramp, annotation("ramp.mp4", begin=2.0, duration=2.0), encoder, layout)
    assert made.sequences[0].shape == (8, 1, 1, 1)
    assert made.sequences[0][0].item() == pytest.approx(62, abs=3)


def test_a_rate_in_seconds_and_exemplars_cut_from_the_sequence(ramp: Path) -> None:
    encoder, identity = open_encoder("patches")
    layout = layout_for(encoder.spec, identity, shifts=2)
    assert layout.offsets == (0, 64)
    made = encode_video(ramp, annotation("ramp.mp4", spans=((1.0, 2.6),)), encoder, layout)
    assert made.sequences[0].shape == (50, 4, 4, 96)
    assert 64 not in made.sequences, "the video is shorter than the offset"
    assert torch.equal(made.exemplars[0], made.sequences[0][10:26])


def test_repetitions_past_the_end_are_refused(ramp: Path) -> None:
    encoder, identity = open_encoder("patches")
    layout = layout_for(encoder.spec, identity)
    with pytest.raises(VideoError, match=r"repetition at 7.00 s lies past its end \(5.00 s\)"):
        encode_video(ramp, annotation("ramp.mp4", spans=((7.0, 8.0),)), encoder, layout)


def test_a_video_of_which_no_picture_is_sampled_is_refused(ramp: Path) -> None:
    encoder, identity = open_encoder("patches", every=1_000_000)
    with pytest.raises(VideoError, match="no picture falls on a sampled time"):
        encode_video(ramp, annotation("ramp.mp4"), encoder, layout_for(encoder.spec, identity))


def small_set(root: Path) -> Dataset:
    for k in range(3):
        write_movie(root / f"v{k}.mp4", bouncing(2 + k, 2.0))
    (root / "broken.mp4").write_bytes(b"this is not a video")
    names = ["v0.mp4", "broken.mp4", "v1.mp4", "gone.mp4", "v2.mp4"]
    videos = [annotation(name, spans=((0.2, 0.9),), duration=2.0) for name in names]
    return assemble("small", videos, {"train": len(names)})


def test_bad_videos_are_named_and_the_rest_go_on(tmp_path: Path) -> None:
    dataset = small_set(tmp_path)
    encoder, identity = open_encoder("patches")
    layout = layout_for(encoder.spec, identity)
    seen = []
    plan = EncodingPlan(dataset, tmp_path, encoder, layout, tmp_path / "tokens")
    store, problems = plan.run(lambda *done: seen.append(done))
    assert sorted(store.entries) == ["v0.mp4", "v1.mp4", "v2.mp4"]
    assert {problem.name for problem in problems} == {"broken.mp4", "gone.mp4"}
    assert any("no video under" in problem.what for problem in problems)
    assert seen[-1][:2] == (5, 5)
    assert store.verify() == []


STOPPED = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from test_encoding import small_set
from escounts.research.datasets.stores import open_encoder
from escounts.research.datasets.encoding import layout_for
from escounts.research.datasets.encoding_plan import EncodingPlan
root = Path({root!r})
encoder, identity = open_encoder("patches")
def progress(done, total, name):
    print(done, flush=True)
    if done == 2:
        time.sleep(60)
EncodingPlan(small_set(root), root, encoder, layout_for(encoder.spec, identity), root / "tokens").run(progress)
"""


def test_killed_and_resumed_is_byte_identical(tmp_path: Path) -> None:
    here = Path(__file__).resolve().parent
    code = STOPPED.format(paths=[str(here), str(here.parents[1])], root=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline().strip() != "2":
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "tokens/index.json").exists()
    dataset = small_set(tmp_path)
    encoder, identity = open_encoder("patches")
    layout = layout_for(encoder.spec, identity)
    started = []
    plan = EncodingPlan(dataset, tmp_path, encoder, layout, tmp_path / "tokens")
    plan.run(lambda done, total, name: started.append(name))
    assert "v0.mp4" not in started, "what was done is kept"
    replace(plan, path=tmp_path / "whole").run()
    for path in (tmp_path / "whole").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "tokens" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_disk_need_is_stated_and_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, identity = open_encoder("patches")
    plan = EncodingPlan(
        small_set(tmp_path), tmp_path, encoder, layout_for(encoder.spec, identity), tmp_path / "tokens"
    )
    spec = EncoderSpec("mae-vit-b", 768)
    minute = [annotation("v", spans=((0.0, 1.0),) * 20, duration=60.0)]
    whole, exemplars, released = replace(plan, layout=layout_for(spec, "x")).need(minute)
    pooled, pooled_exemplars, _ = replace(plan, layout=layout_for(spec, "x", pool=(6, 6))).need(minute)
    windows = 60 * 30 / 16
    assert released == pytest.approx((windows + 20) * 8 * 14 * 14 * 768 * 4, rel=0.02)
    assert pooled_exemplars == exemplars == 8 * 8 * 14 * 14 * 768 * 2, "exemplars are not pooled"
    assert (pooled - pooled_exemplars) / (whole - exemplars) == pytest.approx(36 / 196, rel=0.01)
    assert pooled < released / 9
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(DataError, match=r"GB more, 0.0 GB are free"):
        plan.run()


def test_spread_takes_the_same_spans_evenly() -> None:
    spans = [(float(k), k + 1.0) for k in range(10)]
    assert [start for start, _ in spread(spans, 3)] == [1, 5, 8]
    assert spread(spans[:2], 3) == spans[:2]


def test_encoders_without_weights_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="escounts weights add FILE --as mae-vit-b"):
        open_encoder("mae-vit-b")
    with pytest.raises(ModelError, match=r"unknown encoder 'vit'; known: .*\blite, .*\bmae-vit-b, "):
        open_encoder("vit")


def test_two_processes_make_the_same_store_and_survive_a_kill(tmp_path: Path) -> None:
    dataset = small_set(tmp_path)
    encoder, identity = open_encoder("patches")
    layout = layout_for(encoder.spec, identity)
    plan = EncodingPlan(dataset, tmp_path, encoder, layout, tmp_path / "alone")
    plan.run()
    out = tmp_path / "shared"
    processes = divided(
        encoding_plan.encoding_work, ("cpu",), 2, lambda device: ("patches", None, device, out, layout)
    )
    killed: list[int] = []

    def kill_one(done: int, total: int, name: str) -> None:
        if not killed:
            killed.append(processes[0]._start().pid)
            os.kill(killed[0], signal.SIGKILL)

    store, problems = replace(plan, path=out).encode(kill_one, processes)
    assert killed and {problem.name for problem in problems} == {"broken.mp4", "gone.mp4"}
    assert store.verify() == []
    for path in (tmp_path / "alone").rglob("*.*"):
        if path.suffix != ".lock":
            assert path.read_bytes() == (out / path.relative_to(tmp_path / "alone")).read_bytes()


def test_devices_are_taken_in_turn() -> None:
    places = divided(encoding_plan.encoding_work, ("cuda:0", "cuda:1"), 3, lambda device: (device,))
    assert [process._arguments for process in places] == [("cuda:0",), ("cuda:1",), ("cuda:0",)]


def test_a_full_disk_ends_the_run_of_processes_as_it_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = small_set(tmp_path)
    encoder, identity = open_encoder("patches")
    layout = layout_for(encoder.spec, identity)
    tried: list[str] = []

    def full(out: Path, tokens: VideoTokens) -> None:
        tried.append(tokens.name)
        raise OutputError("no space left on device")

    monkeypatch.setattr(encoding_plan, "write_video", full)

    class Here:
        """A worker without a process."""

        def __init__(self) -> None:
            self.work = encoding_plan.encoding_work("patches", None, "cpu", tmp_path / "out", layout)

        def ask(self, task: encoding_plan.EncodingTask) -> encoding_plan.EncodingAnswer:
            try:
                return self.work(task)
            except OutputError as error:
                raise TaskError(str(error)) from error  # as a process does

        def stop(self) -> None:
            pass

    with pytest.raises(OutputError, match="no space left"):
        EncodingPlan(dataset, tmp_path, encoder, layout, tmp_path / "out").encode(processes=[Here()])
    assert len(tried) == 1
