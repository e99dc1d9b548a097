"""The compilation video: clips one after another, true and predicted maps running along below them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from escounts.arrays import Image
from escounts.errors import OutputError
from escounts.evaluation.figures import COUNTED, TRUE, examples, true_map
from escounts.movie_files import write_movie
from escounts.training.predictions import Prediction
from escounts.video import Video

Locate = Callable[[Prediction], "tuple[Path, float] | None"]
"""From a prediction to its video file and the second at which the counted stretch starts; None: not here."""

WIDTH, HEIGHT, STRIP = 640, 360, 120
RATE = 25
LONGEST = 12.0
"""Seconds shown of each video."""


def write_compilation(rows: Sequence[Prediction], locate: Locate, path: Path, *, number: int = 20) -> int:
    """Encode the video; how many clips are in it. Videos that are not here are left out."""
    chosen = [(row, found) for row in examples(rows, number) if (found := locate(row)) is not None]
    if not chosen:
        raise OutputError("none of the videos is here; give their folder with --videos")
    options = {"crf": "22", "preset": "veryfast"}
    write_movie(path, _pages(chosen), size=(WIDTH, HEIGHT + STRIP), rate=Fraction(RATE), options=options)
    return len(chosen)


def _pages(chosen: Sequence[tuple[Prediction, tuple[Path, float]]]) -> Iterator[Image]:
    for row, (file, begin) in chosen:
        strip = Strip(row)
        for frame in Video(file).frames(start=begin, end=begin + min(row.duration, LONGEST), rate=RATE):
            yield np.vstack([fitted(frame.image), strip.at(frame.time - begin)])


def fitted(image: Image) -> Image:
    """The image as large as fits, on black."""
    from PIL import Image as Picture  # noqa: PLC0415 - the extra [plot]

    scale = min(WIDTH / image.shape[1], HEIGHT / image.shape[0])
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    page = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    left, top = (WIDTH - size[0]) // 2, (HEIGHT - size[1]) // 2
    page[top : top + size[1], left : left + size[0]] = np.asarray(Picture.fromarray(image).resize(size))
    return page


class Strip:
    """Both maps of a video over the time that is shown, with a line at the present and the running counts."""

    def __init__(self, row: Prediction) -> None:
        from PIL import ImageFont  # noqa: PLC0415 - the extra [plot]

        self.row = row
        self.seconds = min(row.duration, LONGEST)
        self.font = ImageFont.load_default(15)
        self.true, self.counted = true_map(row), np.maximum(np.asarray(row.density), 0)
        self.page = self._maps()

    def at(self, time: float) -> Image:
        """The strip at a time, (STRIP, WIDTH, 3)."""
        from PIL import Image as Picture  # noqa: PLC0415 - the extra [plot]
        from PIL import ImageDraw  # noqa: PLC0415 - the extra [plot]

        picture = Picture.fromarray(self.page)
        draw = ImageDraw.Draw(picture)
        across = round(time / self.seconds * (WIDTH - 1))
        draw.line([(across, 24), (across, STRIP)], fill=(20, 20, 20), width=2)
        done = max(int((time - self.row.start) / self.row.step), 0)
        so_far = [float(values[:done].sum()) for values in (self.true, self.counted)]
        name = f"{self.row.dataset}  {self.row.action or self.row.name}"
        draw.text((8, 3), name, font=self.font, fill=(60, 60, 60))
        draw.text((WIDTH - 250, 3), f"true {so_far[0]:.0f}", font=self.font, fill=_rgb(TRUE))
        draw.text((WIDTH - 160, 3), f"predicted {so_far[1]:.1f}", font=self.font, fill=_rgb(COUNTED))
        return np.asarray(picture)

    def _maps(self) -> Image:
        page = np.full((STRIP, WIDTH, 3), 255, np.uint8)
        cells = np.clip(
            (np.arange(WIDTH) / WIDTH * self.seconds / self.row.step).astype(int), 0, len(self.counted) - 1
        )
        height = (STRIP - 30) // 2
        bands = ((self.true, TRUE, 26), (self.counted, COUNTED, 26 + height + 2))
        most = max(float(self.true.max(initial=0)), float(self.counted.max(initial=0)), 0.01)
        for values, colour, top in bands:
            tall = np.round(height * values[cells] / most).astype(int)
            filled = np.arange(height)[:, None] >= height - tall[None]
            page[top : top + height][filled] = _rgb(colour)
        return page


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue
