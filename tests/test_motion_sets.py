"""Sets: repetitions of one motion without a longer pause between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from escounts.decision.repetitions import Stretch, into_sets, regrouped, typical
from escounts.output.json import from_dict, to_dict
from escounts.output.text import headline, in_words, set_lines
from escounts.results import CountResult, DensityMap, Repetition


def bout(start: float, count: int, length: float = 2.0) -> list[Repetition]:
    """`count` repetitions one after another."""
    return [Repetition(start + length * i, start + length * (i + 1)) for i in range(count)]


def test_a_pause_ends_a_set() -> None:
    sets = into_sets([*bout(0, 8), *bout(61, 8), *bout(129, 6, 2.4)])
    assert [one.count for one in sets] == [8, 8, 6]
    assert [one.motion for one in sets] == ["A", "A", "A"]
    assert [one.rest_before for one in sets] == [None, 45.0, 52.0]
    assert [round(one.tempo, 2) for one in sets] == [2.0, 2.0, 2.4]
    assert in_words(sets) == "3 sets: 8, 8, 6; rests 45 s and 52 s; the last set 20 % slower"


def test_slow_repetitions_may_lie_further_apart() -> None:
    slow = [Repetition(0, 4), Repetition(8, 12), Repetition(16, 20)]
    assert [one.count for one in into_sets(slow)] == [3]
    quick = [Repetition(0, 1), Repetition(5, 6), Repetition(10, 11)]
    assert [one.count for one in into_sets(quick)] == [1, 1, 1]


def test_another_motion_begins_a_set_and_keeps_its_letter() -> None:
    stretches = [Stretch(0, 10, 4), Stretch(10, 20, 7), Stretch(20, 30, 4)]
    sets = into_sets(bout(0, 15), stretches)
    assert [(one.motion, one.count) for one in sets] == [("A", 5), ("B", 5), ("A", 5)]
    assert in_words(sets) == "3 sets: 5 A, 5 B, 5 A"
    halves = bout(0, 30, 1.0)
    assert [(one.motion, one.count) for one in regrouped(sets, halves)] == [("A", 10), ("B", 10), ("A", 10)]


def test_none_and_one() -> None:
    assert into_sets([]) == ()
    (only,) = into_sets(bout(3, 1))
    assert (only.count, only.rest_before, only.spread) == (1, None, 0.0)
    assert set_lines(into_sets(bout(0, 4))) == [
        "  1 set: 4",
        "  set  motion  count    from      to  rest before  s per repetition",
        "    1       A      4  0:00.0  0:08.0                    2.00 ± 0.00",
    ]


@pytest.fixture
def result() -> CountResult:
    found = (*bout(0, 3), *bout(20, 2))
    density = DensityMap(np.full(60, 5 / 60, np.float32), 0.0, 0.5, "rate")
    left = (Repetition(10.0, 12.0, 0.4),)
    return CountResult("v.mp4", "lite", 5, 5.0, found, density, 0.9, False, 30.0, (0.0, 30.0), left_out=left)


def test_json_keeps_sets_and_what_was_left_out(result: CountResult) -> None:
    marked = replace(result, sets=into_sets(result.repetitions))
    again = from_dict(to_dict(marked))
    assert again.sets == marked.sets and again.left_out == marked.left_out


def test_a_document_without_sets_gets_them_by_pauses(result: CountResult) -> None:
    old = {name: value for name, value in to_dict(result).items() if name not in ("sets", "left_out")}
    again = from_dict(old)
    assert [one.count for one in again.sets] == [3, 2] and again.left_out == ()


def test_corrected_repetitions_are_new_sets(result: CountResult) -> None:
    fixed = replace(result, sets=into_sets(result.repetitions)).corrected([(0, 2), (2, 4), (20, 22)])
    assert [one.count for one in fixed.sets] == [2, 1] and fixed.left_out == ()


def test_report_and_picture_show_sets_and_what_was_left_out(result: CountResult, tmp_path: Path) -> None:
    marked = replace(result, sets=into_sets(result.repetitions))
    marked.save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count('<span class="bar"') == 2 and page.count('<rect class="left"') == 1
    assert "<td>14.0 s</td>" in page
    bare = replace(marked, sets=(), left_out=())
    bare.save(tmp_path / "bare.html")
    assert '<table class="hidden">' in (tmp_path / "bare.html").read_text(encoding="utf-8")
    words = [text.get_text() for text in marked.plot().axes[0].texts]
    assert "3 A" in words and "2 A" in words


def test_the_headline_says_what_was_left_out(result: CountResult) -> None:
    assert "; 1 other repetition between 0:10.0 and 0:12.0 was not counted" in headline(result)
    nothing = replace(result, count=0, repetitions=())
    assert "v.mp4: the marked motion does not occur here, " in headline(nothing)
    assert "no repetitions" in headline(replace(nothing, left_out=()))


def test_an_exemplar_of_a_set_is_its_most_usual_repetition() -> None:
    found = [*bout(0, 3, 2.0), Repetition(20.0, 24.0), Repetition(24.0, 26.5), Repetition(26.5, 28.0)]
    sets = into_sets(found)
    assert typical(found, sets[1]) == Repetition(24.0, 26.5)
