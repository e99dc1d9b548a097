"""Watching: events of a source that goes on. The shipped model on drawn motion, read as fast as it can be counted."""

from __future__ import annotations

import io
import json
import math
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command import run
from movies import write_movie
from release_figures import share_of

import escounts
from escounts import live
from escounts.counter import Counter
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import View
from escounts.errors import ExemplarError, ModelError
from escounts.live import LiveCounter, LiveEvent
from escounts.nn.network import LITE_TINY, Network
from escounts.video import streams as stream
from escounts.video.files import Frame


@pytest.fixture(autouse=True, scope="module")
def half_as_often() -> Iterator[None]:
    """An estimate a second: half the work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "INTERVAL", 1.0)
        yield


@pytest.fixture(scope="module")
def counter() -> Counter:
    return escounts.load("lite", device="cpu")


def swinging(seconds: float, *, start: float = 0.0, period: float = 1.2) -> Iterator[Frame]:
    """A bright disc that goes to and fro, at 30 frames a second."""
    y, x = np.mgrid[:128, :128]
    for index in range(round(seconds * 30)):
        time = start + (index + 0.5) / 30
        middle = 64 + 40 * math.sin(2 * math.pi * time / period)
        image = np.full((128, 128, 3), 60, np.uint8)
        image[(x - middle) ** 2 + (y - 64) ** 2 < 300] = 230
        yield Frame(time, image)


@pytest.fixture(scope="module")
def swing(counter: Counter) -> list[LiveEvent]:
    return list(escounts.watch(swinging(9.6), model=counter))


def test_repetitions_are_counted_while_it_goes_on(swing: list[LiveEvent]) -> None:
    found = [event for event in swing if event.kind == "repetition"]
    assert [event.count for event in found] == list(range(1, len(found) + 1))
    assert abs(len(found) - 8) <= 1 and swing[-1].kind == "end" and swing[-1].count == len(found)
    assert all(a.end <= b.start + 1e-6 for a, b in pairwise(found))  # type: ignore[operator]
    assert sum(event.time < 9.0 for event in found) >= 5  # while it went on, not at the end
    delays = [event.delay for event in found if event.delay is not None]
    assert len(delays) == len(found) and float(np.median(delays)) < 2.0


def test_the_count_never_goes_back(swing: list[LiveEvent]) -> None:
    counts = [event.count for event in swing]
    assert counts == sorted(counts) and all(0 <= event.open <= 1 for event in swing)


def test_a_gap_is_recorded_a_few_missing_frames_are_none_and_the_count_goes_on(counter: Counter) -> None:
    holes = [frame for index, frame in enumerate(swinging(6.0)) if not 80 <= index < 85]
    events = list(escounts.watch([*holes, *swinging(6.0, start=60.0)], model=counter))
    (gap,) = [event for event in events if event.kind == "gap"]
    assert gap.start == pytest.approx(6.0, abs=0.1) and gap.end == pytest.approx(60.0, abs=0.1)
    assert gap.count >= 4 and abs(events[-1].count - 10) <= 2
    spans = [(event.start, event.end) for event in events if event.kind == "repetition"]
    assert all(not (start < 6.1 and end > 59.9) for start, end in spans)  # type: ignore[operator]


def test_an_exemplar_marked_while_it_runs_counts_anew(counter: Counter) -> None:
    frames = list(swinging(7.2))
    assert isinstance(counter.model, MultiRateModel)
    whole = counter.model.encode_images([frame.image for frame in frames])
    expected = whole.estimate([whole.encode_exemplar(1.5, 3.9)]).density.count  # two swings are one repetition
    watching = escounts.watch(frames, model=counter)
    events = []
    for event in watching:
        events.append(event)
        if len(events) == 4:
            watching.mark(1.5, 3.9)
    (marked,) = [event for event in events if event.kind == "exemplar"]
    assert (marked.start, marked.end) == (1.5, 3.9)
    assert abs(events[-1].count - expected) <= 1 and expected < 5.2
    after = events[events.index(marked) + 1 :]
    found = [event for event in after if event.kind == "repetition"]
    assert marked.count == 0 and [event.count for event in found] == list(range(1, events[-1].count + 1))
    lengths = [event.end - event.start for event in found]  # type: ignore[operator]
    assert max(lengths) < 1.5 * float(np.median(lengths)) and min(lengths) > 0.6 * float(np.median(lengths)), lengths
    assert all(abs(a.end - b.start) < 0.3 for a, b in pairwise(found)), "without a hole"  # type: ignore[operator]
    counts = [event.count for event in after]
    assert counts == sorted(counts)


def test_an_exemplar_of_what_is_counted_anyway_takes_back_the_open_repetition_at_most(counter: Counter) -> None:
    watching = escounts.watch(swinging(9.6), model=counter)
    events: list[LiveEvent] = []
    for event in watching:
        if event.count == 4 and all(before.count < 4 for before in events):
            watching.mark(1.5, 2.7)
        events.append(event)
    at = next(index for index, event in enumerate(events) if event.kind == "exemplar")
    again = [event for event in events[at:] if event.kind == "repetition"]
    assert [event.count for event in again] == list(range(events[at].count + 1, events[-1].count + 1))
    assert sum(event.time == events[at].time for event in again) >= events[at - 1].count - 1
    assert all(0.7 < event.end - event.start < 1.8 for event in again), again  # type: ignore[operator]


def test_an_exemplar_that_is_forgotten_backwards_or_hardly_a_frame_is_refused(counter: Counter) -> None:
    watching = escounts.watch(swinging(3.0, start=500.0), model=counter)
    next(iter(watching))
    with pytest.raises(ExemplarError, match="too long ago"):
        watching.mark(1.0, 2.0)
    with pytest.raises(ExemplarError, match="ends before it starts"):
        watching.mark(501.0, 500.5)
    with pytest.raises(ExemplarError, match="hardly a frame"):
        watching.mark(501.0, 501.001)
    with pytest.raises(ExemplarError, match="hardly a frame"):
        escounts.watch(swinging(3.0), model=counter, exemplars=["1-1.04"])


def test_a_model_that_needs_the_whole_video_is_refused() -> None:
    with pytest.raises(ModelError, match="`lite` can"):
        escounts.watch(swinging(1.0), model="spectral")


def test_the_command_prints_one_json_object_per_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_movie(tmp_path / "swing.mp4", (frame.image for frame in swinging(7.2)))
    monkeypatch.setattr(sys, "stdin", io.StringIO("4.8-6.0\n"))  # an exemplar marked by hand
    done = run(capsys, monkeypatch, "watch", path, "--json", "--speed", "inf")
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    repetitions = [event for event in events if event["kind"] == "repetition"]
    assert {"count", "start", "end", "confidence", "delay"} <= set(repetitions[0])
    assert [(event["start"], event["end"]) for event in events if event["kind"] == "exemplar"] == [(4.8, 6.0)]
    assert events[-1]["kind"] == "end"
    assert abs(events[-1]["count"] - escounts.count(path, exemplars=["4.8-6.0"]).count) <= 1


def test_the_command_heads_its_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_movie(tmp_path / "swing.mp4", (frame.image for frame in swinging(7.2)))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    header, first, *_, last = run(capsys, monkeypatch, "watch", path, "--speed", "inf").out.splitlines()
    assert header.split() == ["count", "start", "-", "end", "known", "after"]
    assert first.split()[0] == "1" and first.index("1") < len("count") < first.index("-")
    assert [header.index("- "), header.index("known")] == [first.index("- "), first.rindex("  ") + 2], "in columns"
    assert last.split()[1:3] == ["repetitions", "in"]


def test_the_command_says_what_is_wrong_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = run(capsys, monkeypatch, "watch", "missing.mp4")
    assert done.code == 2 and done.out == "" and done.err == "escounts: missing.mp4: no such file\n"


def test_memory_is_bounded_however_rarely_a_slow_machine_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL", 5.0)
    monkeypatch.setattr(live, "MEMORY", 6.0)
    monkeypatch.setattr(live, "BLOCK", 2.0)
    model = MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=())
    watching, held = LiveCounter(model), []
    for frame in swinging(40.0):
        watching.push(Frame(frame.time, frame.image[::2, ::2]))
        assert watching._encoding is not None
        held.append(watching.time - watching._encoding.start)
    assert 6.0 < max(held) <= 6.0 + 5.0 + 0.1


SERVER = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        data, began = open(sys.argv[2], "rb").read(), time.monotonic()
        for part in range(100):  # as fast as it was filmed
            time.sleep(max(0, began + part * float(sys.argv[3]) / 100 - time.monotonic()))
            self.wfile.write(data[len(data) * part // 100 : len(data) * (part + 1) // 100])
            self.wfile.flush()
        time.sleep(600)
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def watch_through_restarts(
    counter: Counter, folder: Path, monkeypatch: pytest.MonkeyPatch, *, restarts: int, seconds: float
) -> list[LiveEvent]:
    """Watch a server's stream of a swing each 1.2 s; it is killed (-9) and started again so many times."""
    monkeypatch.setattr(stream, "STALLED", 2.0)
    path = folder / "live.ts"
    pictures = (frame.image for frame in swinging(seconds))
    write_movie(path, pictures, rate=30, container_format="mpegts", options={"g": "15", "bf": "0"})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port), str(path), str(seconds)]
    server = subprocess.Popen(command)
    left, since, away, counted = restarts, 0.0, False, 0
    watching: live.Watch | None = None
    events: list[LiveEvent] = []
    try:
        while watching is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                watching = escounts.watch(f"http://127.0.0.1:{port}/live.ts", model=counter)
            except OSError:
                assert server.poll() is None
        for event in watching:
            events.append(event)
            if event.kind == "gap":
                since, away, counted = event.end or 0.0, False, event.count
            if away or event.time - since < 0.7 * seconds:
                continue
            # A busy machine counts late, and a stream that it has not kept up with is opened again: one more gap.
            if left == 0 and (event.count > counted or event.time > 10 * seconds * (restarts + 1)):
                watching.close()
            elif left == 0:
                continue
            else:
                server.kill()
                server.wait()
                server = subprocess.Popen(command)
                left, away = left - 1, True
    finally:
        server.kill()
        server.wait()
    return events


def check_restarts(events: list[LiveEvent], restarts: int, seconds: float) -> None:
    gaps = [event for event in events if event.kind == "gap"]
    counts = [event.count for event in events]
    print(f"counts at the gaps: {[gap.count for gap in gaps]}, at the end {counts[-1]}")
    print(f"gaps: {[(round(gap.start or 0, 1), round(gap.end or 0, 1), gap.reason) for gap in gaps]}")
    assert len(gaps) >= restarts and counts == sorted(counts)
    assert all(a.end <= b.start for a, b in pairwise(gaps))  # type: ignore[operator]
    assert counts[-1] > gaps[-1].count >= gaps[0].count > 0, "it goes on after each of them"


def test_a_stream_server_that_is_killed_leaves_gaps_and_the_count_goes_on(
    counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_restarts(watch_through_restarts(counter, tmp_path, monkeypatch, restarts=1, seconds=6.0), 1, 6.0)


@pytest.mark.release
def test_a_stream_server_that_is_killed_five_times(
    counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = share_of(5)
    events = watch_through_restarts(counter, tmp_path, monkeypatch, restarts=restarts, seconds=12.0)
    check_restarts(events, restarts, 12.0)
