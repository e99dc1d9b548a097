"""png and html: the density over time, the running count, and frames of the repetitions: one picture, or a report in
one file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from string import Template
from textwrap import shorten
from typing import Any

import av
import numpy as np

from escounts.errors import OutputError, one_line
from escounts.output.text import (
    clock,
    confidence,
    doubt,
    headline,
    in_places,
    not_counted,
    other_unit,
    places,
    set_rows,
    shown_reasons,
)
from escounts.results import CountResult, Repetition
from escounts.system.arrays import Image
from escounts.system.atomic_files import atomic_file, printable, write_text
from escounts.system.extras import install_command
from escounts.video.files import Video

TREAD = 0.02
"""The last tread of the stair, as a share of the counted range: without it a count at the very end is not seen."""
INK, BLUE, ORANGE, GREY = "#1d2733", "#2f6fb5", "#d9772b", "#8a94a0"
_LETTERS = 100
"""That one line of the picture holds."""
_WIDTH, _HEIGHT = 1000, 220
_TOP = 0.92 * _HEIGHT
"""How high, in the report's curve, the highest of the density and the last tread of the running count reach."""
_COLUMNS = 1000
"""Points of the curve at most: a two-hour map has more cells than a screen has pixels."""


def telling_times(result: CountResult, most: int = 8) -> list[float]:
    """The middle of up to `most` repetitions, evenly chosen, those that were not counted among them; evenly spread
    times where there are none."""
    middles = sorted((one.start + one.end) / 2 for one in (*result.repetitions, *result.left_out))
    if not middles:
        first, last = result.range
        middles = [float(time) for time in np.linspace(first, last, most + 2)[1:-1]]
    if len(middles) <= most:
        return middles
    return [middles[index] for index in np.linspace(0, len(middles) - 1, most).round().astype(int)]


def _unlike(result: CountResult, time: float) -> bool:
    """Whether a time lies in a repetition that was not counted."""
    return any(one.start <= time <= one.end for one in result.left_out)


def frames_at(path: Path, times: Sequence[float], *, height: int, region: str | None = None) -> list[Image]:
    """The frame on screen at each time (seconds), `height` pixels high, RGB; past the end, the last one.

    region: the box of the picture that is shown, all of it when None.
    """
    video = Video(path) if region is None else Video(path).cropped(region)
    width = max(2, round(video.info.width * height / video.info.height))
    found: list[Image] = []
    for time in times:
        start = min(max(time, 0.0), max(video.info.duration - 2.0 / video.info.fps, 0.0))
        frame = next(iter(video.frames(size=(width, height), start=start, rate=2 * video.info.fps)), None)
        if frame is not None:
            found.append(frame.image)
        elif found:
            found.append(found[-1])
    return found


def jpeg(image: Image, options: dict[str, str] | None = None) -> bytes:
    """A height x width x 3 uint8 RGB image as JPEG. options: of FFmpeg's encoder."""
    height, width = image.shape[:2]
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    encoder.options = options or {"qscale": "4"}
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24").reformat(format="yuvj420p")
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """A 1500 x 600 pixel picture; without `video` the strip of frames is left out. Needs the [plot] extra."""
    blank = _blank(f"{path}: png", tall=video is not None)
    with atomic_file(path) as temporary:
        drawn = draw(blank, result, video)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in another script
            drawn.savefig(temporary, format="png")


def figure(result: CountResult) -> Any:
    """The plot as a matplotlib figure, with frames where the video is at hand."""
    video = Path(result.video)
    return draw(_blank("a plot", tall=video.exists()), result, video if video.exists() else None)


def notebook_html(result: CountResult) -> str:
    """What a notebook shows: the lines above the terminal's plot, and the picture where matplotlib is installed."""
    lines = [f"<b>{escape(headline(result))}</b>", *map(escape, [*shown_reasons(result), *places(result)])]
    text = f"<p>{'<br>'.join(lines)}</p>"
    try:
        drawn = figure(result)
    except OutputError:  # matplotlib is not installed
        return text
    data = io.BytesIO()
    drawn.savefig(data, format="png", dpi=90)
    coded = base64.b64encode(data.getvalue()).decode("ascii")
    return f'{text}<img alt="density and running count" src="data:image/png;base64,{coded}">'


