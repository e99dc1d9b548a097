"""`Video`: frames with their time from a file, a GIF or a folder of images, in bounded memory."""

from __future__ import annotations

import copy
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from escounts.errors import VideoError
from escounts.system.arguments import checked, number, optional, path, positive, whole
from escounts.system.arrays import Image
from escounts.system.atomic_files import file_state
from escounts.video import VIDEO_SUFFIXES
from escounts.video.decoding import (
    DEFAULT_RATE,
    FileSource,
    ImageFolder,
    Probe,
    RawFrame,
    ReadyPicture,
    image_files,
    scaling_threads,
)
from escounts.video.regions import Box, Crop, Region, coded_box, cropper, region

_SCALER_TAKES_THREADS = "threads" in (VideoReformatter.reformat.__doc__ or "")
"""Older versions of PyAV scale with one thread, newer ones with as many as there are cores unless told."""


@dataclass(frozen=True)
class VideoInfo:
    """What is known of a video before it is read: size in pixels after rotation, times in seconds.

    region: the box of the picture that alone is looked at, whose size width and height then are; None for all of it.
    """

    path: Path
    width: int
    height: int
    fps: float
    duration: float
    rotation: int
    codec: str
    region: Box | None = None


@dataclass(frozen=True)
class Frame:
    """time: seconds from the first frame of the video. image: height x width x 3, uint8, RGB."""

    time: float
    image: Image


class Source(Protocol):
    """Where a video's frames come from."""

    def probe(self) -> Probe:
        """What is known before all is read; raises VideoError where there is nothing to count."""
        ...

    def frames(self, start: float = 0.0) -> Iterator[RawFrame]:
        """Frames in order, from the one on screen at `start` seconds or an earlier one."""
        ...


