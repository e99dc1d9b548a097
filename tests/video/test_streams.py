"""Frames as they come: a file at its speed, slow takers, servers that die, readers that hang."""

from __future__ import annotations

import http.server
import io
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from movies import levels, write_movie

from escounts.errors import VideoError
from escounts.video import streams
from escounts.video.files import Frame, Video
from escounts.video.streams import FrameStream, Gap, find_source

SIZE = (16, 16)


def watched(source: str | Path, **options: float) -> FrameStream:
    return FrameStream(source, size=SIZE, rate=30.0, **options)


def test_a_file_gives_the_frames_that_counting_reads(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "v.mp4", levels(20), rate=20)
    seen = [frame for frame in watched(path, speed=math.inf) if not isinstance(frame, Gap)]
    expected = list(Video(path).frames(size=SIZE, rate=30.0))
    assert [frame.time for frame in seen] == [frame.time for frame in expected]
    assert all(np.array_equal(a.image, b.image) for a, b in zip(seen, expected, strict=True))


def test_a_file_runs_at_its_own_speed(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "v.mp4", levels(30), rate=30)
    began = time.monotonic()
    frames = list(watched(path, speed=2.0))
    assert len(frames) == 30 and time.monotonic() - began > 0.4


def test_frames_that_nobody_takes_are_dropped_and_said(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "v.mp4", levels(120), rate=30)
    stream = watched(path, speed=100.0)
    stream._watchdog.join()  # all of it has come before anyone looks
    assert len(list(stream)) == 30 and stream.dropped == 90


def test_as_fast_as_frames_are_taken_none_is_dropped(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "v.mp4", levels(120), rate=30)
    stream = watched(path, speed=math.inf)
    assert len(list(stream)) == 120 and stream.dropped == 0


@pytest.mark.parametrize("source", ["missing.mp4", "http://127.0.0.1:9/x.ts"])
def test_what_cannot_be_opened_at_first_is_a_mistake_not_an_outage(source: str) -> None:
    with pytest.raises(VideoError, match=source.split("?")[0]):
        list(watched(source))


def device(name: str, description: str, *media_types: str) -> SimpleNamespace:
    """As `av.device` lists one."""
    return SimpleNamespace(name=name, description=description, media_types=list(media_types))


def test_a_missing_camera_names_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg's list of v4l2 devices leaves their media types empty."""
    listed = [
        device("/dev/video4", "Integrated Camera"),
        device("eye", "Second Camera", "video", "audio"),
        device("mic", "Microphone", "audio"),
    ]
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(streams, "enumerate_input_devices", lambda kind: listed)
    with pytest.raises(
        VideoError, match=r"no such camera.*/dev/video4 \(Integrated Camera\), eye \(Second Camera\)$"
    ):
        list(watched("93"))


def test_rtsp_goes_over_tcp() -> None:
    source = find_source("rtsp://camera.local/1")
    assert source.live and source.options == {"rtsp_transport": "tcp"}


def test_a_file_may_be_named_by_its_address(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "a b.mp4", levels(20), rate=20)
    assert not find_source(path.as_uri()).live
    assert len(list(watched(path.as_uri(), speed=math.inf))) == len(list(watched(path, speed=math.inf)))


@pytest.mark.parametrize("kind", ["concat", "data", "subfile,,start,0,end,0,,:http", "crypto+file", "ftp", "gopher"])
def test_an_address_that_is_none_of_a_stream_is_refused(kind: str) -> None:
    with pytest.raises(VideoError, match=r"addresses begin with rtsp://, .*http://"):
        find_source(f"{kind}://127.0.0.1/v.mp4")


@contextmanager
def serving(data: bytes, *, hang_first: bool = False) -> Iterator[tuple[str, list[float]]]:
    """A server that sends the same second of video to whoever connects, and then drops the connection; or one
    that sends nothing more to the first, and keeps the connection. Yields its address and when it was asked."""
    asked: list[float] = []
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(time.monotonic())
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)
            if hang_first and len(asked) == 1:
                self.wfile.flush()
                over.wait(20)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/live.ts", asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def second() -> bytes:
    """A second of video as a transport stream: no length in it."""
    data = io.BytesIO()
    write_movie(data, levels(30), rate=30, container_format="mpegts", options={"g": "10"})
    return data.getvalue()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FIRST_PAUSE", 0.3)
    monkeypatch.setattr(streams, "STALLED", 1.0)


@pytest.mark.usefixtures("hasty")
def test_a_stream_that_breaks_off_five_times_goes_on_with_gaps(second: bytes) -> None:
    with serving(second) as (address, asked):
        stream = watched(address)
        gaps, frames = [], 0
        for item in stream:
            if isinstance(item, Gap):
                gaps.append(item)
            else:
                frames += 1
            if len(gaps) == 5:
                stream.close()
        assert len(asked) >= 6 and frames > 100
        assert all(gap.end - gap.start > 0.2 for gap in gaps)
        assert all(a.end < b.start for a, b in pairwise(gaps))


@pytest.mark.usefixtures("hasty")
def test_a_reader_that_hangs_is_left_and_another_opened(second: bytes) -> None:
    with serving(second, hang_first=True) as (address, asked):
        stream = watched(address)
        gap = next(item for item in stream if isinstance(item, Gap))
        assert len(asked) == 2 and gap.reason == "no frames came"
        after = next(iter(stream))
        assert isinstance(after, Frame) and after.time >= gap.end
        stream.close()


@pytest.mark.usefixtures("hasty")
def test_readers_that_hang_do_not_become_ever_more_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(streams, "STALLED", 0.2)
    opened: list[threading.Thread] = []
    release = threading.Event()

    class Hanging(FrameStream):
        """Each connection brings three frames and hangs."""

        def _sampled(self) -> Iterator[Frame]:
            opened.append(threading.current_thread())
            begin = self._offset()
            for index in range(3):
                yield Frame(begin + index / 30, np.zeros((*SIZE, 3), np.uint8))
            release.wait(60)

    stream = Hanging("rtsp://camera.local/1", size=SIZE, rate=30.0)
    items = iter(stream)
    try:
        gaps: list[Gap] = []
        while len(opened) < 8 and not any("hang" in gap.reason for gap in gaps):
            item = next(items)
            gaps += [item] if isinstance(item, Gap) else []
        assert gaps[-1].reason == "3 connections hang; it is opened again when one of them has ended"
        time.sleep(1.0)
        assert len(opened) == streams.MOST_HANGING == 3, "it waits"
        release.set()
        after = [next(items), next(items)]
        assert len(opened) > 3 and isinstance(after[0], Gap) and isinstance(after[1], Frame), "and goes on"
        assert gaps[-1].end == after[0].start and after[0].end <= after[1].time
    finally:
        release.set()
        stream.close()


@pytest.mark.usefixtures("hasty")
def test_a_reader_that_was_left_ends_by_itself(second: bytes) -> None:
    others = set(threading.enumerate())
    with serving(second, hang_first=True) as (address, _):
        stream = watched(address)
        next(iter(stream))
        (left,) = [each for each in threading.enumerate() if each not in others and each.name == "escounts-reader"]
        next(item for item in stream if isinstance(item, Gap))
        left.join(10)  # the server keeps the connection for 20 s
        stream.close()
        assert not left.is_alive()
