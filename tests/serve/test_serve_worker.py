"""The worker's own parts: what it keeps, what it may use, and when it gives up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from lines import line
from serving import eventually

from escounts.errors import VideoError
from escounts.results import CountResult, DensityMap
from escounts.serve.settings import Settings, Source, open_video
from escounts.serve.worker import CountTask, EncodingCache, Worker

MEGABYTE = 2**20
OPTIONS = Settings(
    Path("data"),
    model="spectral",
    devices=("cpu",),
    worker_memory=2**32,
    cache_memory=2**28,
    cache_videos=4,
    max_duration=60.0,
    max_pixels=1920 * 1080,
)


def encoding(megabytes: int) -> SimpleNamespace:
    return SimpleNamespace(nbytes=megabytes * MEGABYTE)


def test_the_cache_is_bounded_by_bytes_and_the_oldest_goes() -> None:
    cache = EncodingCache(max_bytes=10 * MEGABYTE, max_videos=100)
    for name in "abc":
        cache.put(name, encoding(4))
    assert cache.names() == ["b", "c"]
    assert cache.get("b") is not None
    cache.put("d", encoding(4))
    assert cache.names() == ["b", "d"], "what was asked for last stays"
    cache.put("huge", encoding(20))
    assert cache.names() == ["huge"]


def test_an_encoding_that_grows_is_measured_anew() -> None:
    cache = EncodingCache(max_bytes=10 * MEGABYTE, max_videos=100)
    growing = encoding(1)
    cache.put("growing", growing)
    cache.put("b", encoding(5))
    growing.nbytes = 8 * MEGABYTE
    cache.put("c", encoding(1))
    assert cache.names() == ["b", "c"]


def test_the_cache_is_bounded_by_videos() -> None:
    cache = EncodingCache(max_bytes=10 * MEGABYTE, max_videos=2)
    for name in "abc":
        cache.put(name, encoding(1))
    assert cache.names() == ["b", "c"]
    cache.forget(lambda name: name == "b")
    assert (cache.names(), cache.get("b")) == (["c"], None)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA bounds memory on Linux only")
def test_memory_past_the_limit_is_an_error_in_the_worker_alone() -> None:
    code = (
        "from escounts.serve.settings import limit_memory\n"
        "import numpy as np\n"
        "limit_memory(200 * 2**20)\n"
        "kept = np.ones(100 * 2**20, np.uint8)\n"
        "try:\n    np.ones(400 * 2**20, np.uint8)\n"
        "except MemoryError:\n    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "refused", done.stderr


def test_progress_is_reported_seldom_and_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escounts.serve.worker.time", SimpleNamespace(monotonic=lambda: 100.0))
    ours, theirs = line()
    worker = Worker(theirs, OPTIONS)
    progress = worker._progress("job")
    for second in range(1000):
        progress(float(second), 1000.0)
    assert ours.take(3) == ["progress", "job", [0.0, 1000.0]]
    assert not ours.poll(), "a thousand steps at once are one report"
    worker._cancelled.add("job")
    with pytest.raises(CancelledError):
        progress(5.0, 10.0)


def test_a_recount_that_reads_the_video_again_reports_and_can_be_cancelled(clips: dict[int, Path]) -> None:
    ours, theirs = line()
    worker = Worker(theirs, OPTIONS)
    source = Source("id", str(clips[7]), "seven.mp4")

    class Rereading:
        """An encoding whose counts read the video once more, as an exemplar of a fast motion makes them."""

        nbytes = 1

        def count(self, progress: Callable[[float, float], None], **_: object) -> CountResult:
            for second in range(7):
                progress(float(second), 7.0)
            density = DensityMap(np.zeros(1, np.float32), 0.0, 1.0)
            return CountResult("v", "m", 0, 0.0, (), density, 1.0, False, 1.0, (0.0, 1.0))

    worker._cache.put("id", Rereading())
    worker._count(CountTask("job", source))
    assert ours.take(3) == ["progress", "job", [0.0, 7.0]]

    class Late(set[str]):
        """Nobody wants the job any more once it has begun to read."""

        asked = 0

        def __contains__(self, job: object) -> bool:
            self.asked += 1
            return self.asked > 3

    worker._cancelled = Late()
    with pytest.raises(CancelledError):
        worker._count(CountTask("job", source))


def test_the_server_never_opens_a_video() -> None:
    code = "import sys, escounts.serve.worker; print('escounts.video.files' in sys.modules, 'av' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False False", done.stderr


def test_a_cancel_that_comes_after_the_end_is_forgotten() -> None:
    ours, theirs = line()
    worker = Worker(theirs, OPTIONS)
    gate = threading.Event()

    def count(task: CountTask) -> dict[str, object]:
        assert gate.wait(10)
        worker._progress(task.id)(1.0, 1.0)
        return {}

    worker._count = count  # type: ignore[method-assign]
    threading.Thread(target=worker._run_lane, args=("fast",), daemon=True).start()
    task = CountTask("job", Source("id", "clip.mp4", "clip.mp4"))
    worker._handle("fast", task)
    worker._handle("cancel", "job")
    gate.set()
    assert ours.take(3) == ["cancelled", "job", None]
    eventually(lambda: not worker._held)
    worker._handle("cancel", "job")
    assert worker._cancelled == set()
    worker._handle("fast", task)
    assert [ours.take(3)[0], ours.take(3)[0]] == ["progress", "done"]


@pytest.mark.parametrize(
    ("limits", "word"), [({"max_duration": 2.0}, "up to 2 s"), ({"max_pixels": 1000}, "megapixels"), ({}, "")]
)
def test_videos_past_the_limits_are_refused(clips: dict[int, Path], limits: dict[str, float], word: str) -> None:
    options = replace(OPTIONS, **limits)  # type: ignore[arg-type]
    source = Source("id", str(clips[5]), "clip.mp4")
    if word:
        with pytest.raises(VideoError, match=word):
            open_video(source, options)
    else:
        assert open_video(source, options).info.duration == pytest.approx(4.0, abs=0.1)


def test_errors_name_the_video_and_not_its_path() -> None:
    ours, theirs = line()
    worker = Worker(theirs, OPTIONS)
    source = Source("id", "/data/videos/0123.mp4", "squats.mp4")
    text = worker._explain(VideoError("/data/videos/0123.mp4: no frames\nat all"), source)
    assert text == "squats.mp4: no frames at all"
    assert "memory" in worker._explain(MemoryError(), source)
    assert ours.take(3) == ["cached", "", []], "what it kept is given up"
    hidden = worker._explain(RuntimeError("0123.mp4 broke"), source)
    assert hidden == "squats.mp4 could not be counted: RuntimeError: squats.mp4 broke"


def test_two_lanes_run_side_by_side() -> None:
    ours, theirs = line()
    worker = Worker(theirs, OPTIONS)
    gate = threading.Event()

    def count(task: SimpleNamespace) -> str:
        if task.id == "slow":
            gate.wait(10)
        return str(task.id)

    worker._render = count  # type: ignore[assignment, method-assign]
    for lane in ("slow", "fast"):
        threading.Thread(target=worker._run_lane, args=(lane,), daemon=True).start()
        worker._lanes[lane].put(SimpleNamespace(id=lane, source=None))  # type: ignore[arg-type]
    assert ours.poll(10)
    assert ours.take(3) == ["done", "fast", "fast"], "a recount does not wait for a video"
    gate.set()
    assert ours.take(3) == ["done", "slow", "slow"]
