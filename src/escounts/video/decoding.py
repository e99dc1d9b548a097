"""Raw decoded frames with their time, from a file or from a folder of images (PyAV)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error

from escounts.errors import VideoError
from escounts.system.arrays import Image
from escounts.video import IMAGE_SUFFIXES

MAX_PIXELS = 2**27
"""16K UHD is just below; a larger header is a mistake or an attack, and is refused before allocating."""
MAX_GAP = 60.0
"""A longer jump between two frames (seconds) is a broken clock, not a pause; no frame is shown for longer."""
NEW_STREAMS = 64
"""So many times another stream may appear while a file is read; more is an attack."""
CONTAINERS = (
    *("mov", "mp4", "matroska", "webm", "avi", "mpegts", "mpeg", "flv", "asf", "ogg", "gif", "apng", "mxf", "nut"),
    *("dv", "rm", "wtv", "ivf", "yuv4mpegpipe", "h264", "hevc", "av1", "obu", "vvc", "m4v", "mpegvideo", "mjpeg"),
    *("h263", "vc1", "dirac", "mpjpeg", "image2", "bmp_pipe", "jpeg_pipe", "png_pipe", "ppm_pipe"),
    *("pgm_pipe", "tiff_pipe", "webp_pipe", "gif_pipe", "wav", "mp3", "flac", "aac"),
)
"""FFmpeg's names of what is opened; sound only to say that it is sound. Playlists (hls, dash, concat, sdp) are not
among them: they make FFmpeg read files that nobody named."""
_ATTACHED_PICTURE = 1024
_LENIENT: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
"""Titles in broken encodings are nobody's concern; PyAV has no such option any more from version 19 on."""
OPEN_OPTIONS = {
    "protocol_whitelist": "file",
    "format_whitelist": ",".join(CONTAINERS),
    "pattern_type": "none",  # a % in an image's name is a %, and no other files are read for it
    "max_pixels": str(MAX_PIXELS),
}
DEFAULT_RATE = 25.0
"""Frames a second where nothing says it: raw streams and folders of images."""


@dataclass(frozen=True)
class RawFrame:
    """A decoded frame, still in the codec's pixel format. Both times in seconds."""

    time: float
    duration: float
    picture: Any


@dataclass(frozen=True)
class ReadyPicture:
    """A picture that is an image of the wanted size already; pts and duration in units of time_base."""

    pts: int
    time_base: Fraction
    duration: int
    image: Image


@dataclass(frozen=True)
class Probe:
    """What the header and the first two frames say. width and height as coded, before rotation."""

    width: int
    height: int
    rotation: int
    fps: float
    duration: float
    codec: str
    complete: bool
    """True where the container promises its duration, so that a shorter read means a truncated file."""


def checked_size(path: Path, width: int, height: int) -> None:
    """Refuse a picture nobody can have meant, before a decoder allocates it."""
    if width <= 0 or height <= 0:
        raise VideoError(f"{path}: the header says {width}x{height} pixels; the file is damaged or no video")
    if width * height > MAX_PIXELS:
        raise VideoError(f"{path}: {width}x{height} pixels are too many (up to {MAX_PIXELS:,} in all)")


