"""One decision: count, unit, hypotheses, confidence and reasons, from what the network says of a video.

`decide` is the entrance for a model that says what each of its views sees, `decide_by_map` for one that has a density
map and its own confidence. Nothing else rounds a count, converts a unit or lowers a confidence, except that several
places (`counting/places.py`) are as sure as the least sure one, and unsure where something travels. The constants are
in `rules.py`, what the network says in `evidence.py`, what speaks against an answer in `doubts.py`, whole counts and
units in `units.py`.

A motion of two opposite sides (battle ropes, running on the spot) can be counted by full cycles or by sides; both are
right, and people do both; or there is no repetition at all. Each is a hypothesis with its probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from escounts.decision.doubts import Cap, Footage, few_pictures, unanswered, why_vague
from escounts.decision.evidence import (
    Evidence,
    alternates_features,
    blocks,
    choose_views,
    features,
    is_zero,
    logistic,
    main_view,
    repeats_features,
)
from escounts.decision.repetitions import DensityMap, Repetition, Stretch
from escounts.decision.rules import BASE_RATE, FEATURES, RULES, Calibration
from escounts.decision.units import (
    UNIT_GIVEN,
    Hypothesis,
    Unit,
    possible_counts,
    rest_factor,
    unit_certainty,
    unit_reason,
    whole,
)
from escounts.system.arrays import Array32

ConfidenceKind = Literal["probability", "agreement"]
"""What a confidence is: the calibrated probability that the count is within one of the truth, or how well a model's
own looks at the video agree, which says nothing of the truth."""

UNCALIBRATED = "this model's confidence was never compared with true counts"
UNLIKE = "nothing here looks like the reference, so that it may be another motion"
UNCLEAR = "part of the video looks neither like the marked motion nor clearly unlike it"
SEEN_ONCE = "the motion is seen once: nothing is known to repeat"
ONCE_OR_NEVER = "something moves; a motion that happens once looks no different"


@dataclass(frozen=True)
class Asked:
    """What a person said beside the video.

    Args:
        exemplars: how many repetitions are marked, in this video or another.
        marked: base frames that each exemplar of this video lasts.
        without: what the views say without the exemplars.
        assume_repeats: the video is taken to repeat.
        unlike: the exemplars are of another video, and nothing in this one looks like them.
        unclear: a part of the video looks neither like the marked motion nor clearly unlike it.
        ranged: where the counted stretch begins or ends: at a border between repetitions, so that none is cut off.
    """

    exemplars: int = 0
    marked: tuple[float, ...] = ()
    without: Sequence[Evidence] = ()
    assume_repeats: bool = False
    unlike: bool = False
    unclear: bool = False
    ranged: bool = False


@dataclass(frozen=True)
class Decision:
    """The answer for a stretch of video, and what it stands on.

    Args:
        count: repetitions, of `unit`; None where the model does not tell cycles from sides, and where there are none.
        density: repetitions per cell, of `unit`.
        rest: what its sum is multiplied by where the video cuts repetitions off.
        reasons: why it is not sure; none where it is.
        hypotheses: what else may be true, this answer first; empty where the model gives none.
        view: the view that speaks, by its place. features: the vector FEATURES behind the confidence.
        scored: gives repetitions their scores; None where the model has no evidence of single ones.
        stretches: where the video shows which motion; empty where the model does not tell motions apart.
        left_out: repetitions of other motions than the exemplar's.
    """

    count: int
    unit: Unit | None
    density: DensityMap
    rest: float
    confidence: float
    kind: ConfidenceKind
    unsure: bool
    reasons: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    view: int = 0
    features: tuple[float, ...] = ()
    scored: Callable[[Sequence[Repetition]], tuple[Repetition, ...]] | None = None
    stretches: tuple[Stretch, ...] = ()
    left_out: tuple[Repetition, ...] = ()


def decide(
    views: Sequence[Evidence],
    calibration: Calibration,
    *,
    asked: Asked | None = None,
    footage: Footage | None = None,
    start: float = 0.0,
) -> Decision:
    """The answer of a model with views.

    Args:
        views: what each of them says, with the exemplars where there are any.
        calibration: the model's.
        asked: exemplars and assumptions.
        footage: what moves, and how many pictures there are; None where nobody looked.
        start: seconds of the video at the first frame.
    """
    asked = asked or Asked()
    given = asked.exemplars > 0 or asked.assume_repeats
    density, chosen = choose_views(views, calibration, repeats=given)
    zero, zero_shot_count = is_zero(density), None
    if asked.exemplars:
        alone, _ = choose_views(asked.without, calibration, repeats=asked.assume_repeats)
        zero_shot_count = float(alone.sum())
    values = features(views, density, chosen, zero_shot_count=zero_shot_count)
    weights = calibration.nothing_weights if zero else calibration.weights
    confidence = logistic(float(np.dot(weights, values)))
    details = dict(zip(FEATURES[1:], (round(float(v), 4) for v in values[1:]), strict=True))
    below = calibration.unsure_below
    caps: list[Cap] = []
    if confidence < below:
        vague = why_vague(views, density, chosen, start=start, without=zero_shot_count)
        right = math.floor(100 * confidence)  # rounded as an unsure confidence is wherever it is shown
        caps += [(confidence, why) for why in vague or (f"of such answers {right}% are within one of the truth",)]
    moves = footage is not None and bool(footage.moving.any())
    if footage is not None and moves:
        details["pictures"] = round(footage.pictures, 1)
    caps += _doubts(views, density, calibration, asked, footage if moves else None, zero_shot_count, start)
    rest = 1.0 if asked.ranged else rest_factor(density)
    map_ = DensityMap(density, start, 1 / BASE_RATE, "rate")
    count, unit = whole(map_.scaled(rest).count), None
    hypotheses: tuple[Hypothesis, ...] = ()
    if not given and calibration.repeats:
        details[UNIT_GIVEN] = round(_held_down(confidence, caps), 4)
        hypotheses = _hypotheses(views, density, calibration, ranged=asked.ranged)
        count, unit = hypotheses[0].count, hypotheses[0].unit
        if not zero and (most := unit_certainty(hypotheses)) < 1:
            caps.append((doubted(most, below), unit_reason(hypotheses)))
    confidence = _held_down(confidence, caps)
    kind: ConfidenceKind = "probability" if calibration.calibrated else "agreement"
    return Decision(
        count,
        unit,
        map_,
        rest,
        confidence,
        kind,
        unsure=is_unsure(confidence, kind, below),
        reasons=tuple(why for most, why in caps if most < below) if calibration.calibrated else (UNCALIBRATED,),
        hypotheses=hypotheses,
        details=details,
        view=main_view(chosen),
        features=tuple(values.tolist()),
    )


def decide_by_map(density: DensityMap, confidence: float, details: Mapping[str, float]) -> Decision:
    """The answer of a model that has a density map and a confidence that nobody compared with true counts."""
    rest = rest_factor(density.values) if density.kind == "rate" else 1.0
    count = whole(density.scaled(rest).count)
    return Decision(count, None, density, rest, confidence, "agreement", True, (UNCALIBRATED,), details=details)


def assuming(ask: Callable[..., Decision]) -> Decision:
    """The answer where a person says that something repeats: a count that is there needs no assumption."""
    decision = ask()
    return decision if decision.count else ask(assume_repeats=True)


def is_unsure(confidence: float, kind: ConfidenceKind, below: float) -> bool:
    """Whether a count is called unsure: its probability is too low, or its confidence is not a probability."""
    return kind != "probability" or confidence < below


def doubted(confidence: float, below: float | None) -> float:
    """A confidence at which an answer is unsure. below: the model's threshold, None where it has none."""
    return confidence if below is None else min(confidence, below - RULES.just_under)


