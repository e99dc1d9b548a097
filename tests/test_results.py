"""What a model holds possible becomes a result: the best hypothesis, its unit, its repetitions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from movies import bouncing, write_movie

import escounts
from escounts.counter import Counter
from escounts.decision.decide import Decision, decide_by_map
from escounts.decision.units import UNIT_GIVEN, rest_factor
from escounts.errors import EscountsError, ExemplarError, OutputError
from escounts.output.json import from_dict, to_dict
from escounts.output.text import headline
from escounts.results import EXEMPLAR_CUT, CountResult, DensityMap, Hypothesis, Repetition
from escounts.system import extras
from escounts.video.files import Video

FOUR_CYCLES = DensityMap(np.full(40, 0.1, np.float32), 0.0, 0.1, "rate")
CYCLE, SIDE, NONE = Hypothesis(4, "cycle", 0.55), Hypothesis(8, "side", 0.40), Hypothesis(0, None, 0.05)


class Told:
    """A model and its encoding that say what they are told to say, four seconds long."""

    name, unsure_below, start, end, nbytes = "told", 0.9, 0.0, 4.0, 12

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def encode(self, video: Video, **_: object) -> Told:
        return self

    def encode_exemplar(self, start: float, end: float, **_: object) -> tuple[float, float]:
        return start, end

    def estimate(self, exemplars: Sequence[object] = (), **options: object) -> Decision:
        return self._decision


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("results") / "movie.mp4", bouncing(4, 4.0))


def decided(confidence: float, *hypotheses: Hypothesis, **options: Any) -> Decision:
    first = {"count": hypotheses[0].count, "unit": hypotheses[0].unit} if hypotheses else {}
    given: dict[str, Any] = {"kind": "probability", "unsure": confidence < 0.9, "hypotheses": hypotheses}
    return replace(decide_by_map(FOUR_CYCLES, confidence, {}), **given | first | options)


def counter(*hypotheses: Hypothesis, **options: Any) -> Counter:
    return Counter(Told(decided(0.55, *hypotheses, **options)))


def test_a_unit_that_the_model_left_out_is_still_the_first_hypothesis(movie: Path) -> None:
    """It was so improbable that it is not among them; the count is that of the first in every case."""
    chosen = counter(Hypothesis(4, "cycle", 0.99), NONE).count(movie, unit="side")
    document = to_dict(chosen)
    assert (chosen.count, chosen.unit) == (8, "side") and document["hypotheses"][0]["count"] == document["count"] == 8
    assert [(one.count, one.unit) for one in chosen.hypotheses] == [(8, "side"), (4, "cycle"), (0, None)]
    assert chosen.in_unit("cycle").hypotheses[0].count == chosen.in_unit("cycle").count == 4


def test_a_unit_beside_assumed_repetitions_is_not_called_the_models_fault(movie: Path) -> None:
    with pytest.raises(EscountsError, match=r"unit 'side' and assume_repeats.*give one of them"):
        counter().count(movie, unit="side", assume_repeats=True)


def test_assuming_repetitions_changes_no_count_that_is_not_zero(movie: Path) -> None:
    class Assuming(Told):
        """Twice as many where it is told that it repeats."""

        def estimate(self, exemplars: Sequence[object] = (), **options: object) -> Decision:
            return decided(0.55, Hypothesis(8, "cycle", 1.0)) if options.get("assume_repeats") else self._decision

    assert Counter(Assuming(decided(0.55, CYCLE))).count(movie, assume_repeats=True).count == 4
    assert Counter(Assuming(decided(0.55, NONE, CYCLE))).count(movie, assume_repeats=True).count == 8


def test_an_exemplar_across_a_cut_is_said_even_where_the_count_is_sure(movie: Path) -> None:
    result = counter(details={EXEMPLAR_CUT: 2.0}).count(movie, exemplars=["1.5-2.5"])
    assert "; the film is cut at 0:02.0, inside the exemplar: mark one repetition on one side" in headline(result)
    assert "cut" not in headline(counter().count(movie, exemplars=["1.5-2.5"]))
    assert "cut" not in headline(result.corrected([(0.0, 1.0)]))


def spans(result: CountResult) -> list[tuple[float, float]]:
    return [(round(r.start, 3), round(r.end, 3)) for r in result.repetitions]


def test_the_first_hypothesis_is_the_count(movie: Path) -> None:
    cycles = counter(CYCLE, SIDE, NONE).count(movie)
    assert (cycles.count, cycles.unit, cycles.hypotheses) == (4, "cycle", (CYCLE, SIDE, NONE))
    assert cycles.unsure and cycles.confidence == 0.55, "sure with two live units is a contradiction"
    none = counter(NONE, CYCLE).count(movie)
    assert (none.count, none.unit, none.repetitions) == (0, None, ())


def test_a_person_chooses_the_unit(movie: Path) -> None:
    """Each cycle's span is halved; the doubt that was about the unit is gone."""
    chosen = counter(CYCLE, SIDE, NONE, details={UNIT_GIVEN: 0.95}).count(movie, unit="side")
    assert (chosen.count, chosen.unit, len(chosen.repetitions)) == (8, "side", 8)
    assert chosen.raw_count == chosen.density.count == pytest.approx(8.0) and chosen.hypotheses[0] == SIDE
    assert spans(chosen)[:2] == [(0.0, 0.5), (0.5, 1.0)]
    assert chosen.confidence == pytest.approx(0.95) and not chosen.unsure
    back = chosen.in_unit("cycle")
    assert (back.count, back.unit) == (4, "cycle") and spans(back) == spans(counter(CYCLE).count(movie))
    assert counter(NONE, CYCLE).count(movie, unit="side").count == 0