class FileSource:
    """Any file FFmpeg reads: movie containers, raw streams, animated GIF."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        self.path = path
        self.threads = threads or decoding_threads()

    def probe(self) -> Probe:
        with self._opened(threads=1) as (container, stream):
            first, second = self._first_two(container, stream)
            self._fps = frame_rate(stream)
            timed = first.pts is not None
            self._origin = float(first.pts * first.time_base) if timed else 0.0
            self._timed = timed
            mov = "mov" in container.format.name
            width, height = first.width, first.height
            rotation = round(first.rotation / 90) % 4 * 90
            duration = self._header_duration(container, stream) if timed else None
            codec = stream.codec_context.name
        del second
        if duration is None:
            duration, mov = self._scanned_duration(), False
        checked_size(self.path, width, height)
        return Probe(width, height, rotation, self._fps, duration, codec, complete=mov)

    def frames(self, start: float = 0.0) -> Iterator[RawFrame]:
        """Frames from the last one shown at `start` (or earlier: the caller drops them) to the end."""
        if start > 1.0 and self._timed:
            frames = self._decode(seek_to=start)
            first = next(frames, None)
            if first is not None and first.time <= start:
                yield first
                yield from frames
                return
        yield from self._decode(seek_to=None)  # no index, or a seek that landed behind: from the beginning

    def still(self) -> Any:
        """The first picture, for image files."""
        with self._opened(threads=1) as (container, stream):
            picture = next(pictures(container, stream), None)
        if picture is None:
            raise VideoError(f"{self.path}: the image cannot be decoded")
        return picture

    def _decode(self, seek_to: float | None) -> Iterator[RawFrame]:
        with self._opened(threads=self.threads) as (container, stream):
            if seek_to is not None:
                try:
                    container.seek(int((seek_to + self._origin) / stream.time_base), stream=stream)
                except (av.error.FFmpegError, OSError):
                    return
            clock = frame_clock(self._origin, 1.0 / self._fps)
            for frame in self._pictures(container, stream):
                base = frame.time_base  # a Fraction made anew at every look: its arithmetic takes ten times as long
                seconds = None if frame.pts is None else frame.pts * base.numerator / base.denominator
                time = clock(seconds)
                length = frame.duration * base.numerator / base.denominator if frame.duration else 1.0 / self._fps
                yield RawFrame(time, min(length, MAX_GAP), frame)

    def _pictures(self, container: Any, stream: Any) -> Iterator[Any]:
        return pictures(container, stream)

    def _first_two(self, container: Any, stream: Any) -> tuple[Any, Any]:
        decoded = pictures(container, stream)
        first, second = next(decoded, None), next(decoded, None)
        if first is None and _animated_webp(self.path):
            raise VideoError(f"{self.path}: an animated WebP, which FFmpeg does not read; convert it to GIF or MP4")
        if first is None and not stream.codec_context.width:
            raise VideoError(f"{self.path}: no usable picture size: none, or more than {MAX_PIXELS:,} pixels")
        if first is None:
            raise VideoError(f"{self.path}: no frame can be decoded ({stream.codec_context.name}); damaged?")
        if second is None:
            raise VideoError(f"{self.path}: only one frame; nothing can repeat in a still picture")
        return first, second

    @contextmanager
    def _opened(self, *, threads: int) -> Iterator[tuple[Any, Any]]:
        try:
            # "file:" keeps a colon in a name from being taken for a protocol.
            container = av.open(
                f"file:{self.path}",
                options=OPEN_OPTIONS,
                **_LENIENT,
            )
        except av.error.ArgumentError as error:
            raise VideoError(
                f"{self.path}: a playlist, or another kind of file that is not opened; a video itself is: "
                f"{', '.join(CONTAINERS[:10])} …"
            ) from error
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise VideoError(f"{self.path}: {_reason(self.path, error)}") from error
        with container:
            stream = picture_stream(self.path, container)
            if stream.codec_context is None:
                raise VideoError(f"{self.path}: FFmpeg has no decoder for its codec; convert it to h264 first")
            # The header's size; 0 here may still become known with the first frame.
            if stream.codec_context.width or stream.codec_context.height:
                checked_size(self.path, stream.codec_context.width, stream.codec_context.height)
            stream.thread_type = "AUTO"
            stream.codec_context.thread_count = threads
            try:
                yield container, stream
            except av.error.FFmpegError as error:
                raise VideoError(f"{self.path}: {_reason(self.path, error)}") from error

    def _header_duration(self, container: Any, stream: Any) -> float | None:
        """Seconds by the header; the shorter of two: an edit list may trim, sound may run on."""
        known = []
        if stream.duration:
            known.append(float(stream.duration * stream.time_base))
        if container.duration:
            known.append(container.duration / av.time_base)
        sane = [seconds for seconds in known if seconds > 0]
        return min(sane) if sane else None

    def _scanned_duration(self) -> float:
        """Read all packets, decode none: where headers do not say how long the video is."""
        last, packets = 0.0, 0
        with self._opened(threads=1) as (container, stream):
            for packet in stream_packets(container, stream):
                if packet.size == 0:
                    continue
                packets += 1
                if self._timed and packet.pts is not None:
                    end = (packet.pts + (packet.duration or 0)) * packet.time_base
                    last = max(last, float(end) - self._origin)
        return last if last > 0 else packets / self._fps


class ImageFolder:
    """The images of a folder in the order of their names (2 before 10), at a fixed rate."""

    def __init__(self, path: Path, *, rate: float = DEFAULT_RATE) -> None:
        self.path = path
        self.rate = rate
        self.images = image_files(path)

    def probe(self) -> Probe:
        if len(self.images) < 2:
            raise VideoError(f"{self.path}: {len(self.images)} images; a folder of images needs two or more")
        first = self._read(self.images[0])
        return Probe(first.width, first.height, 0, self.rate, len(self.images) / self.rate, "images", complete=False)

    def frames(self, start: float = 0.0) -> Iterator[RawFrame]:
        first = max(0, int(start * self.rate))
        for index in range(first, len(self.images)):
            yield RawFrame(index / self.rate, 1.0 / self.rate, self._read(self.images[index]))

    def _read(self, image: Path) -> Any:
        return FileSource(image, threads=1).still()


def usable_cores() -> int:
    """Cores that this process may run on: a container or `taskset` may leave it fewer than the machine has, and two
    decoding threads on one core cost a sixth more than one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decoding_threads() -> int:
    """Threads of a decoder unless told otherwise: a core is left to whoever takes the frames.

    On two cores a minute of 720p takes `lite` 3.1 processor seconds and 2.2 on the wall with one thread here and one
    of the scaler; with two and two, which take turns and wait for one another, 3.8 and 2.8.
    """
    return max(1, min(usable_cores() - 1, 8))


