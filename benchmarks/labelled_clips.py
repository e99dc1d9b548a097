"""Labelled clips that no weights were trained on, and single sets: what models are chosen by.

    python benchmarks/labelled_clips.py --clips DIR [--model NAME_OR_FILE …] [--split val] [--out FILE.json]

DIR holds pool_labels.csv (file, split, motion, count, rep_times, alternates, sure), pool.csv (file, source), sets.csv
(file, action, count, t_start, t_end, exemplar_start_s, exemplar_end_s) and the clips. Prints a table with 95 %
intervals over sources; that of the shipped model goes to benchmarks/results/, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelled import Span, by_clip, read_sets
from report import arguments, markdown, mean_text, replace_section, write_json

import escounts
from escounts.errors import EscountsError
from escounts.results import CountResult


@dataclass(frozen=True)
class Case:
    """One question: the true count, what was answered without and with an exemplar, and whose footage it is."""

    source: str
    truth: int
    zero_shot: CountResult
    one_exemplar: CountResult | None


Measure = tuple[str, Callable[[Case], bool], Callable[[Case], float]]
"""Its name, which cases it is of, and its value for one of them."""


def main() -> None:
    parser = arguments(__doc__, clips=True)
    parser.add_argument("--model", nargs="+", default=["lite"])
    parser.add_argument("--split", default="val")
    parser.add_argument("--out", type=Path, help="JSON file of every answer")
    options = parser.parse_args()
    columns: list[list[str]] = []
    record: dict[str, Any] = {}
    for name in options.model:
        counter = escounts.load(name)
        clips = list(ask_clips(counter, options.clips, options.split))
        sets = list(ask_sets(counter, options.clips))
        columns.append([shown(measure, clips) for measure in CLIPS] + [shown(measure, sets) for measure in SETS])
        record[name] = [[case.truth, case.zero_shot.count, case.zero_shot.confidence] for case in [*clips, *sets]]
    measures = [name for name, _, _ in (*CLIPS, *SETS)]
    table = markdown(["", *(Path(name).stem for name in options.model)], zip(measures, *columns, strict=True))
    print(table)
    if options.out:
        write_json(options.out, record)
    if options.model[0] == "lite" and options.split == "val":
        about = "labelled clips of sources that are not trained on, and single sets; 95 % intervals over sources"
        text = f"## Labelled clips\n\n`python benchmarks/labelled_clips.py`: {about}.\n\n{table}"
        replace_section("labelled clips", text)


def ask_clips(counter: escounts.Counter, folder: Path, split: str) -> Iterator[Case]:
    """Every clip of a split: all its repetitions without an exemplar, and with one where it has a single motion."""
    for sets in by_clip(read_sets(folder / "pool_labels.csv", folder, split=split)).values():
        encoded = counter.encode(sets[0].path)
        shot = asked(encoded, sets[0].exemplar) if len(sets) == 1 and sets[0].exemplar else None
        yield Case(sets[0].source, sum(one.count for one in sets), encoded.count(), shot)


def ask_sets(counter: escounts.Counter, folder: Path) -> Iterator[Case]:
    """Every set of sets.csv in its own range."""
    for sets in by_clip(read_sets(folder / "sets.csv", folder)).values():
        video = counter.encode(sets[0].path)
        for one in sets:
            assert one.within is not None and one.exemplar is not None
            start, end = one.within
            shot = asked(video, one.exemplar, start, end)
            yield Case(one.name, one.count, video.count(start=start, end=end), shot)


def asked(
    video: escounts.EncodedVideo,
    exemplar: Span,
    start: float | None = None,
    end: float | None = None,
) -> CountResult | None:
    """The count with an exemplar; None where it cannot be one."""
    try:
        return video.count(exemplars=[exemplar], start=start, end=end)
    except EscountsError:
        return None


def once_known(case: Case) -> float:
    """One repetition: counted as one, or not sure with one among the first two answers."""
    answer = case.zero_shot
    return answer.count == 1 or (answer.unsure and 1 in [one.count for one in answer.hypotheses[:2]])


def off(answer: CountResult | None, truth: int) -> float:
    return abs(answer.count - truth) if answer is not None else truth


def many(case: Case) -> bool:
    return case.truth >= 3


def guided(case: Case) -> bool:
    return case.truth >= 3 and case.one_exemplar is not None


CLIPS: tuple[Measure, ...] = (
    ("three or more: MAE", many, lambda c: off(c.zero_shot, c.truth) / c.truth),
    ("three or more: within one", many, lambda c: off(c.zero_shot, c.truth) <= 1),
    ("three or more: exact", many, lambda c: off(c.zero_shot, c.truth) == 0),
    ("three or more: answered 0", many, lambda c: c.zero_shot.count == 0),
    ("three or more, one exemplar: MAE", guided, lambda c: off(c.one_exemplar, c.truth) / c.truth),
    ("three or more, one exemplar: within one", guided, lambda c: off(c.one_exemplar, c.truth) <= 1),
    ("two: exact", lambda c: c.truth == 2, lambda c: c.zero_shot.count == 2),
    ("one: exact, or not sure with 1 beside", lambda c: c.truth == 1, once_known),
    ("one: exact", lambda c: c.truth == 1, lambda c: c.zero_shot.count == 1),
    ("one: 0, sure", lambda c: c.truth == 1, lambda c: c.zero_shot.count == 0 and not c.zero_shot.unsure),
    ("none: answered 0", lambda c: c.truth == 0, lambda c: c.zero_shot.count == 0),
    ("all: sure", lambda c: True, lambda c: not c.zero_shot.unsure),
    ("sure: off by more than one", lambda c: not c.zero_shot.unsure, lambda c: off(c.zero_shot, c.truth) > 1),
)
SETS: tuple[Measure, ...] = (
    ("sets: MAE", lambda c: True, lambda c: off(c.zero_shot, c.truth) / c.truth),
    ("sets: within one", lambda c: True, lambda c: off(c.zero_shot, c.truth) <= 1),
    ("sets, one exemplar: MAE", lambda c: True, lambda c: off(c.one_exemplar, c.truth) / c.truth),
    ("sets, one exemplar: within one", lambda c: True, lambda c: off(c.one_exemplar, c.truth) <= 1),
)


def shown(measure: Measure, cases: Sequence[Case]) -> str:
    """Mean of a measure, its interval over sources, and of how many cases it is."""
    _, which, value = measure
    found = [case for case in cases if which(case)]
    text = mean_text([float(value(case)) for case in found], [case.source for case in found])
    return f"{text}, {len(found)}" if found else text


if __name__ == "__main__":
    main()
