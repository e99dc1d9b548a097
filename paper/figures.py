"""The figures of the paper, from a run's predictions, and its compilation video: clips one after another, true and
predicted maps running along below them. Drawn without a display; needs the [plot] extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from escounts.counting.maps import density_map, rate_map
from escounts.decision.spans import find_peaks
from escounts.errors import OutputError
from escounts.output.mp4 import write_movie
from escounts.research.evaluation.report import (
    THRESHOLDS,
    GroupResult,
    by_action,
    by_count,
    by_duration,
    by_repetition_length,
    jaccard,
    threshold,
)
from escounts.research.metrics import off_by_curve
from escounts.research.training.predictions import Prediction
from escounts.system.arrays import Array, Image
from escounts.system.atomic_files import atomic_file
from escounts.system.extras import install_command
from escounts.video.files import Video

TRUE, COUNTED, GREY = "#2f6f4f", "#c8642c", "#8a8f98"
Rows = Sequence[Prediction]


def scatter(rows: Rows) -> Any:
    """Figure 5: predicted against true counts, and the maps of a few videos from few to many repetitions."""
    shown = examples(rows, 4)
    figure = _figure(9.0, 4.6)
    grid = figure.add_gridspec(max(len(shown), 1), 2, width_ratios=(1, 1.15), hspace=0.75, wspace=0.16)
    axes = figure.add_subplot(grid[:, 0])
    true, counted = np.array([r.count for r in rows]), np.array([r.predicted for r in rows])
    most = max(float(true.max(initial=1)), float(counted.max(initial=1))) * 1.05
    axes.plot([0, most], [0, most], ":", color=GREY, zorder=1)
    axes.scatter(true, counted, s=16, alpha=0.6, color=COUNTED, edgecolor="none", zorder=2)
    for letter, row in zip("abcd", shown, strict=False):
        axes.annotate(letter, (row.count, row.predicted), textcoords="offset points", xytext=(4, 4), fontsize=9)
    axes.set(xlabel="true count", ylabel="predicted count", xlim=(0, most), ylim=(0, most))
    for place, (letter, row) in enumerate(zip("abcd", shown, strict=False)):
        _maps(figure.add_subplot(grid[place, 1]), row, title=f"{letter}  ")
    return figure


def groups(rows: Rows) -> Any:
    """Figure 6, right: all four metrics by count, by repetition length and by duration."""
    kinds = {
        "number of repetitions": by_count(rows),
        "repetition length, s": by_repetition_length(rows),
        "video duration, s": by_duration(rows),
    }
    figure = _figure(12.0, 7.2)
    for line, (title, found) in enumerate(kinds.items()):
        for column, metric in enumerate(("rmse", "mae", "obz", "obo")):
            axes = figure.add_subplot(3, 4, 4 * line + column + 1)
            _bars(axes, found, metric)
            axes.set_title(metric.upper() if line == 0 else "", fontsize=10)
            if column == 0:
                axes.set_ylabel(title, fontsize=9)
    figure.subplots_adjust(hspace=0.6, wspace=0.28)
    return figure


def classes(rows: Rows) -> Any:
    """Figure 6b: OBZ of every action class, best first."""
    found = sorted(by_action(rows), key=lambda group: -group.obz)
    figure = _figure(max(4.0, 0.5 * len(found) + 1.5), 3.4)
    axes = figure.add_subplot()
    axes.bar([f"{g.name} ({g.videos})" for g in found], [g.obz for g in found], color=COUNTED)
    axes.set(ylabel="OBZ", ylim=(0, 1))
    axes.tick_params(axis="x", rotation=60, labelsize=8)
    return figure


def off_by_n(rows: Rows) -> Any:
    """Figure 6a: share of videos at most N off."""
    curve = off_by_curve([r.count for r in rows], [r.predicted for r in rows], most=10)
    figure = _figure(4.4, 3.2)
    axes = figure.add_subplot()
    axes.bar(range(len(curve)), 100 * curve, color=COUNTED)
    axes.set(xlabel="N", ylabel="% of videos off by at most N", ylim=(0, 100), xticks=range(len(curve)))
    return figure


def qualitative(rows: Rows, number: int = 8) -> Any:
    """Figure 7: true and predicted maps of videos from few to many repetitions."""
    shown = examples(rows, number)
    figure = _figure(8.0, 0.35 + 1.15 * len(shown))
    for place, row in enumerate(shown):
        _maps(figure.add_subplot(len(shown), 1, place + 1), row)
    figure.subplots_adjust(hspace=0.9)
    return figure


def localisation(rows: Rows, theta: float = 0.5) -> Any:
    """The localisation picture: peaks above the threshold against annotated repetitions, and J by threshold."""
    marked = [row for row in rows if row.spans and not row.pseudo and len(row.density)]
    if not marked:
        raise OutputError("no video with marked repetitions: localisation cannot be drawn")
    row = examples(marked, 3)[len(examples(marked, 3)) // 2]
    figure = _figure(9.0, 4.8)
    axes = figure.add_subplot(2, 1, 1)
    density = row.peak_map()
    values = np.asarray(density.values)
    level = threshold(values, theta)
    peaks = find_peaks(values, above=level)
    for start, end in row.spans:
        axes.axvspan(start, end, color=TRUE, alpha=0.13, ec=TRUE, lw=0.8)
    axes.plot(density.times, values, color=COUNTED)
    axes.axhline(level, ls="--", color=GREY, lw=1)
    axes.plot(density.times[peaks], values[peaks], "v", color="black", ms=5)
    score = jaccard(density, row.spans, theta)
    axes.set(title=f"{row.action or row.name}: J = {score:.2f} at θ = {theta:g}", xlabel="seconds")
    below = figure.add_subplot(2, 1, 2)
    curve = [100 * float(np.mean([jaccard(r.peak_map(), r.spans, t) for r in marked])) for t in THRESHOLDS]
    below.plot(THRESHOLDS, curve, "o-", color=COUNTED)
    below.set(xlabel="θ", ylabel="mean J, %", ylim=(0, 100))
    figure.subplots_adjust(hspace=0.55)
    return figure


FIGURES: Mapping[str, Callable[[Rows], Any]] = {
    "scatter": scatter,
    "groups": groups,
    "classes": classes,
    "off-by-n": off_by_n,
    "qualitative": qualitative,
    "localisation": localisation,
}


def save_figure(name: str, rows: Rows, path: Path) -> None:
    """Draw a figure into a PNG, PDF or SVG file, whole or not at all."""
    if not rows:
        raise OutputError("no predictions to draw")
    figure = FIGURES[name](rows)
    with atomic_file(path) as partial:
        figure.savefig(partial, format=path.suffix.lstrip(".") or "png", dpi=150, bbox_inches="tight")


def examples(rows: Rows, number: int) -> list[Prediction]:
    """Videos spread evenly over the true counts."""
    ordered = sorted((row for row in rows if len(row.density)), key=lambda row: (row.count, row.name))
    if len(ordered) <= number:
        return ordered
    places = np.linspace(0, len(ordered) - 1, number).round().astype(int)
    return [ordered[place] for place in places]


def true_map(row: Prediction) -> Array:
    """The map that the annotated repetitions make, in the row's cells and of its kind."""
    make = rate_map if row.pseudo or row.kind == "rate" else density_map
    return make(row.spans, cells=len(row.density), step=row.step, start=row.start)


def _maps(axes: Any, row: Prediction, title: str = "") -> None:
    """True map above the line, predicted below it."""
    times = row.density_map().times
    true, counted = true_map(row), np.asarray(row.density)
    most = max(true.max(initial=0), counted.max(initial=0), 0.01)
    axes.fill_between(times, true / most, color=TRUE, lw=0)
    axes.fill_between(times, -np.maximum(counted, 0) / most, color=COUNTED, lw=0)
    axes.axhline(0, color="black", lw=0.5)
    name = row.action or Path(row.name).stem
    what = "pseudo-labels" if row.pseudo else "true"
    axes.set_title(f"{title}{name}: {what} {row.count}, predicted {row.predicted:.1f}", fontsize=9, loc="left")
    axes.set(yticks=[], ylim=(-1.05, 1.05), xlim=(row.start, row.start + len(counted) * row.step))
    axes.tick_params(labelsize=7)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def _bars(axes: Any, found: Sequence[GroupResult], metric: str) -> None:
    values = [getattr(group, metric) for group in found]
    axes.bar(range(len(found)), np.nan_to_num(values), color=COUNTED)
    axes.set_xticks(range(len(found)), [_tick(group.name) for group in found], fontsize=6)
    axes.tick_params(axis="y", labelsize=7)
    if metric.startswith("ob"):
        axes.set_ylim(0, 1)