def test_a_unit_that_is_given_makes_no_vague_count_sure(movie: Path) -> None:
    vague = counter(CYCLE, SIDE, NONE, details={UNIT_GIVEN: 0.6}).count(movie, unit="side")
    assert vague.confidence == pytest.approx(0.6) and vague.unsure
    untold = counter(CYCLE, SIDE, NONE).count(movie, unit="side")
    assert untold.confidence == 0.55 and untold.unsure


def test_a_side_count_that_is_not_twice_the_cycles_has_its_own_spans(movie: Path) -> None:
    odd = counter(CYCLE, Hypothesis(9, "side", 0.3)).count(movie, unit="side")
    assert odd.count == 9 == len(odd.repetitions)
    assert spans(odd)[0][0] == 0.0 and spans(odd)[-1][1] == 4.0


def test_a_unit_that_nobody_can_tell_is_refused(movie: Path) -> None:
    with pytest.raises(EscountsError, match=r"model 'told' does not tell cycles from sides; .*mark one side"):
        counter().count(movie, unit="side")
    with pytest.raises(ExemplarError, match="the exemplar says what one repetition is"):
        counter(CYCLE, SIDE).count(movie, exemplars=[(0.0, 1.0)], unit="side")
    with pytest.raises(EscountsError, match="counted without a unit"):
        counter().count(movie).in_unit("side")


def test_agreement_is_never_sure(movie: Path) -> None:
    kind = Counter(Told(decided(0.991, kind="agreement", unsure=True))).count(movie)
    assert kind.confidence_kind == "agreement" and kind.unsure and kind.unsure_below is None
    assert not Counter(Told(decided(0.991))).count(movie).unsure


def test_an_exemplar_of_the_same_video_sets_the_phase(movie: Path) -> None:
    free, anchored = counter().count(movie), counter().count(movie, exemplars=[(0.4, 1.4)])
    assert free.phase == "arbitrary" and anchored.phase == "exemplar"
    assert any(start == pytest.approx(1.4) for start, _ in spans(anchored))
    other = counter().count(movie, exemplars=[(counter().encode(movie), 0.4, 1.4)])
    assert other.phase == "arbitrary", "another video's exemplar says nothing of this one's borders"


def test_json_keeps_what_version_1_1_added_and_reads_1_0(movie: Path) -> None:
    result = counter(CYCLE, SIDE, NONE).count(movie)
    data = to_dict(result)
    assert data["version"] == "1.2" and data["phase"] == "arbitrary" and data["unit"] == "cycle"
    assert data["hypotheses"] == [
        {"count": 4, "unit": "cycle", "p": 0.55},
        {"count": 8, "unit": "side", "p": 0.4},
        {"count": 0, "p": 0.05},
    ]
    assert from_dict(data).in_unit("side").count == 8
    new = ("confidence_kind", "unsure_below", "unit", "hypotheses", "phase")
    old = {name: value for name, value in data.items() if name not in new} | {"version": "1.0"}
    read = from_dict(old)
    assert (read.count, read.hypotheses, read.phase, read.confidence_kind) == (4, (), "arbitrary", "probability")


def test_a_repetition_without_evidence_has_no_score() -> None:
    data = to_dict(CountResult("v", "m", 1, 1.0, (Repetition(0.0, 1.0),), FOUR_CYCLES, 0.5, True, 4.0, (0.0, 4.0)))
    assert data["repetitions"] == [{"start": 0.0, "end": 1.0, "score": None}]
    assert from_dict(data).repetitions[0].score is None
    early = data | {"repetitions": [{"start": 0.0, "end": 1.0}]}
    assert from_dict(early).repetitions[0].score is None


def counted(values: np.ndarray, kind: str = "rate", seconds: float = 4.0) -> CountResult:
    density = DensityMap(values.astype(np.float32), 0.0, seconds / len(values), kind)  # type: ignore[arg-type]
    found = tuple(replace(one, score=i / 10) for i, one in enumerate(density.repetitions()))
    return CountResult("v.mp4", "m", len(found), density.count, found, density, 0.9, False, seconds, (0.0, seconds))


def borders(result: CountResult) -> set[float]:
    return {round(border, 2) for span in spans(result) for border in span}


@pytest.mark.parametrize("at", [1.3, 1.7, 2.3, 0.2, 3.9])
def test_one_dragged_border_moves_all(at: float) -> None:
    free = counted(np.full(400, 0.01))
    moved = free.aligned(at=at)
    assert free.phase == "arbitrary" and moved.phase == "corrected" and moved.count == 4 == len(moved.repetitions)
    assert round(at, 2) in borders(moved)
    inner = sorted(borders(moved) - {0.0, 4.0})
    assert inner == pytest.approx([round(at % 1.0, 2) + i for i in range(len(inner))], abs=0.011)
    assert all(start < end for start, end in spans(moved))


def test_a_tempo_that_changes_moves_borders_by_a_part_of_each_repetition() -> None:
    """One second each, then two seconds each; a border a quarter of a repetition later is one everywhere."""
    free = counted(np.concatenate([np.full(200, 0.01), np.full(400, 0.005)]), seconds=6.0)
    assert sorted(borders(free)) == [0.0, 1.0, 2.0, 4.0, 6.0]
    assert sorted(borders(free.aligned(at=1.25)))[1:4] == pytest.approx([1.25, 2.5, 4.5], abs=0.02)


def test_a_border_dragged_out_of_a_stretch_and_the_other_stretch_follow() -> None:
    """Two stretches of three, still before, between and after; the person begins each repetition 0.2 s earlier."""
    stretch = np.full(300, 0.01)
    free = counted(np.concatenate([np.zeros(100), stretch, np.zeros(200), stretch, np.zeros(100)]), seconds=10.0)
    assert [start for start, _ in spans(free)] == pytest.approx([1, 2, 3, 6, 7, 8], abs=0.02)
    moved = free.aligned(at=0.8)
    assert moved.count == 6 and spans(moved)[0][0] == 0.8
    assert [end for _, end in spans(moved)] == pytest.approx([1.8, 2.8, 3.8, 6.8, 7.8, 8.8], abs=0.03)


def test_peaks_are_aligned_too_and_scores_stay_with_their_repetitions() -> None:
    values = np.zeros(80)
    values[10::20] = 1.0
    free = counted(values, "peaks")
    moved = free.aligned(at=1.2)
    assert [start for start, _ in spans(moved)] == pytest.approx([0.2, 1.2, 2.2, 3.2], abs=0.06)
    assert [one.score for one in moved.repetitions] == [one.score for one in free.repetitions]


def test_nowhere_to_put_a_border() -> None:
    with pytest.raises(EscountsError, match="there are no repetitions"):
        counted(np.zeros(40)).aligned(at=1.0)
    with pytest.raises(EscountsError, match="counted are 0 to 4 s"):
        counted(np.full(40, 0.1)).aligned(at=5.0)


def test_a_result_prints_in_a_line_and_saves_itself(movie: Path, tmp_path: Path) -> None:
    result = counter(CYCLE, SIDE).count(movie)
    assert str(result) == "movie.mp4: 4 repetitions, confidence 0.55, unsure"
    assert repr(result) == f"<CountResult {result}>" and len(repr(result.density)) < 80
    for ending in ("json", "csv", "srt", "txt", "html", "png", "mp4"):
        result.save(tmp_path / f"r.{ending}")
        assert (tmp_path / f"r.{ending}").stat().st_size > 0
    assert from_dict(json.loads((tmp_path / "r.json").read_text())).count == 4 and result.to_dict()["count"] == 4
    assert len(result.plot().axes) >= 2
    with pytest.raises(OutputError, match=r"no format ends in '\.bmp'; known: \.txt, \.json"):
        result.save(tmp_path / "r.bmp")
    with pytest.raises(OutputError, match="the counted video itself"):
        result.save(movie)


def test_numbers_are_python_floats(movie: Path) -> None:
    start, end = cast(float, np.float32(0.5)), np.float64(3.5)
    result = counter().encode(movie).count([(start, end)], start=start, end=end).aligned(at=np.float64(1.0))
    numbers = [result.raw_count, result.confidence, *result.range, *result.timings.values()]
    numbers += [value for one in result.repetitions for value in (one.start, one.end)]
    numbers += [value for span in result.exemplars for value in (span.start, span.end)]
    assert {type(number) for number in numbers} == {float}


def test_borders_in_partly_covered_cells_are_python_floats() -> None:
    """The first and the last of the sample's repetitions printed as np.float64(…)."""
    values = np.array([0.0, 0.05, *[0.1] * 19, 0.05, 0.0], np.float32)
    found = DensityMap(values, 0.0, 0.1, "rate").repetitions(2)
    assert {type(number) for one in found for number in (one.start, one.end)} == {float}


def test_the_package_shows_its_interface() -> None:
    assert {"count", "load", "Counter", "CountResult", "Hypothesis", "Video"} <= set(dir(escounts))
    assert not [name for name in dir(escounts) if name.startswith("_") and name != "__version__"]
    parameters = inspect.signature(escounts.count).parameters
    assert all(p.kind is not p.VAR_KEYWORD and p.annotation is not p.empty for p in parameters.values())


def test_the_advice_to_install_works_where_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    monkeypatch.setattr(extras, "__file__", str(checkout / "src" / "escounts" / "system" / "extras.py"))
    monkeypatch.chdir(checkout)
    assert extras.install_command("serve") == "pip install -e '.[serve]'"
    monkeypatch.chdir(tmp_path)
    assert extras.install_command("serve") == f"pip install -e '{checkout}[serve]'"
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "escounts" / "system" / "extras.py"))
    assert extras.install_command("serve").startswith("pip install 'fastapi>=")


@pytest.mark.parametrize(("rest", "counted"), [(0.0, 5), (0.45, 5), (0.65, 5), (0.75, 6), (0.95, 6)])
def test_what_the_end_cuts_off_counts_where_most_of_it_is_there(rest: float, counted: int) -> None:
    cut = np.full(300, (5 + rest) / 300)
    assert round(float(cut.sum()) * rest_factor(cut)) == counted
    begun = np.concatenate([np.zeros(30), cut])
    assert round(float(begun.sum()) * rest_factor(begun)) == counted, "the last one is not over"
    assert rest_factor(begun[::-1]) == 1.0, "a motion that ends in the video is not cut off there"


def test_the_weight_of_a_rest_does_not_jump() -> None:
    sums = [total * rest_factor(np.full(200, total / 200)) for total in np.arange(2.0, 5.0, 0.01)]
    assert all(0 <= later - sooner < 0.03 for sooner, later in pairwise(sums))
