"""Frames as they come: a camera, a network stream, or a file at its own speed; and how each is found and opened.

One thread reads, a second one watches it. FFmpeg can hang in a read for ever, whatever timeout it is given (RTSP): a
reader that has brought nothing for a while is left to itself and another one opened, unless too many hang. Frames
that nobody takes in time are dropped, not queued.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import av
import av.error
from av.device import enumerate_input_devices

from escounts.errors import VideoError
from escounts.video.decoding import (
    CONTAINERS,
    MAX_PIXELS,
    OPEN_OPTIONS,
    RawFrame,
    frame_clock,
    frame_rate,
    picture_stream,
    pictures,
)
from escounts.video.files import Frame, FrameConverter, Video, sampled

QUEUED = 1.0
"""Seconds of frames that may wait to be taken; what comes while they wait is dropped."""
OPENING, STALLED = 15.0, 5.0
"""Seconds without a frame, from a source that is being opened and from one that has brought some, before it is
opened anew."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts to open a source again: twice as long after each that fails."""
MOST_HANGING = 3
"""Readers that hang at a time, each with a thread and a connection; while it is so many, no further one is opened."""
PATIENCE = 2.0
"""How many times as long as we wait for it FFmpeg waits for data: most readers that were left end by themselves."""
CAMERA_FORMATS = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}
"""What FFmpeg calls the cameras of a system, by `sys.platform`."""
ADDRESSES = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps", "rtp", "udp", "tcp", "tls")
"""What an address may begin with."""
STREAM_OPTIONS = {
    **OPEN_OPTIONS,
    # hls is how servers stream; concat, dash and sdp stay out: a server could hand them out as a video.
    "format_whitelist": ",".join((*CONTAINERS, "rtsp", "rtp", "hls")),
    # What addresses need, and none that reads this machine: no file, concat, subfile, data, pipe or unix.
    "protocol_whitelist": "http,https,httpproxy,tcp,tls,udp,rtp,srtp,rtmp,rtmps,crypto",
}
"""FFmpeg's options for addresses. What a live playlist names is opened with the same two lists."""