def _blank(what: str, *, tall: bool) -> Any:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - the [plot] extra
    except ImportError as error:
        raise OutputError(f"{what} needs matplotlib; install it with: {install_command('plot')}") from error
    return Figure(figsize=(10, 4 if tall else 2.8), dpi=150, facecolor="white")


def draw(figure: Any, result: CountResult, video: Path | None) -> Any:
    """Fill an empty matplotlib figure with the plot of a result."""
    times = telling_times(result) if video is not None else []
    images = frames_at(video, times, height=180, region=result.region) if video is not None else []
    top = 0.60 if images else 0.84
    axes = figure.add_axes((0.06, 0.14, 0.88, top - 0.14))
    _density(axes, result)
    _running_count(axes.twinx(), result)
    if images:
        _strip(figure, axes, result, times, images, top)
    noun = "repetition" if result.count == 1 else "repetitions"
    figure.text(0.06, 0.93, f"{result.count} {noun}", fontsize=17, weight="bold", color=INK)
    beside = (other_unit(result) + in_places(result) + not_counted(result)).strip(" ;")
    figure.text(0.06, 0.885, beside, fontsize=9.5, color=GREY)
    where = result.region and f"region {result.region}"
    sure = " · ".join(filter(None, (confidence(result), doubt(result), where)))
    about = one_line(f"{printable(Path(result.video).name)} · model {result.model} · {sure}")
    if reasons := shown_reasons(result):
        said = shorten(one_line("; ".join(reasons)), _LETTERS - len(beside), placeholder=" …")
        figure.text(0.94, 0.885, said, fontsize=9.5, color=GREY, ha="right")
    figure.text(0.94, 0.935, about, fontsize=9.5, color=GREY, ha="right", parse_math=False)  # "$" is a "$" in a name
    return figure


def _density(axes: Any, result: CountResult) -> None:
    density = result.density
    for index, repetition in enumerate(result.repetitions):
        alpha = 0.05 + 0.06 * (index % 2)
        axes.axvspan(repetition.start, repetition.end, color=BLUE, alpha=alpha, linewidth=0, zorder=0)
    axes.fill_between(density.times, density.values / density.step, color=BLUE, alpha=0.35, linewidth=0)
    axes.plot(density.times, density.values / density.step, color=BLUE, linewidth=1.3)
    for repetition in result.left_out:
        axes.axvspan(repetition.start, repetition.end, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    for exemplar in result.exemplars:
        if exemplar.video is None:
            axes.axvspan(exemplar.start, exemplar.end, facecolor="none", edgecolor=ORANGE, linewidth=1.4)
    for one in result.sets if len(result.sets) > 1 else ():
        high = axes.get_xaxis_transform()
        axes.plot([one.start, one.end], [0.93, 0.93], color=INK, linewidth=2.5, transform=high, solid_capstyle="butt")
        name = f"{one.count} {one.motion}"
        axes.text((one.start + one.end) / 2, 0.95, name, transform=high, fontsize=8, color=INK, ha="center")
    first, last = result.range
    axes.set_xlim(first, last + TREAD * (last - first))
    axes.set_ylim(0, max(float(density.values.max(initial=0.0)) / density.step * 1.15, 1e-3))
    axes.set_ylabel("repetitions per second", color=BLUE, fontsize=9)
    axes.set_xlabel("time (minutes:seconds)", color=INK, fontsize=9)
    axes.xaxis.set_major_formatter(lambda seconds, _: clock(seconds))
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _running_count(axes: Any, result: CountResult) -> None:
    """The stair; its last tread, with the final count on it, reaches past the counted range."""
    ends = [repetition.end for repetition in result.repetitions]
    first, last = result.range
    beyond = last + TREAD * (last - first)
    steps = [*range(len(ends) + 1), len(ends)]
    axes.step([first, *ends, beyond], steps, where="post", color=ORANGE, linewidth=1.5)
    axes.text(beyond, len(ends), f"{len(ends)} ", color=ORANGE, fontsize=9, weight="bold", ha="right", va="bottom")
    axes.set_ylim(0, max(1.0, len(ends)) * 1.15)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("count so far", color=ORANGE, fontsize=9)
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "left"):
        axes.spines[side].set_visible(False)


