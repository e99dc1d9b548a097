"""One decision: count, unit, hypotheses, confidence and reasons, from what the network says of a video.

`decide` is the entrance for a model that says what each of its views sees, `decide_by_map` for one that has a density
map and its own confidence. Nothing else rounds a count, converts a unit or lowers a confidence. The constants are in
`rules.py`, what the network says in `evidence.py`, whole counts and units in `units.py`.

A motion of two opposite sides (battle ropes, running on the spot) can be counted by full cycles or by sides; both are
right, and people do both; or there is no repetition at all. Each is a hypothesis with its probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

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
from escounts.decision.footage import Footage, few_pictures, unanswered
from escounts.decision.reasons import why_vague
from escounts.decision.rules import FEATURES, RULES, Calibration, CountingRules
from escounts.decision.units import (
    UNIT_GIVEN,
    Hypothesis,
    Unit,
    factor,
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
DensityKind = Literal["peaks", "rate"]

UNCALIBRATED = "this model's confidence was never compared with true counts"
UNLIKE = "nothing here looks like the reference, so that it may be another motion"
UNCLEAR = "part of the video looks neither like the marked motion nor clearly unlike it"
ONCE_OR_NEVER = "something moves; a motion that happens once looks no different"


@dataclass(frozen=True)
class Certainty:
    """A confidence and what holds it down. `at_most` is the only way to lower it, and takes a reason."""

    value: float
    caps: tuple[tuple[float, str], ...] = ()

    def at_most(self, most: float, reason: str) -> Certainty:
        """No more than `most`, because of `reason`."""
        return Certainty(min(self.value, most), (*self.caps, (most, reason)))

    def reasons(self, below: float) -> tuple[str, ...]:
        """Why it is less than `below`: each cap that alone makes it so."""
        return tuple(reason for most, reason in self.caps if most < below)


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
    """The answer, and what it stands on.

    count, unit: the answer. counted, density_unit: the same in the unit that the density counts. density: repetitions
    per frame, in density_unit; rest: what its sum is multiplied by where the video cuts repetitions off. view: the
    view that speaks, by its place. features: the vector FEATURES behind the confidence. reasons: why it is not sure;
    none where it is.
    """

    count: int
    unit: Unit | None
    confidence: float
    kind: ConfidenceKind
    unsure: bool
    reasons: tuple[str, ...]
    density: Array32
    density_unit: Unit | None
    counted: int
    rest: float
    hypotheses: tuple[Hypothesis, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    view: int = 0
    features: tuple[float, ...] = ()

    @property
    def useful_density(self) -> Array32:
        """The density in the unit of the answer; zero where the answer is "no repetitions"."""
        if self.hypotheses and self.hypotheses[0].count == 0:
            return self.density * np.float32(0)
        return self.density * np.float32(factor(self.density_unit, self.unit))


def decide(
    views: Sequence[Evidence],
    calibration: Calibration,
    *,
    base_rate: float,
    asked: Asked | None = None,
    footage: Footage | None = None,
    start: float = 0.0,
    rules: CountingRules = RULES,
) -> Decision:
    """The answer of a model with views.

    Args:
        views: what each of them says, with the exemplars where there are any.
        calibration: the model's.
        base_rate: frames per second of the evidence.
        asked: exemplars and assumptions.
        footage: what moves, and how many pictures there are; None where nobody looked.
        start: seconds of the video at the first frame, for reasons.
        rules: the constants.
    """
    asked = asked or Asked()
    given = asked.exemplars > 0 or asked.assume_repeats
    density, chosen = choose_views(views, base_rate, calibration, repeats=given, rules=rules)
    zero_shot_count: float | None = None
    caps: list[tuple[float, str]] = []
    gaps: list[tuple[float, str]] = []
    if asked.exemplars:
        alone, _ = choose_views(asked.without, base_rate, calibration, repeats=asked.assume_repeats, rules=rules)
        zero_shot_count = float(alone.sum())
        share = max(asked.marked, default=0.0) / max(len(density), 1)
        if share > rules.long_exemplar and abs(float(density.sum()) - zero_shot_count) > 1:
            other = whole(zero_shot_count)
            why = f"the exemplar is {share:.0%} of what was counted, and without it the count is {other}"
            caps.append((rules.unchecked, why))
    if asked.unlike:
        caps.append((rules.unchecked, UNLIKE))
    if asked.unclear:
        caps.append((rules.unchecked, UNCLEAR))
    values = features(views, density, chosen, base_rate, zero_shot_count=zero_shot_count, rules=rules)
    weights = calibration.nothing_weights if is_zero(density) else calibration.weights
    certainty = Certainty(logistic(float(np.dot(weights, values))))
    details = dict(zip(FEATURES[1:], (round(float(v), 4) for v in values[1:]), strict=True))
    below = calibration.unsure_below
    doubtful = below - rules.just_under
    if certainty.value < below:
        vague = why_vague(views, density, chosen, base_rate, start=start, without=zero_shot_count)
        for reason in vague or (_share_right(certainty),):
            certainty = certainty.at_most(certainty.value, reason)
    if footage is not None and footage.moving.any():
        caps += few_pictures(footage.pictures, [frames / base_rate for frames in asked.marked], rules)
        details["pictures"] = round(footage.pictures, 1)
        if not given and is_zero(density):
            caps.append((rules.once_or_never, ONCE_OR_NEVER))
        elif not given:
            gaps = unanswered(views, density, footage, calibration, base_rate, start=start, rules=rules)
    for most, reason in [*((min(most, doubtful), reason) for most, reason in caps), *gaps]:
        certainty = certainty.at_most(most, reason)
    rest = 1.0 if asked.ranged else rest_factor(density, rules)
    hypotheses: tuple[Hypothesis, ...] = ()
    unit: Unit | None = None
    if not given and calibration.repeats:
        details[UNIT_GIVEN] = round(certainty.value, 4)
        hypotheses = _hypotheses(views, density, base_rate, calibration, rules, ranged=asked.ranged)
        unit = "cycle"
        if not is_zero(density) and (most := unit_certainty(hypotheses, rules)) < 1:
            certainty = certainty.at_most(min(most, doubtful), unit_reason(hypotheses))
    kind: ConfidenceKind = "probability" if calibration.calibrated else "agreement"
    return _answer(
        density,
        rest,
        certainty,
        kind,
        below,
        density_unit=unit,
        hypotheses=hypotheses,
        details=details,
        view=main_view(chosen),
        features=tuple(values.tolist()),
    )


def decide_by_map(
    density: Array32,
    kind: DensityKind,
    certainty: Certainty,
    *,
    confidence_kind: ConfidenceKind = "agreement",
    below: float = 0.0,
    density_unit: Unit | None = None,
    hypotheses: tuple[Hypothesis, ...] = (),
    details: Mapping[str, float] | None = None,
) -> Decision:
    """The answer of a model that has a density map, its own confidence, and perhaps its own hypotheses."""
    return _answer(
        density,
        rest_factor(density) if kind == "rate" else 1.0,
        certainty,
        confidence_kind,
        below,
        density_unit=density_unit,
        hypotheses=hypotheses,
        details=details or {},
    )


def _answer(
    density: Array32,
    rest: float,
    certainty: Certainty,
    kind: ConfidenceKind,
    below: float,
    *,
    density_unit: Unit | None,
    hypotheses: tuple[Hypothesis, ...],
    details: Mapping[str, float],
    view: int = 0,
    features: tuple[float, ...] = (),
) -> Decision:
    """The count is that of the first hypothesis; without hypotheses, the density's sum in whole repetitions."""
    total = float((density * np.float32(rest)).sum(dtype=np.float64))
    held = [one.count for one in hypotheses if one.unit == density_unit]
    counted = held[0] if held else whole(total)
    count, unit = counted, density_unit
    if hypotheses and hypotheses[0].count == 0:
        count, unit, counted = 0, None, 0
    elif hypotheses and hypotheses[0].unit is not None:
        count, unit = hypotheses[0].count, hypotheses[0].unit
    unsure = is_unsure(certainty.value, kind, below)
    reasons = certainty.reasons(below)
    if kind != "probability":
        reasons = (UNCALIBRATED,)
    elif unsure and not reasons:
        reasons = (_share_right(certainty),)
    return Decision(
        count=count,
        unit=unit,
        confidence=certainty.value,
        kind=kind,
        unsure=unsure,
        reasons=reasons if unsure else (),
        density=density,
        density_unit=density_unit,
        counted=counted,
        rest=rest,
        hypotheses=hypotheses,
        details=details,
        view=view,
        features=features,
    )


def is_unsure(confidence: float, kind: ConfidenceKind, below: float) -> bool:
    """Whether a count is called unsure: its probability is too low, or its confidence is not a probability."""
    return kind != "probability" or confidence < below


def p_repeats(
    views: Sequence[Evidence], base_rate: float, calibration: Calibration, rules: CountingRules = RULES
) -> float:
    """The probability that there is a repetition at all, of the block of a long video where it is largest."""
    parts = [around for _, _, around in blocks(len(views[0].density), base_rate, rules)]
    rows = [repeats_features(views, base_rate, calibration.choice, part, rules) for part in parts]
    return max(logistic(float(np.dot(calibration.repeats, row))) for row in rows)


def p_alternates(views: Sequence[Evidence], calibration: Calibration) -> float:
    """The probability that the motion has two opposite sides, if there are repetitions."""
    if not calibration.alternates:
        return 0.0
    return logistic(float(np.dot(calibration.alternates, alternates_features(views))))


def _hypotheses(
    views: Sequence[Evidence],
    density: Array32,
    base_rate: float,
    calibration: Calibration,
    rules: CountingRules,
    *,
    ranged: bool,
) -> tuple[Hypothesis, ...]:
    """What else may be true, where nobody said what a repetition is."""
    repeats = p_repeats(views, base_rate, calibration, rules)
    if is_zero(density):  # what it would be if there were something after all
        density, _ = choose_views(views, base_rate, calibration, repeats=True, rules=rules)
        repeats = min(repeats, 0.49)  # shut gates sum to nothing, whatever is said of the video
    else:
        repeats = max(repeats, 0.5)
    alternates = p_alternates(views, calibration)
    rest = 1.0 if ranged else rest_factor(density, rules)
    return possible_counts(float(density.sum()), repeats=repeats, alternates=alternates, rest=rest, rules=rules)


def _share_right(certainty: Certainty) -> str:
    return f"of such answers {certainty.value:.0%} are within one of the truth"