@dataclass(frozen=True)
class StreamSource:
    """A source, and how FFmpeg opens it. live: it goes on by itself, and is opened again where it breaks off."""

    name: str
    path: str
    live: bool
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def opened(self) -> AbstractContextManager[Any]:
        """The container; raises VideoError that says what is there where the source is not."""
        camera = {"max_pixels": str(MAX_PIXELS)}  # its format is given, and what it opens is a device
        allowed = camera if self.format is not None else STREAM_OPTIONS if self.live else OPEN_OPTIONS
        try:
            container: AbstractContextManager[Any] = av.open(
                self.path,
                format=self.format,
                options={**self.options, **allowed},
                timeout=(PATIENCE * OPENING, PATIENCE * STALLED),
            )
        except (av.error.FFmpegError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if self.format is not None:
                raise VideoError(f"{self.name}: no such camera ({reason}); {_cameras_here(self.format)}") from error
            if isinstance(error, av.error.ArgumentError):
                reason = "a list of other files, or another kind of stream that is not opened"
            raise VideoError(f"{self.name}: cannot be opened: {reason}") from error
        return container


def find_source(source: str | os.PathLike[str] | int) -> StreamSource:
    """A camera's number (0) or device, an address (rtsp://…, http://…), or a file."""
    text = str(source)
    if text.isdecimal() and not Path(text).exists():
        return _camera(int(text))
    if text.startswith("/dev/video"):
        return StreamSource(text, text, live=True, format="v4l2")
    if text.startswith("file://"):
        return StreamSource(text, url2pathname(urlsplit(text).path), live=False)
    if "://" in text:
        if text.partition("://")[0] not in ADDRESSES:
            known = ", ".join(f"{name}://" for name in ADDRESSES)
            raise VideoError(f"{text}: addresses begin with {known}; a file is given by its name")
        options = {"rtsp_transport": "tcp"} if text.startswith(("rtsp://", "rtsps://")) else {}
        return StreamSource(text, text, live=True, options=options)
    return StreamSource(text, text, live=False)


def _camera(number: int) -> StreamSource:
    format_ = CAMERA_FORMATS.get(sys.platform)
    if format_ is None:
        known = ", ".join(CAMERA_FORMATS)
        raise VideoError(f"camera {number}: cameras are known on {known}, not on {sys.platform}; give an address")
    if format_ == "dshow":  # the only one that goes by names
        found = _cameras(format_)
        if number >= len(found):
            raise VideoError(f"camera {number}: no such camera; {_cameras_here(format_)}")
        return StreamSource(f"camera {number}", f"video={found[number][0]}", live=True, format=format_)
    path = f"/dev/video{number}" if format_ == "v4l2" else str(number)
    return StreamSource(f"camera {number}", path, live=True, format=format_)


def _cameras(format_: str) -> list[tuple[str, str]]:
    """(name, description) of each camera that is connected; v4l2's list says of none what it brings."""
    try:
        devices = enumerate_input_devices(format_)
    except (av.error.FFmpegError, OSError, ValueError):
        return []
    return [(device.name, device.description) for device in devices if "video" in (device.media_types or ("video",))]


def _cameras_here(format_: str) -> str:
    found = _cameras(format_)
    if not found:
        return "no camera is connected; a file or an address (rtsp://…, http://…) can be watched instead"
    return "connected: " + ", ".join(f"{name} ({description})" for name, description in found)


@dataclass(frozen=True)
class Gap:
    """Nothing was seen between two times, in seconds."""

    start: float
    end: float
    reason: str


class PushedFrames:
    """Frames that a program brings itself, in its own time; those that nobody takes within a second are dropped.

    >>> frames = PushedFrames()  # one thread: for event in escounts.watch(frames): ...
    >>> frames.push(Frame(time, image))  # another one, as they come; frames.end() when none is left
    """

    def __init__(self, *, rate: float = 30.0) -> None:
        """rate: frames per second that are expected."""
        self.dropped = 0
        self._room = max(1, round(QUEUED * rate))
        self._waiting: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._over = False
        self._began: float | None = None

    def push(self, frame: Frame) -> None:
        """The next frame; dropped where those before it still wait."""
        with self._changed:
            if self._began is None:
                self._began = time.monotonic() - frame.time
            if len(self._waiting) < self._room:
                self._waiting.append(frame)
                self._changed.notify_all()
            else:
                self.dropped += 1

    def end(self) -> None:
        """No more frames come; those that wait are still taken."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def close(self) -> None:
        """No more frames are wanted."""
        with self._changed:
            self._waiting.clear()
        self.end()

    def now(self) -> float:
        """The time on the clock of the frames' times."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def __iter__(self) -> Iterator[Frame]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                if not self._waiting:
                    return
                frame = self._waiting.popleft()
            yield frame


class FrameStream:
    """Iterates over the frames of a source at a fixed rate, and over the gaps in it.

    Times are seconds since the source was opened. A file ends; a camera or a stream that breaks off is opened again,
    for ever. speed: of a file; infinite reads it as fast as its frames are taken, and drops none.
    """

    def __init__(
        self, source: str | os.PathLike[str] | int, *, size: tuple[int, int], rate: float, speed: float = 1.0
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed={speed}: 1 is a file's own speed, 2 twice that; it must be above 0")
        self.source = find_source(source)
        self.dropped = 0
        self._size, self._rate, self._speed = size, rate, speed
        self._items: deque[Frame | Gap | BaseException | None] = deque()
        self._changed = threading.Condition()
        self._attempt = 0
        self._closed = False
        self._began = self._heard = time.monotonic()
        self._frames = 0
        self._last = 0.0  # time of the newest frame
        self._failure: BaseException | None = None
        self._reason = ""
        self._hanging: list[threading.Thread] = []  # readers that were given up
        self._ends_at: float | None = None  # of an address that is a file after all
        self._watchdog = threading.Thread(target=self._watch, name="escounts-watchdog", daemon=True)
        self._watchdog.start()

    def __iter__(self) -> Iterator[Frame | Gap]:
        while True:
            with self._changed:
                while not self._items:
                    self._changed.wait()
                item = self._items.popleft()
                self._changed.notify_all()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """No more frames; the threads end by themselves."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._items.append(None)
            self._changed.notify_all()

    def now(self) -> float:
        """Seconds since the source was opened, on the clock of its frames' times."""
        return (time.monotonic() - self._began) * (self._speed if math.isfinite(self._speed) else 1.0)

    def _watch(self) -> None:
        """Open the source, again where it breaks off or hangs."""
        pause = FIRST_PAUSE
        while not self._closed:
            with self._changed:
                self._attempt += 1
                before = self._frames
                self._heard = time.monotonic()
                self._failure = None
            reader = threading.Thread(target=self._read, args=(self._attempt,), name="escounts-reader", daemon=True)
            reader.start()
            hung = self._wait_for(reader, before)
            if hung:
                self._hanging.append(reader)
            reason = "no frames came" if hung else str(self._failure or "the stream ended")
            if not hung and (not self.source.live or self._complete()):
                self._put(self._failure)
                return
            if self._frames == 0 and not self._closed:  # it has never worked: a mistake, not an outage
                self._put(self._failure or VideoError(f"{self.source.name}: {reason}"))
                return
            pause = FIRST_PAUSE if self._frames > before else min(2 * pause, LONGEST_PAUSE)
            self._reason = reason
            with self._changed:
                self._attempt += 1  # a reader that hangs is not listened to any more
                self._changed.wait_for(lambda: self._closed, timeout=pause)
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Until fewer readers hang, looked at ever less often; whoever waits for frames is told at once."""
        pause, told = FIRST_PAUSE, False
        while not self._closed:
            self._hanging = [reader for reader in self._hanging if reader.is_alive()]
            if len(self._hanging) < MOST_HANGING:
                return
            with self._changed:
                if not told:
                    hang = f"{len(self._hanging)} connections hang; it is opened again when one of them has ended"
                    gap = Gap(self._last, max(self._last, self.now()), hang)
                    self._last, told = gap.end, True
                    self._items.append(gap)
                    self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, timeout=pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _wait_for(self, reader: threading.Thread, before: int) -> bool:
        """Until the reader is done (False), or has brought nothing for too long (True)."""
        while reader.is_alive() and not self._closed:
            reader.join(0.1)
            limit = STALLED if self._frames > before else OPENING
            if self.source.live and time.monotonic() - self._heard > limit:
                return reader.is_alive()
        return False

    def _read(self, attempt: int) -> None:
        """Read the source from its opening to its end, as one attempt among others."""
        try:
            for frame in self._sampled():
                if not self._deliver(frame, attempt):
                    return
        except Exception as error:  # whatever it is, it belongs to whoever waits for frames
            with self._changed:
                if attempt == self._attempt:
                    self._failure = _as_video_error(self.source.name, error)

    def _sampled(self) -> Iterator[Frame]:
        if not self.source.live:
            yield from Video(self.source.path).frames(size=self._size, rate=self._rate)
            return
        with self.source.opened() as container:
            stream = picture_stream(self.source.name, container)
            if container.duration:
                self._ends_at = self._offset() + container.duration / av.time_base
            raw = _raw_frames(container, stream, offset=self._offset())
            first = next(raw, None)
            if first is None:
                return
            convert = FrameConverter(self._size, round(first.picture.rotation / 90) % 4 * 90)
            yield from sampled(chain([first], raw), convert, first.time, None, self._rate)

    def _offset(self) -> float:
        """The time of a connection's first frame: how long the source has been watched."""
        return max(self._last + 1 / self._rate, self.now()) if self._frames else 0.0

    def _complete(self) -> bool:
        """Whether an address has been read to the end that it promised."""
        return self._failure is None and self._ends_at is not None and self._last > self._ends_at - 1.0

    def _deliver(self, frame: Frame, attempt: int) -> bool:
        """Hand a frame over when it is due; whether more are wanted."""
        if self._frames == 0:
            self._began = time.monotonic() - frame.time / self._speed
        self._sleep_until(self._began + frame.time / self._speed, attempt)
        with self._changed:
            if attempt != self._attempt or self._closed:
                return False
            self._heard = time.monotonic()
            if self._frames and frame.time - self._last > 2 / self._rate:
                self._items.append(Gap(self._last, frame.time, self._reason))
            self._frames += 1
            self._last = frame.time
            room = QUEUED * self._rate
            if math.isinf(self._speed):
                self._changed.wait_for(lambda: len(self._items) < room or self._closed)
            if len(self._items) < room:
                self._items.append(frame)
                self._changed.notify_all()
            else:
                self.dropped += 1
            return True

    def _sleep_until(self, due: float, attempt: int) -> None:
        while (left := due - time.monotonic()) > 0 and attempt == self._attempt and not self._closed:
            self._heard = time.monotonic()  # early, not missing
            time.sleep(min(left, 0.2))

    def _put(self, item: Frame | Gap | BaseException | None) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()


def _raw_frames(container: Any, stream: Any, *, offset: float) -> Iterator[RawFrame]:
    """A connection's frames, the first at `offset` seconds, on a clock that never runs backwards."""
    stream.thread_type = "SLICE"  # threads per frame would hold several frames back
    length, clock = 1.0 / frame_rate(stream), None
    for picture in pictures(container, stream):
        seconds = None if picture.pts is None else float(picture.pts * picture.time_base)
        clock = clock or frame_clock(seconds or 0.0, length)
        yield RawFrame(offset + clock(seconds), length, picture)


def _as_video_error(name: str, error: Exception) -> BaseException:
    if isinstance(error, VideoError):
        return error
    if isinstance(error, (av.error.FFmpegError, OSError)):
        return VideoError(f"{name}: {error.strerror or error}")
    return error