def p_repeats(views: Sequence[Evidence], calibration: Calibration) -> float:
    """The probability that there is a repetition at all, of the block of a long video where it is largest."""
    parts = [around for _, _, around in blocks(len(views[0].density))]
    rows = [repeats_features(views, calibration.choice, part) for part in parts]
    return max(logistic(float(np.dot(calibration.repeats, row))) for row in rows)


def p_alternates(views: Sequence[Evidence], calibration: Calibration) -> float:
    """The probability that the motion has two opposite sides, if there are repetitions."""
    if not calibration.alternates:
        return 0.0
    return logistic(float(np.dot(calibration.alternates, alternates_features(views))))


def _held_down(confidence: float, caps: Sequence[Cap]) -> float:
    """The only way to lower a confidence: each cap has a reason."""
    return min([confidence, *(most for most, _ in caps)])


def _doubts(
    views: Sequence[Evidence],
    density: Array32,
    calibration: Calibration,
    asked: Asked,
    footage: Footage | None,
    without: float | None,
    start: float,
) -> list[Cap]:
    """What speaks against an answer beside the views themselves. footage: where something moves. without: the sum
    without the exemplars, where there are any."""
    caps: list[Cap] = []
    gaps: list[Cap] = []
    share = max(asked.marked, default=0.0) / max(len(density), 1)
    if without is not None and share > RULES.long_exemplar and abs(float(density.sum()) - without) > 1:
        why = f"the exemplar is {share:.0%} of what was counted, and without it the count is {whole(without)}"
        caps.append((RULES.unchecked, why))
    if asked.unlike:
        caps.append((RULES.unchecked, UNLIKE))
    if asked.unclear:
        caps.append((RULES.unchecked, UNCLEAR))
    given = asked.exemplars > 0 or asked.assume_repeats
    if not (given or is_zero(density)) and float(density.sum()) < RULES.seen_twice:
        caps.append((RULES.once_or_never, SEEN_ONCE))
    if footage is not None:
        caps += few_pictures(footage.pictures, [frames / BASE_RATE for frames in asked.marked])
        if not given and is_zero(density):
            caps.append((RULES.once_or_never, ONCE_OR_NEVER))
        elif not given:
            gaps = unanswered(views, density, footage, calibration, start=start)
    return [*((doubted(most, calibration.unsure_below), why) for most, why in caps), *gaps]


def _hypotheses(
    views: Sequence[Evidence], density: Array32, calibration: Calibration, *, ranged: bool
) -> tuple[Hypothesis, ...]:
    """What may be true, the most useful first, where nobody said what a repetition is."""
    repeats = p_repeats(views, calibration)
    if is_zero(density):  # what it would be if there were something after all
        density, _ = choose_views(views, calibration, repeats=True)
        repeats = min(repeats, 0.49)  # shut gates sum to nothing, whatever is said of the video
    else:
        repeats = max(repeats, 0.5)
    alternates = p_alternates(views, calibration)
    rest = 1.0 if ranged else rest_factor(density)
    return possible_counts(float(density.sum()), repeats=repeats, alternates=alternates, rest=rest)
