"""mp4: the video with the running count drawn in (at most 1280 pixels on its longer side), with its sound.

And any pictures to a video file (`write_movie`): H.264 (or else MPEG-4) in an mp4 that starts before it is all there.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np

from escounts.errors import OutputError
from escounts.results import CountResult
from escounts.system.arrays import Image
from escounts.system.atomic_files import atomic_file
from escounts.system.extras import install_command
from escounts.video.decoding import OPEN_OPTIONS, stream_packets
from escounts.video.files import Video, VideoInfo
from escounts.video.regions import region

LONGEST_SIDE = 1280
HIGHEST_RATE = 30.0
Sound = tuple[Path, float, float]
"""The sound of a video file between two times, in seconds from its first frame."""
Colour = tuple[int, int, int]
COLOURS: tuple[Colour, ...] = ((217, 119, 43), (47, 111, 181), (46, 139, 87), (142, 68, 173))
"""Orange, as in the picture and on the page; and one for each further place."""
Draw = Callable[[Image, float, bool], None]
"""Draws onto the frame of a time (seconds), an RGB image, in place; the last one shows the final count, however
long a frame of a slow video lasts."""
BORDER = 2
"""Pixels of a region's outline at least."""
TRIED_PACKETS = 8
"""Packets of sound that are written for trial, to find out whether an mp4 takes them."""


def write(
    result: CountResult,
    path: Path,
    *,
    video: Path | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> None:
    """Encode the counted range with the number of completed repetitions in a corner. Needs the [plot] extra.

    All of the picture is shown; a region that was counted has an outline, and each of several places its own number.
    The sound is copied as it is where an mp4 takes its codec, and left out where not. progress is called with the
    seconds drawn and in all.
    """
    if video is None:
        raise OutputError(f"{path}: mp4 needs the video itself")
    if find_spec("PIL") is None:
        raise OutputError(f"{path}: mp4 needs pillow; install it with: {install_command('plot')}")
    source = Video(video)
    scale = min(1.0, LONGEST_SIDE / max(source.info.width, source.info.height))
    width, height = even_size(source.info.width * scale, source.info.height * scale)
    rate = Fraction(min(source.info.fps, HIGHEST_RATE)).limit_denominator(1001)
    first, last = result.range
    drawn = overlays(result, source.info, scale)

    def images() -> Iterator[Image]:
        frames = source.frames(size=(width, height), start=first, end=last, rate=float(rate))
        frame = next(frames, None)
        while frame is not None:
            following = next(frames, None)
            image = frame.image.copy()
            for draw in drawn:
                draw(image, frame.time, following is None)
            yield image
            if progress is not None:
                progress(frame.time - first, last - first)
            frame = following

    write_movie(
        path,
        images(),
        size=(width, height),
        rate=rate,
        options={"crf": "23", "preset": "veryfast"},
        sound=None if video.is_dir() else (video, first, last),
    )


def _progress(result: CountResult, time: float) -> float:
    """How far the repetition on screen is, 0..1; 0 between repetitions."""
    index = bisect_right(result.repetitions, time, key=lambda repetition: repetition.start) - 1
    if index < 0 or time >= result.repetitions[index].end:
        return 0.0
    repetition = result.repetitions[index]
    return (time - repetition.start) / (repetition.end - repetition.start)


def overlays(result: CountResult, info: VideoInfo, scale: float) -> list[Draw]:
    """What draws each place, or the result where there is one place. scale: pixels for one of the video."""
    parts = [result]
    if len(result.tracks) > 1:
        parts = [
            replace(result, count=one.count, repetitions=one.repetitions, region=one.region, tracks=())
            for one in result.tracks
        ]
    return [_overlay(part, info, scale, colour) for part, colour in zip(parts, cycle(COLOURS))]


def _overlay(result: CountResult, info: VideoInfo, scale: float, colour: Colour) -> Draw:
    """Draws a result's number, and the border of its region."""
    whole = (0, 0, info.width, info.height)
    box = whole if result.region is None else region("region", result.region).box(info.width, info.height)
    left, top, right, low = (round(scale * side) for side in (box[0], box[1], box[0] + box[2], box[1] + box[3]))
    note = "" if result.machine is None else f"corrected · model {result.machine.count}"
    badge, times = Badge(round(scale * info.height), note=note), result.counting_times

    def draw(image: Image, time: float, last: bool) -> None:
        inside = image[top:low, left:right]
        if result.region is not None:
            border = max(BORDER, inside.shape[0] // 200)
            inside[:border] = inside[-border:] = inside[:, :border] = inside[:, -border:] = colour
        number = result.count if last else bisect_right(times, time)
        badge.draw(inside, number, _progress(result, time), colour)

    return draw


class Badge:
    """A dark box in the upper left corner with the number, a note under it, a bar that fills during a repetition."""

    def __init__(self, height: int, *, note: str = "") -> None:
        from PIL import ImageFont  # noqa: PLC0415 - the extra [plot]

        self._size = max(18, height // 7)
        self._font = ImageFont.load_default(self._size)
        self._note = note
        self._small_size = max(10, self._size // 4)
        self._small = ImageFont.load_default(self._small_size)
        self._drawn: dict[int, Image] = {}

    def draw(self, image: Image, number: int, progress: float, colour: Colour = COLOURS[0]) -> None:
        """Draw onto an RGB image in place."""
        if number not in self._drawn:
            self._drawn = {number: self._box(number)}
        box = self._drawn[number]
        margin = self._size // 3
        height = min(box.shape[0], image.shape[0] - margin)
        width = min(box.shape[1], image.shape[1] - margin)
        if height <= 0 or width <= 0:
            return
        corner = image[margin : margin + height, margin : margin + width]
        alpha = box[:height, :width, 3:].astype(np.uint16)
        corner[:] = (box[:height, :width, :3] * alpha + corner * (255 - alpha)) // 255
        bar = max(2, self._size // 12)
        corner[height - bar :, : round(width * progress)] = colour

    def _box(self, number: int) -> Image:
        from PIL import Image as Picture  # noqa: PLC0415 - the extra [plot]
        from PIL import ImageDraw  # noqa: PLC0415 - the extra [plot]

        pad = self._size // 4
        wide = max(self._font.getlength(str(number)), self._small.getlength(self._note))
        below = int(self._small_size * 1.4) if self._note else 0
        width, height = int(wide) + 2 * pad, int(self._size * 0.8) + 2 * pad
        box = Picture.new("RGBA", (max(width, height), height + below), (16, 22, 30, 190))
        middle = (box.width / 2, height / 2 - self._size / 24)
        drawing = ImageDraw.Draw(box)
        drawing.text(middle, str(number), font=self._font, fill=(255, 255, 255, 255), anchor="mm")
        if self._note:
            place = (box.width / 2, height + below / 3)
            drawing.text(place, self._note, font=self._small, fill=(255, 255, 255, 255), anchor="mm")
        return np.asarray(box)


def even_size(width: float, height: float) -> tuple[int, int]:
    """The nearest width and height that are even and not 0, as codecs with halved colours want them."""
    return max(2, round(width / 2) * 2), max(2, round(height / 2) * 2)


def writes_h264() -> bool:
    """Whether this FFmpeg encodes H.264, which browsers play; they do not play the MPEG-4 written without it."""
    return "libx264" in av.codecs_available


def write_movie(
    path: Path,
    images: Iterable[Image],
    *,
    size: tuple[int, int],
    rate: Fraction,
    options: dict[str, str],
    sound: Sound | None = None,
) -> None:
    """Write RGB images (height, width, 3) as a video, whole or not at all.

    size: (width, height), both even. rate: images per second. options: of the encoder libx264 (crf, preset …);
    where FFmpeg was built without it (see writes_h264), MPEG-4 is written at its own settings: players show it,
    browsers do not. sound: copied beside the pictures, packet by packet, where an mp4 takes its codec.
    """
    codec = "libx264" if writes_h264() else "mpeg4"
    with atomic_file(path) as partial, ExitStack() as opened:
        try:
            source = _source_of(sound, opened)
            with av.open(str(partial), "w", format="mp4", options={"movflags": "+faststart"}) as container:
                stream: Any = container.add_stream(codec, rate=rate, options=options if codec == "libx264" else {})
                stream.width, stream.height = size
                stream.pix_fmt = "yuv420p"
                packets = _copied(source, sound, container) if source is not None and sound is not None else None
                waiting = next(packets, None) if packets is not None else None
                for index, image in enumerate(images):
                    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
                    container.mux(stream.encode(frame))
                    while packets is not None and waiting is not None and _seconds(waiting) <= index / rate:
                        container.mux(waiting)
                        waiting = next(packets, None)
                container.mux(stream.encode(None))
                if packets is not None and waiting is not None:
                    container.mux([waiting, *packets])
        except av.error.FFmpegError as error:
            raise OSError(error.errno, error.strerror) from error


def _source_of(sound: Sound | None, opened: ExitStack) -> Any | None:
    """The opened file whose sound can be copied into an mp4; None without sound, or where an mp4 does not take it."""
    if sound is None:
        return None
    try:
        for trial in (True, False):  # the first packets say whether it works, into a file that nobody keeps
            source = opened.enter_context(av.open(f"file:{sound[0]}", options=OPEN_OPTIONS))
            if not source.streams.audio:
                return None
            if trial:
                with av.open(io.BytesIO(), "w", format="mp4") as target:
                    target.mux(list(islice(_copied(source, sound, target), TRIED_PACKETS)))
    except (av.error.FFmpegError, ValueError):
        return None  # the picture can be shown all the same
    return source


def _copied(source: Any, sound: Sound, target: Any) -> Iterator[Any]:
    """Packets of the first audio stream inside the stretch, with times from its start, for a stream of `target`."""
    audio = source.streams.audio[0]
    copy = target.add_stream_from_template(audio)
    pictures = source.streams.video[0] if source.streams.video else audio
    origin = float((pictures.start_time or 0) * pictures.time_base)
    _, start, end = sound
    return _packets(source, audio, copy, origin + start, origin + end)


def _packets(source: Any, audio: Any, copy: Any, first: float, last: float) -> Iterator[Any]:
    shift = round(first / audio.time_base)
    written = None
    try:
        if first > 1.0:
            source.seek(shift, stream=audio)
        for packet in stream_packets(source, audio):
            stamped = packet.size > 0 and packet.pts is not None and packet.dts is not None
            if not stamped or _seconds(packet) < first or (written is not None and packet.dts <= written):
                continue
            if _seconds(packet) >= last:
                return
            written = packet.dts
            packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
            packet.stream = copy
            yield packet
    except av.error.FFmpegError:
        return  # damaged from here on: the sound ends, the picture goes on


def _seconds(packet: Any) -> float:
    return float(packet.pts * packet.time_base)