def scaling_threads() -> int:
    """Threads of a scaler unless told otherwise; a picture is a fifth of a millisecond's work."""
    return max(1, min(usable_cores() // 2, 4))


def frame_clock(origin: float, step: float) -> Callable[[float | None], float]:
    """From each frame's stamp in seconds (None where it has none) to its time: seconds from the first frame that
    never run backwards, whatever the file's own stamps do."""
    last: float | None = None

    def at(seconds: float | None) -> float:
        nonlocal origin, last
        if last is None:
            now = 0.0 if seconds is None else seconds - origin
        else:
            now = last + step if seconds is None else seconds - origin
            if not last < now <= last + MAX_GAP:
                now = last + step
                if seconds is not None:
                    origin = seconds - now
        last = now
        return now

    return at


def image_files(folder: Path) -> list[Path]:
    """The images directly inside a folder, in natural order of their names."""
    try:
        found = [entry for entry in folder.iterdir() if entry.suffix.lower() in IMAGE_SUFFIXES]
    except OSError as error:
        raise VideoError(f"{folder}: {error.strerror or error}") from error
    return sorted(found, key=lambda entry: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", entry.name)])


def stream_packets(container: Any, stream: Any) -> Iterator[Any]:
    """The stream's packets. PyAV raises IndexError at the first packet of a stream that was not there when reading
    began (sound that begins later): reading goes on behind that packet."""
    for _ in range(NEW_STREAMS):
        try:
            yield from container.demux(stream)
            return
        except IndexError:
            continue


def pictures(container: Any, stream: Any) -> Iterator[Any]:
    """Decoded pictures; damaged packets are skipped, as players do."""
    try:
        for packet in stream_packets(container, stream):
            try:
                yield from packet.decode()
            except av.error.EOFError:
                return
            except (av.error.InvalidDataError, av.error.PatchWelcomeError):
                continue
    except av.error.EOFError:
        return
    except av.error.InvalidDataError:
        return  # the container ends in rubbish: what was read so far stands


def picture_stream(path: Path | str, container: Any) -> Any:
    """The first stream that is a moving picture: a song's cover is none, nor is the still of an animated AVIF."""
    streams = [s for s in container.streams.video if not int(s.disposition) & _ATTACHED_PICTURE]
    if streams:
        return next((stream for stream in streams if stream.frames != 1), streams[0])
    sound = len(container.streams.audio) > 0
    raise VideoError(f"{path}: " + ("sound only, no picture to count in" if sound else "no video stream in it"))


def _animated_webp(path: Path) -> bool:
    """By its header: the first chunk says that there is an animation."""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(21).ljust(21, b"\0")
        return head[:4] == b"RIFF" and head[8:16] == b"WEBPVP8X" and bool(head[20] & 2)
    return False


def frame_rate(stream: Any) -> float:
    for rate in (stream.average_rate, stream.guessed_rate):
        if rate and 0.01 <= float(rate) <= 1000.0:
            return float(rate)
    return DEFAULT_RATE


def _reason(path: Path, error: Exception) -> str:
    """One line for a person, from FFmpeg's error."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
        # PyAV fills errno or only the arguments, depending on where it failed.
        number = error.errno or next((value for value in error.args if isinstance(value, int)), 0)
        return os.strerror(number).lower() if number else str(error)
    if path.is_file() and path.stat().st_size == 0:
        return "the file is empty"
    if isinstance(error, (av.error.InvalidDataError, av.error.EOFError)):
        return "no video FFmpeg can read: another kind of file (a playlist, a text), or cut off before its index"
    if isinstance(error, (av.error.ArgumentError, av.error.MemoryError)):
        return f"the decoder refuses the picture: damaged, or more than {MAX_PIXELS:,} pixels"
    return str(getattr(error, "strerror", None) or error).split("\n")[0]
