"""html: a report in one file, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from string import Template

import numpy as np

from escounts.atomic_files import printable, write_text
from escounts.output.png import frames_at, jpeg, telling_times
from escounts.output.text import clock, confidence, doubt, other_unit
from escounts.results import CountResult

_WIDTH, _HEIGHT = 1000, 220
_TOP = 0.92 * _HEIGHT
"""How high the highest of the density and the last tread of the running count reach."""
_TREAD = 0.02
"""The last tread of the running count reaches this share of the width past the video's end, where it is seen."""
_COLUMNS = 1000
"""Points of the curve at most: a two-hour map has more cells than a screen has pixels."""


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
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
            noun=noun + other_unit(result),
            confidence=confidence(result),
            note=escape(note),
            note_class="" if note else "hidden",
            curve=_curve(result) + "\n" + _axes(result),
            box=f"-92 -10 {_WIDTH + 168} {_HEIGHT + 74}",
            frames=_frames(result, video),
            rows=_rows(result),
            facts=_facts(result),
        ),
    )


def _curve(result: CountResult) -> str:
    """SVG: a shaded stripe per repetition (with its times as tooltip), the density, the running count."""
    first, last = result.range
    span = max(last - first, 1e-9)
    right = _WIDTH * (1 - _TREAD)

    def across(seconds: float) -> float:
        return min(max((seconds - first) / span, 0.0), 1.0) * right

    parts = []
    for index, repetition in enumerate(result.repetitions, 1):
        begin, end = across(repetition.start), across(repetition.end)
        label = f"{index}: {clock(repetition.start)} – {clock(repetition.end)}"
        if repetition.score is not None:
            label += f", score {repetition.score:.2f}"
        parts.append(
            f'<rect class="span" x="{begin:.1f}" y="0" width="{max(end - begin, 0.5):.1f}" height="{_HEIGHT}">'
            f"<title>{escape(label)}</title></rect>"
        )
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
        text(_WIDTH * (1 - _TREAD) * share, _HEIGHT + 24, clock(first + share * (last - first)), anchor)
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
    for time, image in zip(times, frames_at(video, times, height=150), strict=False):
        data = base64.b64encode(jpeg(image)).decode("ascii")
        figures.append(
            f'<figure><img alt="frame at {clock(time)}" src="data:image/jpeg;base64,{data}">'
            f"<figcaption>{clock(time)}</figcaption></figure>"
        )
    return "\n".join(figures)


def _rows(result: CountResult) -> str:
    return "\n".join(
        f"<tr><td>{index}</td><td>{clock(r.start)}</td><td>{clock(r.end)}</td>"
        f"<td>{r.end - r.start:.2f} s</td><td>{'' if r.score is None else f'{r.score:.2f}'}</td></tr>"
        for index, r in enumerate(result.repetitions, 1)
    )


def _facts(result: CountResult) -> str:
    first, last = result.range
    exemplars = ", ".join(
        f"{e.start:g}–{e.end:g} s" + (f" of {Path(e.video).name}" if e.video else "") for e in result.exemplars
    )
    facts = {
        "Model": result.model,
        "Counted": f"{clock(first)} – {clock(last)} of {clock(result.duration)}",
        "Exemplars": exemplars or "none",
        "Before rounding": f"{result.raw_count:.2f}",
        "Time taken": f"{result.timings.get('total', 0.0):.2f} s",
    }
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