class Video:
    """A video that can be read again and again; opening it checks that there is something to count in it.

    >>> for frame in Video("squats.mp4").frames(size=(64, 64), rate=10):
    ...     print(frame.time, frame.image.shape)
    """

    @checked(path=path, threads=optional(whole), image_rate=positive, max_duration=optional(positive))
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        image_rate: float = DEFAULT_RATE,
        max_duration: float | None = None,
    ) -> None:
        """threads: of the decoder, and of the scaler; None: so many that cores are left to whoever takes the frames.
        image_rate: frames a second in a folder of images.

        max_duration: seconds; a longer video is a VideoError, by its header now or by its frames once they are read.
        """
        self.path = Path(path)
        self._max_duration, self._threads = max_duration, threads
        folder = _is_folder(self.path)
        self._state = None if folder else file_state(self.path)
        self._use(ImageFolder(self.path, rate=image_rate) if folder else self._file(threads))

    def _use(self, source: Source) -> None:
        """Read from a source of frames from now on."""
        self._source = source
        probe = source.probe()
        self._complete = probe.complete
        turned = probe.rotation in (90, 270)
        self.info = VideoInfo(
            path=self.path,
            width=probe.height if turned else probe.width,
            height=probe.width if turned else probe.height,
            fps=probe.fps,
            duration=probe.duration,
            rotation=probe.rotation,
            codec=probe.codec,
        )
        self._picture = (self.info.width, self.info.height)
        self._check_duration(probe.duration)

    @checked(region=region)
    def cropped(self, region: str | Sequence[float] | Region) -> Video:
        """The same video with a box for its picture; a box of a box is one of the whole picture.

        region: x, y, width and height of the upright picture, in pixels or ("25%,0%,50%,100%") in percent.

        >>> Video("two_people.mp4").cropped("0%,0%,50%,100%").info.width
        """
        assert isinstance(region, Region)
        box = region.box(*self._picture)
        inside = copy.copy(self)
        inside.info = replace(self.info, width=box[2], height=box[3], region=box)
        return inside

    @checked(rate=optional(number), every=optional(whole))
    def frames(
        self,
        *,
        size: tuple[int, int] | None = None,
        start: float = 0.0,
        end: float | None = None,
        rate: float | None = None,
        every: int | None = None,
    ) -> Iterator[Frame]:
        """Frames shown between start and end (seconds).

        size: (width, height) the whole frame is squashed to, area-averaged; the video's own size when None.
        rate: the k-th frame is the one on screen at start + (k + 0.5) / rate, and that instant is its time;
        a frame shown longer than 1 / rate comes again. Right for variable frame rates. every: each n-th
        frame as it was recorded, with its own time. Neither: every frame. Only frames that are used are
        converted; one is held at a time.
        """
        if rate is not None and every is not None:
            raise ValueError(f"give rate or every, not both (rate={rate}, every={every})")
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise ValueError(f"rate={rate}: a rate is a number of frames a second above 0")
        if every is not None and every < 1:
            raise ValueError(f"every={every}: 1 is every frame, 2 every second one")
        if start < 0 or (end is not None and end <= start):
            raise ValueError(f"start={start}, end={end}: seconds with 0 <= start < end are needed")
        size = size or (self.info.width, self.info.height)
        convert = FrameConverter(size, self.info.rotation, threads=self._threads, crop=self.crop())
        raw = self._checked(self._raw(start, convert.coded), end)
        frames = sampled(raw, convert, start, end, rate) if rate is not None else None
        return self._unchanged(frames or _recorded(raw, convert, start, end, every or 1))

    def _unchanged(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The same frames; a file that somebody wrote to meanwhile is an error once they are all read."""
        yield from frames
        now = None
        with suppress(OSError):  # it is gone
            now = self._state and file_state(self.path)
        if now != self._state:
            raise VideoError(f"{self.path}: it was changed while it was read; count it again when nobody writes it")

    def crop(self) -> Crop | None:
        """Cuts out of a decoded picture what is looked at; None where that is all of it."""
        if self.info.region is None:
            return None
        turned = self.info.rotation in (90, 270)
        box = coded_box(self.info.region, self._picture, self.info.rotation)
        return cropper(box, self._picture[::-1] if turned else self._picture)

    def raw_frames(self, start: float, end: float | None) -> Iterator[RawFrame]:
        """Decoded frames as they are, from the one on screen at `start` or an earlier one."""
        return self._checked(self._raw(start, self._picture), end)

    def _file(self, threads: int | None) -> FileSource:
        return FileSource(self.path, threads=threads)

    def _raw(self, start: float, coded: tuple[int, int]) -> Iterator[RawFrame]:
        """Raw frames for a converter that makes images of this size (width, height) of them."""
        return self._source.frames(start)

    def _checked(self, frames: Iterator[RawFrame], end: float | None) -> Iterator[RawFrame]:
        """The same frames; a file that breaks off long before its promised end is an error."""
        read_to = 0.0
        for frame in frames:
            self._check_duration(frame.time)
            read_to = max(read_to, frame.time + frame.duration)
            yield frame
        wanted = self.info.duration if end is None else min(end, self.info.duration)
        if self._complete and read_to < wanted - max(1.0, 0.05 * self.info.duration):
            raise VideoError(
                f"{self.path}: truncated: breaks off at {read_to:.1f} s of {self.info.duration:.1f} s; "
                f"count what is there with --to {read_to:.1f} (end={read_to:.1f} in Python)"
            )

    def _check_duration(self, seconds: float) -> None:
        """Headers may say anything: the frames' own times are held against the limit, too."""
        if self._max_duration is not None and seconds > self._max_duration:
            raise VideoError(
                f"{self.path}: lasts {seconds:.0f} s or more; up to {self._max_duration:.0f} s are taken. Cut it, or "
                "ask for a longer limit (--max-duration)"
            )


def _recorded(
    raw: Iterator[RawFrame], convert: FrameConverter, start: float, end: float | None, every: int
) -> Iterator[Frame]:
    shown = (f for f in raw if f.time + f.duration > start + 1e-9)
    for index, frame in enumerate(shown):
        if end is not None and frame.time >= end:
            return
        if index % every == 0:
            yield Frame(frame.time, convert(frame.picture))


def sampled(
    raw: Iterator[RawFrame], convert: Callable[[Any], Any], start: float, end: float | None, rate: float
) -> Iterator[Frame]:
    """The frame on screen at the middle of every 1 / rate: each raw frame lasts until the next one."""
    stop = math.inf if end is None else end
    current: RawFrame | None = None
    index, time = 0, start + 0.5 / rate
    for following in raw:
        if current is not None and time < min(following.time, stop):
            image = convert(current.picture)
            while time < min(following.time, stop):
                yield Frame(time, image)
                index += 1
                time = start + (index + 0.5) / rate
        current = following
        if time >= stop:
            return
    if current is not None and time < min(stop, current.time + current.duration):
        image = convert(current.picture)
        while time < min(stop, current.time + current.duration):
            yield Frame(time, image)
            index += 1
            time = start + (index + 0.5) / rate


class FrameConverter:
    """Decoded picture → RGB image of one size, upright; transparent pixels become black.

    threads: of the scaler, `scaling_threads()` when None; the pixels are the same. crop: cuts out what alone is
    converted.
    """

    def __init__(
        self, size: tuple[int, int], rotation: int, *, threads: int | None = None, crop: Crop | None = None
    ) -> None:
        width, height = size
        if width < 1 or height < 1:
            raise ValueError(f"size={size}: width and height in pixels, 1 or more")
        self.coded = (height, width) if rotation in (90, 270) else (width, height)
        self._quarter_turns, self._crop = rotation // 90, crop
        self._reformatter = VideoReformatter()
        self._options = {"threads": threads or scaling_threads()} if _SCALER_TAKES_THREADS else {}

    def __call__(self, picture: Any) -> Image:
        image = picture.image if isinstance(picture, ReadyPicture) else self._scaled(picture)
        return np.ascontiguousarray(np.rot90(image, self._quarter_turns)) if self._quarter_turns else image

    def _scaled(self, picture: Any) -> Image:
        picture = picture if self._crop is None else self._crop(picture)
        alpha = has_alpha(picture.format)
        try:
            small = self._reformatter.reformat(
                picture,
                width=self.coded[0],
                height=self.coded[1],
                format="rgba" if alpha else "rgb24",
                interpolation=Interpolation.AREA,
                **self._options,
            )
        except (av.error.FFmpegError, ValueError) as error:
            raise VideoError(f"a frame cannot be converted from {picture.format.name}: {error}") from error
        image: Image = np.asarray(small.to_ndarray(), np.uint8)
        if alpha:
            opaque = image[..., 3:].astype(np.uint16)
            image = (image[..., :3] * opaque // 255).astype(np.uint8)
        return image


def has_alpha(pixel_format: Any) -> bool:
    """Whether pictures of this format may be transparent."""
    return pixel_format.name == "pal8" or any(component.is_alpha for component in pixel_format.components)


def _is_folder(path: Path) -> bool:
    """True for a folder, False for a file; anything else (a pipe, a device, a loop of links) is a VideoError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise VideoError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise VideoError(f"{path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise VideoError(f"{path}: a pipe or a device, not a file; save the video to a file first")
    return stat.S_ISDIR(mode)


def video_files(folder: Path) -> list[Path]:
    """Every video below a folder, sorted by name; folders that hold only images count as one video each.

    Pipes and devices with a video's name are left out.
    """
    found: list[Path] = []
    for directory, subfolders, names in os.walk(folder):
        subfolders.sort()
        here = Path(directory)
        named = sorted(here / name for name in names if Path(name).suffix.lower() in VIDEO_SUFFIXES)
        videos = [path for path in named if os.path.isfile(path) or not os.path.exists(path)]
        found += videos
        if not videos and len(image_files(here)) > 1:
            found.append(here)
    return found


def jpeg_reader(size: int, *, max_pixels: int) -> Callable[[float, bytes], Frame]:
    """From a time in seconds and a JPEG picture to the frame as the model wants it; VideoError for anything else, and
    for more pixels than `max_pixels`."""
    codec: Any = av.CodecContext.create("mjpeg", "r")
    codec.thread_count = 1
    codec.options = {"max_pixels": str(max_pixels)}
    convert = FrameConverter((size, size), 0)

    def read(seconds: float, data: bytes) -> Frame:
        try:
            pictures = codec.decode(av.Packet(data))
        except (av.error.FFmpegError, ValueError) as error:
            raise VideoError(f"the frame at {seconds:.2f} s is not a JPEG picture that can be read") from error
        if len(pictures) != 1:
            raise VideoError(f"the frame at {seconds:.2f} s holds {len(pictures)} pictures; send one JPEG each")
        return Frame(seconds, convert(pictures[0]))

    return read
