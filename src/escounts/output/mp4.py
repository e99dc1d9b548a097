"""mp4: the video with the running count drawn in (at most 1280 pixels on its longer side), with its sound."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from escounts.arrays import Image
from escounts.errors import OutputError
from escounts.extras import install_command
from escounts.movie_files import Sound, write_movie
from escounts.results import CountResult
from escounts.video import Video

LONGEST_SIDE = 1280
HIGHEST_RATE = 30.0


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """Encode the counted range with the number of completed repetitions in a corner. Needs the [plot] extra.

    The sound is copied as it is where an mp4 takes its codec, and left out where not.
    """
    if video is None:
        raise OutputError(f"{path}: mp4 needs the video itself")
    try:
        from PIL import Image as _pillow  # noqa: F401, PLC0415 - the extra [plot]
    except ImportError as error:
        raise OutputError(f"{path}: mp4 needs pillow; install it with: {install_command('plot')}") from error
    source = Video(video)
    scale = min(1.0, LONGEST_SIDE / max(source.info.width, source.info.height))
    width, height = (max(2, round(side * scale / 2) * 2) for side in (source.info.width, source.info.height))
    rate = Fraction(min(source.info.fps, HIGHEST_RATE)).limit_denominator(1001)
    first, last = result.range
    counted = result.counting_times
    badge = Badge(height, note="" if result.machine is None else f"corrected · model {result.machine.count}")

    def images() -> Iterator[Image]:
        frames = source.frames(size=(width, height), start=first, end=last, rate=float(rate))
        frame = next(frames, None)
        while frame is not None:
            following = next(frames, None)
            # The final frame shows the final count, however long a frame of a slow video lasts.
            number = bisect_right(counted, frame.time) if following is not None else result.count
            image = frame.image.copy()
            badge.draw(image, number, _progress(result, frame.time))
            yield image
            frame = following

    write_movie(
        path,
        images(),
        size=(width, height),
        rate=rate,
        options={"crf": "23", "preset": "veryfast"},
        sound=None if video.is_dir() else Sound(video, first, last),
    )


def _progress(result: CountResult, time: float) -> float:
    """How far the repetition on screen is, 0..1; 0 between repetitions."""
    index = bisect_right(result.repetitions, time, key=lambda repetition: repetition.start) - 1
    if index < 0 or time >= result.repetitions[index].end:
        return 0.0
    repetition = result.repetitions[index]
    return (time - repetition.start) / (repetition.end - repetition.start)


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

    def draw(self, image: Image, number: int, progress: float) -> None:
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
        corner[height - bar :, : round(width * progress)] = (217, 119, 43)

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