def _tick(name: str) -> str:
    size, _, edges = name.partition(" ")
    return f"{size}\n{edges.removesuffix(' s')}"


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OutputError(f"figures need matplotlib; install it with: {install_command('plot')}") from error
    return Figure(figsize=(width, height))


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
        strip_at = map_strip(row)
        for frame in Video(file).frames(start=begin, end=begin + min(row.duration, LONGEST), rate=RATE):
            yield np.vstack([fitted(frame.image), strip_at(frame.time - begin)])


def fitted(image: Image) -> Image:
    """The image as large as fits, on black."""
    from PIL import Image as Picture

    scale = min(WIDTH / image.shape[1], HEIGHT / image.shape[0])
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    page = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    left, top = (WIDTH - size[0]) // 2, (HEIGHT - size[1]) // 2
    page[top : top + size[1], left : left + size[0]] = np.asarray(Picture.fromarray(image).resize(size))
    return page


def map_strip(row: Prediction) -> Callable[[float], Image]:
    """Both maps of a video over the time that is shown: from a time to the strip (STRIP, WIDTH, 3) with a line there
    and the running counts."""
    from PIL import Image as Picture
    from PIL import ImageDraw, ImageFont

    seconds, font = min(row.duration, LONGEST), ImageFont.load_default(15)
    true, counted = true_map(row), np.maximum(np.asarray(row.density), 0)
    page = _strip_page(true, counted, seconds, row.step)

    def at(time: float) -> Image:
        picture = Picture.fromarray(page)
        draw = ImageDraw.Draw(picture)
        across = round(time / seconds * (WIDTH - 1))
        draw.line([(across, 24), (across, STRIP)], fill=(20, 20, 20), width=2)
        done = max(int((time - row.start) / row.step), 0)
        so_far = [float(values[:done].sum()) for values in (true, counted)]
        draw.text((8, 3), f"{row.dataset}  {row.action or row.name}", font=font, fill=(60, 60, 60))
        draw.text((WIDTH - 250, 3), f"true {so_far[0]:.0f}", font=font, fill=_rgb(TRUE))
        draw.text((WIDTH - 160, 3), f"predicted {so_far[1]:.1f}", font=font, fill=_rgb(COUNTED))
        return np.asarray(picture)

    return at


def _strip_page(true: Array, counted: Array, seconds: float, step: float) -> Image:
    """Both maps as bars, the true one above, over the seconds that are shown. step: seconds of a cell."""
    page = np.full((STRIP, WIDTH, 3), 255, np.uint8)
    cells = np.clip((np.arange(WIDTH) / WIDTH * seconds / step).astype(int), 0, len(counted) - 1)
    height = (STRIP - 30) // 2
    most = max(float(true.max(initial=0)), float(counted.max(initial=0)), 0.01)
    for values, colour, top in ((true, TRUE, 26), (counted, COUNTED, 26 + height + 2)):
        tall = np.round(height * values[cells] / most).astype(int)
        filled = np.arange(height)[:, None] >= height - tall[None]
        page[top : top + height][filled] = _rgb(colour)
    return page


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue
