"""text, csv and srt: a result, and its sets, as text.

text is to read in a terminal, with a small plot. csv has one row per repetition, for spreadsheets; a video without
repetitions keeps one row with empty times. Every table of the package is written by `csv_text`, whose cells no
spreadsheet takes for formulas. srt is a subtitle that counts along; the number goes up when a repetition
is complete.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from escounts.decision.repetitions import RepetitionSet
from escounts.decision.rules import RULES
from escounts.errors import OutputError, one_line
from escounts.results import EXEMPLAR_CUT, CountResult, Repetition, two_digits
from escounts.system.atomic_files import printable, write_text

_BARS = " ▁▂▃▄▅▆▇█"
TEMPO_CHANGE = 0.1
"""Share by which the last set's tempo differs from the first's of the same motion before it is spoken of."""
SHORT_REST = 1.0
"""Seconds from which rests are spoken of: across a cut there is none."""


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """The text of `describe`, in a file."""
    write_text(path, describe(result) + "\n")


def describe(result: CountResult, *, width: int = 72, most: int = 12) -> str:
    """Lines for a person: headline, plot (`width` characters), up to `most` repetitions with their times."""
    lines = [headline(result), *(f"  why: {reason}" for reason in shown_reasons(result)), *places(result)]
    lines += _plot(result, width)
    shown = result.repetitions if len(result.repetitions) <= most else result.repetitions[: most - 1]
    for index, repetition in enumerate(shown, 1):
        score = "" if repetition.score is None else f"  score {repetition.score:.2f}"
        where = [n for n, track in enumerate(result.tracks, 1) if repetition in track.repetitions]
        place = f"  place {where[0]}" if where and len(result.tracks) > 1 else ""
        lines.append(f"  {index:>3}  {clock(repetition.start)} – {clock(repetition.end)}{score}{place}")
    if len(shown) < len(result.repetitions):
        lines.append(f"  …    {len(result.repetitions) - len(shown)} more")
    return "\n".join(lines)


def headline(result: CountResult) -> str:
    """`squats.mp4: 8 repetitions, confidence 0.93 (model lite, 1.2 s)`."""
    noun = "repetition" if result.count == 1 else "repetitions"
    what = f"{result.count} {noun}{other_unit(result)}" if result.count else nothing(result)
    what += in_places(result)
    unsure = f", {doubt(result)}" if doubt(result) else ""
    if unsure and (result.confidence_kind == "probability" or not result.count):
        unsure += f": {_advice(result)}"
    unsure += across_a_cut(result) + not_counted(result)
    seconds = result.timings.get("total")
    took = f", {seconds:.1f} s" if seconds is not None else ""
    name = one_line(printable(Path(result.video).name))
    where = f", region {result.region}" if result.region else ""
    return f"{name}: {what}, {confidence(result)}{unsure} (model {result.model}{where}{took})"


def in_places(result: CountResult) -> str:
    """` in 2 places (5 + 8)`; empty where there is one."""
    if len(result.tracks) < 2:
        return ""
    return f" in {len(result.tracks)} places ({' + '.join(str(track.count) for track in result.tracks)})"


def places(result: CountResult) -> list[str]:
    """A line per place, where there are several."""
    if len(result.tracks) < 2:
        return []
    width = max(len(track.region) for track in result.tracks)
    return [
        f"  place {number}  {track.region:<{width}}  {track.count} repetition{'' if track.count == 1 else 's'}, "
        f"confidence {two_digits(track.confidence, unsure=track.unsure)}{', not sure' if track.unsure else ''}"
        for number, track in enumerate(result.tracks, 1)
    ]


def other_unit(result: CountResult) -> str:
    """` (8 if left and right each count)`, or as cycles; empty where no other unit is live. Where a person gave the
    unit, what became of the model's number."""
    if result.without_unit is not None:
        how = "each side" if result.unit == "side" else "both sides as one"
        return f" ({how}, as chosen; the model counted {result.without_unit} and gave no unit)"
    if result.machine is not None or result.unit is None:
        return ""
    for hypothesis in result.hypotheses:
        if hypothesis.unit not in (None, result.unit) and hypothesis.live:
            how = "left and right each count" if hypothesis.unit == "side" else "left and right count as one"
            return f" ({hypothesis.count} if {how})"
    return ""


def confidence(result: CountResult) -> str:
    """`confidence 0.93`, `agreement 0.93` where it is not a calibrated probability, or that a person corrected it."""
    if result.machine is not None:
        return f"corrected by hand, the model counted {result.machine.count}"
    name = "confidence" if result.confidence_kind == "probability" else "agreement"
    return f"{name} {two_digits(result.confidence, unsure=result.unsure)}"


def doubt(result: CountResult) -> str:
    """`not sure`, or of a model that cannot say how sure it is that its number is `not a probability`; else empty.

    Of a count that a person corrected what the model thinks of its own says nothing.
    """
    if result.machine is not None or not result.unsure:
        return ""
    return "not sure" if result.confidence_kind == "probability" else "not a probability"


def shown_reasons(result: CountResult) -> tuple[str, ...]:
    """Why a probability is too low, where a person has not corrected the count."""
    return result.reasons if result.machine is None and result.confidence_kind == "probability" else ()


def _advice(result: CountResult) -> str:
    """What somebody who is told "not sure" can do that they have not done."""
    first, last = result.range
    if any(
        one.video is None and one.end - one.start > RULES.long_exemplar * (last - first) for one in result.exemplars
    ):
        return "the exemplar is most of what was counted; mark one repetition only"
    if result.exemplars:
        return "look at it"
    if not result.count:
        return "look at it, or try --assume-repeats"
    if len(result.tracks) > 1:
        return "look at it, or count a place alone with --region"
    sides = " (or --unit side)" if result.unit == "cycle" and other_unit(result) else ""
    return f"look at it, or mark one with --exemplar{sides}"


def across_a_cut(result: CountResult) -> str:
    """`; the film is cut at 0:04.4, inside the exemplar: …`, or nothing. One side of it was taken, sure or not."""
    cut = result.details.get(EXEMPLAR_CUT)
    if cut is None or result.machine is not None:
        return ""
    return f"; the film is cut at {clock(cut)}, inside the exemplar: mark one repetition on one side of it"


def nothing(result: CountResult) -> str:
    """`no repetitions`, or that there are some, but of other motions than the exemplar's."""
    return "the marked motion does not occur here" if result.left_out else "no repetitions"


def not_counted(result: CountResult) -> str:
    """`; 10 other repetitions between 0:21.0 and 0:34.0 were not counted`: those unlike the exemplar; or nothing."""
    left = result.left_out
    if not left:
        return ""
    number = "1 other repetition" if len(left) == 1 else f"{len(left)} other repetitions"
    was = "was" if len(left) == 1 else "were"
    return f"; {number} between {clock(left[0].start)} and {clock(left[-1].end)} {was} not counted"


def clock(seconds: float) -> str:
    """1:02.3, or 1:00:02.3 from an hour on."""
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    tail = f"{minutes:02d}:{rest / 10:04.1f}" if hours else f"{minutes}:{rest / 10:04.1f}"
    return f"{hours}:{tail}" if hours else tail


def _plot(result: CountResult, width: int) -> list[str]:
    """The density as a row of bars, and where repetitions end as a row of ticks, over the counted range."""
    first, last = result.range
    span = last - first
    if span <= 0 or len(result.density.values) == 0:
        return []
    column = np.clip(((result.density.times - first) / span * width).astype(int), 0, width - 1)
    cells = np.maximum(np.bincount(column, minlength=width), 1)
    level = np.bincount(column, weights=result.density.values, minlength=width) / cells
    top = level.max()
    bars = "".join(_BARS[round(float(value / top) * (len(_BARS) - 1))] if top > 0 else " " for value in level)
    ticks = [" "] * width
    for repetition in result.repetitions:
        ticks[min(int((repetition.end - first) / span * width), width - 1)] = "╵"
    label = clock(last)
    axis = clock(first) + label.rjust(width - len(clock(first)))
    return [f"  {bars}", f"  {''.join(ticks)}", f"  {axis}"]


def in_words(sets: Sequence[RepetitionSet]) -> str:
    """`3 sets: 8, 8, 6; rests 45 s and 52 s; the last set 20 % slower`; counts with letters where motions differ."""
    if not sets:
        return "no sets"
    several = len({one.motion for one in sets}) > 1
    counts = ", ".join(f"{one.count} {one.motion}" if several else str(one.count) for one in sets)
    said = [f"{len(sets)} {'set' if len(sets) == 1 else 'sets'}: {counts}"]
    waited = [one.rest_before for one in sets if one.rest_before is not None]
    rests = [f"{seconds:.0f} s" for seconds in waited]
    if max(waited, default=0.0) >= SHORT_REST:
        noun = "rest" if len(rests) == 1 else "rests"
        said.append(f"{noun} {_listed(rests)}")
    change = _change(sets)
    if abs(change) >= TEMPO_CHANGE:
        said.append(f"the last set {abs(change):.0%} {'slower' if change > 0 else 'faster'}".replace("%", " %"))
    return "; ".join(said)


def set_rows(sets: Sequence[RepetitionSet]) -> list[tuple[str, ...]]:
    """A heading and one row per set: number, motion, count, times, rest before it, seconds per repetition."""
    found: list[tuple[str, ...]] = [("set", "motion", "count", "from", "to", "rest before", "s per repetition")]
    for number, one in enumerate(sets, 1):
        rest = "" if one.rest_before is None else f"{one.rest_before:.1f} s"
        tempo = f"{one.tempo:.2f} ± {one.spread:.2f}"
        found.append((str(number), one.motion, str(one.count), clock(one.start), clock(one.end), rest, tempo))
    return found


def set_lines(sets: Sequence[RepetitionSet]) -> list[str]:
    """The sentence, and the table in columns."""
    if not sets:
        return [f"  {in_words(sets)}"]
    table = set_rows(sets)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    body = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return [f"  {in_words(sets)}", *(f"  {line}" for line in body)]


def _change(sets: Sequence[RepetitionSet]) -> float:
    """By what share the last set's repetitions take longer than those of the first set of its motion."""
    first = next(one for one in sets if one.motion == sets[-1].motion)
    return sets[-1].tempo / first.tempo - 1 if first.tempo > 0 else 0.0


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def write_csv(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """Header and rows, times in seconds."""
    rows = [_row(result, number, repetition) for number, repetition in enumerate(result.repetitions, 1)]
    rows = rows or [_row(result, None, None)]
    write_text(path, csv_text(list(rows[0]), (list(row.values()) for row in rows)))


def _row(result: CountResult, number: int | None, repetition: Repetition | None) -> dict[str, object]:
    """Column → value; None is an empty cell. repetition: the number-th, None where there are none."""
    machine = result.machine  # what the model had said, where a person has corrected it
    score = None if repetition is None else repetition.score
    held = ((place, one) for place, one in enumerate(result.sets, 1) if repetition and repetition.start < one.end)
    within = next(held, None)
    return {
        "video": result.video,
        "model": result.model,
        "count": result.count,
        "confidence": None if machine else f"{result.confidence:.4f}",
        "unsure": "yes" if result.unsure else "no",
        "repetition": number,
        "start_s": repetition and f"{repetition.start:.3f}",
        "end_s": repetition and f"{repetition.end:.3f}",
        "score": None if score is None else f"{score:.4f}",
        "corrected": "yes" if machine else "no",
        "machine_count": machine and machine.count,
        "region": region_of(result, repetition),
        "set": within and within[0],
        "motion": within and within[1].motion,
    }


def dataframe(result: CountResult) -> Any:
    """A row per repetition; times in seconds."""
    try:
        import pandas  # noqa: PLC0415 - optional: users bring it
    except ImportError as error:
        raise OutputError("a DataFrame needs pandas; install it with: pip install pandas") from error
    rows = [
        {
            "start_s": one.start,
            "end_s": one.end,
            "seconds": one.end - one.start,
            "score": one.score,
            "region": region_of(result, one),
        }
        for one in result.repetitions
    ]
    return pandas.DataFrame(rows, columns=["start_s", "end_s", "seconds", "score", "region"])


def region_of(result: CountResult, repetition: Repetition | None) -> str | None:
    """The box in which a repetition was counted; None: the whole picture."""
    several = result.tracks if len(result.tracks) > 1 else ()
    return next((track.region for track in several if repetition in track.repetitions), result.region)


def write_srt(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """One cue per number, from the end of its repetition to the end of the next one.

    The last one says so where a person corrected the count.
    """
    blocks = [
        f"{index}\n{timestamp(start)} --> {timestamp(end)}\n{text}\n"
        for index, (start, end, text) in enumerate(cues(result), 1)
    ]
    write_text(path, "\n".join(blocks))


def cues(result: CountResult) -> list[tuple[float, float, str]]:
    """(start, end, text) in seconds, in order, without overlap, over the counted range."""
    first, last = result.range
    changes = result.counting_times
    end = result.repetitions[-1].end if changes else 0.0
    if changes and end + RULES.readable <= result.duration:  # the video goes on: time to see it
        changes[-1] = max(changes[-1], end)
        last = max(last, changes[-1] + RULES.readable)
    edges = [first, *changes, last]
    texts = [str(number) for number in range(result.count + 1)]
    if result.machine is not None:
        texts[-1] += f"\n{confidence(result)}"
    return [
        (start, end, text) for text, (start, end) in zip(texts, pairwise(edges), strict=True) if end - start > 1e-3
    ]


def timestamp(seconds: float) -> str:
    """SubRip time: 00:01:02,345."""
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d},{milliseconds % 1000:03d}"


FORMULA = r"[\s\ufeff\u200b]*[=+\-@|%＝＋－＠｜％]|[\t\r\n]"
"""What a spreadsheet takes, or may be made to take, for the beginning of a formula."""


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], *, paths: Collection[str] = ()) -> str:
    """Header and rows; None is an empty cell, and every text is guarded. paths: columns whose guard is "./"."""
    guards = ["./" if name in paths else "'" for name in columns]
    lines = ([guarded(value, guard) for value, guard in zip(row, guards, strict=True)] for row in rows)
    return "".join(_line(cells) for cells in (columns, *lines))


def _line(cells: Sequence[object]) -> str:
    """One row. The csv module quotes only the line ends that it writes itself: with both, both are quoted."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()[:-2] + "\n"


def csv_rows(text: str, delimiter: str = ",") -> csv.DictReader[str]:
    """Rows by column name, whatever the lines end with; cells keep the line ends in them."""
    return csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)


@contextmanager
def cells_of_any_length() -> Iterator[None]:
    """For tables that we wrote ourselves: the density map of a long video is more than csv reads by default."""
    usual = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(usual)


def guarded(value: object, guard: str = "'") -> str:
    """A cell that no spreadsheet takes for a formula, and that UTF-8 can hold. Numbers stay as they are.

    guard: what is put before a text that looks like one, or like one with a guard; "./" leaves a path the same path.
    """
    text = "" if value is None else printable(str(value))
    return f"{guard}{text}" if isinstance(value, str) and _looks(text, guard) else text


def unguarded(cell: str, guard: str = "'") -> str:
    """The text that `guarded` made a cell of."""
    return cell.removeprefix(guard) if cell.startswith(guard) and _looks(cell, guard) else cell


def _looks(text: str, guard: str) -> bool:
    return re.match(f"(?:{re.escape(guard)})*(?:{FORMULA})", text) is not None