def _strip(figure: Any, axes: Any, result: CountResult, times: list[float], images: list[Any], top: float) -> None:
    """Frames side by side above the plot, each tied to its instant by a thin line."""
    first, last = result.range
    pitch = 0.88 / len(images)
    shape = figure.get_size_inches()
    height = 0.2  # a portrait reaches no higher than the words
    aspect = images[0].shape[1] / images[0].shape[0]
    width = min(height * shape[1] / shape[0] * aspect, pitch * 0.96)
    height = width * shape[0] / shape[1] / aspect
    for index, (time, image) in enumerate(zip(times, images, strict=False)):
        centre = 0.06 + pitch * (index + 0.5)
        place = figure.add_axes((centre - width / 2, top + 0.06, width, height))
        place.imshow(np.asarray(image), alpha=0.4 if _unlike(result, time) else 1.0)
        place.set_axis_off()
        instant = 0.06 + 0.88 * (time - first) / max((1 + TREAD) * (last - first), 1e-9)
        figure.add_artist(_line([centre, instant], [top + 0.055, top + 0.005]))


def _line(across: list[float], up: list[float]) -> Any:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - the extra [plot]

    return Line2D(across, up, color=GREY, linewidth=0.8)


def write_html(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """Headline, curve with running count, frames, table of repetitions, settings."""
    template = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    noun = "repetition" if result.count == 1 else "repetitions"
    note = doubt(result) or ("no repetitions" if result.count == 0 else "")
    write_text(
        path,
        template.substitute(
            title=escape(f"{printable(Path(result.video).name)}: {result.count} {noun}"),
            name=escape(printable(Path(result.video).name)),
            count=result.count,
            noun=noun + other_unit(result) + in_places(result),
            confidence=confidence(result),
            note=escape(note),
            note_class="" if note else "hidden",
            curve=_curve(result) + "\n" + _axes(result),
            box=f"-92 -10 {_WIDTH + 168} {_HEIGHT + 74}",
            frames=_frames(result, video),
            rows=_rows(result),
            sets_head="".join(f"<th>{escape(name)}</th>" for name in (*set_rows(())[0], "")),
            sets=_sets(result),
            sets_class="" if result.sets else "hidden",
            facts=_facts(result),
        ),
    )


def _curve(result: CountResult) -> str:
    """SVG: a shaded stripe per repetition (with its times as tooltip), the density, the running count."""
    first, last = result.range
    span = max(last - first, 1e-9)
    right = _WIDTH * (1 - TREAD)

    def across(seconds: float) -> float:
        return min(max((seconds - first) / span, 0.0), 1.0) * right

    parts = []

    def stripe(kind: str, one: Repetition, label: str) -> None:
        begin, end = across(one.start), across(one.end)
        parts.append(
            f'<rect class="{kind}" x="{begin:.1f}" y="0" width="{max(end - begin, 0.5):.1f}" height="{_HEIGHT}">'
            f"<title>{escape(label)}</title></rect>"
        )

    for index, one in enumerate(result.repetitions, 1):
        score = "" if one.score is None else f", score {one.score:.2f}"
        stripe("span", one, f"{index}: {clock(one.start)} – {clock(one.end)}{score}")
    for one in result.left_out:
        stripe("left", one, f"another motion, not counted: {clock(one.start)} – {clock(one.end)}")
    values = result.density.values.astype(np.float64)
    groups = np.array_split(np.arange(len(values)), min(_COLUMNS, len(values)))
    level = np.array([values[group].max() for group in groups])
    level = level / level.max() if level.max() > 0 else level
    times = [float(result.density.times[group].mean()) for group in groups]
    points = " ".join(f"{across(t):.1f},{_HEIGHT - _TOP * v:.1f}" for t, v in zip(times, level, strict=True))
    parts.append(f'<polygon class="area" points="0,{_HEIGHT} {points} {right:.1f},{_HEIGHT}"/>')
    parts.append(f'<polyline class="line" points="{points}"/>')
    step = _TOP / max(result.count, 1)
    stairs = [f"M0,{_HEIGHT}"]
    for index, repetition in enumerate(result.repetitions, 1):
        stairs.append(f"H{across(repetition.end):.1f}V{_HEIGHT - step * index:.1f}")
    parts.append(f'<path class="stairs" d="{"".join(stairs)}H{_WIDTH}"/>')
    return "\n".join(parts)


def _axes(result: CountResult) -> str:
    """Numbers along three sides of the curve, and what they are numbers of."""
    first, last = result.range
    most = float(result.density.values.max(initial=0.0)) / result.density.step
    parts = []

    def text(x: float, y: float, words: str, anchor: str, kind: str = "tick", turned: int = 0) -> None:
        turn = f' transform="rotate({turned} {x:.1f} {y:.1f})"' if turned else ""
        parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{words}</text>')

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        text(_WIDTH * (1 - TREAD) * share, _HEIGHT + 24, clock(first + share * (last - first)), anchor)
    for share in (0.0, 0.5, 1.0) if most > 0 else (0.0,):
        text(-8, _HEIGHT - share * _TOP + 5, f"{share * most:.2g}", "end")
    for count in sorted({0, result.count // 2, result.count}):
        text(_WIDTH + 8, _HEIGHT - _TOP * count / max(result.count, 1) + 5, str(count), "start")
    text(_WIDTH / 2, _HEIGHT + 54, "time (minutes:seconds)", "middle", "title")
    text(-74, _HEIGHT / 2, "repetitions per second", "middle", "title blue", -90)
    text(_WIDTH + 62, _HEIGHT / 2, "count so far", "middle", "title orange", -90)
    return "\n".join(parts)


def _frames(result: CountResult, video: Path | None) -> str:
    if video is None:
        return ""
    times = telling_times(result)
    figures = []
    for time, image in zip(times, frames_at(video, times, height=150, region=result.region), strict=False):
        data = base64.b64encode(jpeg(image)).decode("ascii")
        figures.append(
            f'<figure><img alt="frame at {clock(time)}" src="data:image/jpeg;base64,{data}">'
            f"<figcaption>{clock(time)}{', not counted' if _unlike(result, time) else ''}</figcaption></figure>"
        )
    return "\n".join(figures)


def _rows(result: CountResult) -> str:
    return "\n".join(
        f"<tr><td>{index}</td><td>{clock(r.start)}</td><td>{clock(r.end)}</td>"
        f"<td>{r.end - r.start:.2f} s</td><td>{'' if r.score is None else f'{r.score:.2f}'}</td></tr>"
        for index, r in enumerate(result.repetitions, 1)
    )


def _sets(result: CountResult) -> str:
    """A table row per set, with a bar as long as its share of the largest count."""
    most = max((one.count for one in result.sets), default=1)
    found = []
    for row, one in zip(set_rows(result.sets)[1:], result.sets, strict=True):
        bar = f'<td><span class="bar" style="width:{6 * one.count / most:.2f}em"></span></td>'
        found.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}{bar}</tr>")
    return "\n".join(found)


def _facts(result: CountResult) -> str:
    first, last = result.range
    exemplars = ", ".join(
        f"{e.start:g}–{e.end:g} s" + (f" of {Path(e.video).name}" if e.video else "") for e in result.exemplars
    )
    facts = {
        "Model": result.model,
        "Counted": f"{clock(first)} – {clock(last)} of {clock(result.duration)}",
        **({"Region": f"{result.region} (x, y, width, height in pixels)"} if result.region else {}),
        "Exemplars": exemplars or "none",
        **({"Places": "; ".join(line.strip() for line in places(result))} if len(result.tracks) > 1 else {}),
        **({"Not sure because": "; ".join(reasons)} if (reasons := shown_reasons(result)) else {}),
        "Before rounding": f"{result.raw_count:.2f}",
        "Time taken": f"{result.timings.get('total', 0.0):.2f} s",
    }
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
