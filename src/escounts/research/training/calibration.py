"""Fits a model's calibration on labelled clips that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import escounts
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.decision.decide import Asked, Decision, decide
from escounts.decision.evidence import (
    Evidence,
    alternates_features,
    choice_features,
    choose_views,
    is_zero,
    repeats_features,
)
from escounts.decision.rules import Calibration
from escounts.errors import ExemplarError
from escounts.synthetic.clips import LABEL_COLUMNS, pool_rows
from escounts.synthetic.labelled import read_labels
from escounts.system.arrays import Array

Progress = Callable[[int, int, str], None]
"""Called with (done, in all, what is in hand)."""

RIDGE = 0.3
"""Strength of the pull towards zero weights: a few hundred videos carry a handful of weights, no more."""
RIGHT = 0.1
"""A view is right when its count is off by no more than this part of the truth."""
NOTHING_RIGHT = 0.95
"""Share of clips with no repetitions that must be answered with 0 by a model whose views say nothing of the whole."""
REPEATING = 2 / 3
"""Share of the videos that people bring that holds a repetition; of the labelled clips it is five in six."""


@dataclass(frozen=True)
class Trial:
    """One counted clip: the true count, every view's evidence, what is said with one exemplar ("guided"; nothing
    where no whole repetition is in it), and whether the motion has two sides, None where nobody knows."""

    truth: float
    evidence: Sequence[Evidence]
    guided: Sequence[Evidence] = ()
    alternates: bool | None = False


def collect_labelled(
    model: MultiRateModel, table: Path, *, split: str, progress: Progress | None = None
) -> list[Trial]:
    """Count the clips of one split of a label table, whose files lie beside it; those with a doubtful label are left
    out."""
    rows = [row for row in pool_rows(table, need=LABEL_COLUMNS) if row["split"] == split]
    labels = read_labels(rows, 1.0)
    trials = []
    for number, (file, (sets, _)) in enumerate(labels.items()):
        if progress is not None:
            progress(number, len(labels), file)
        spans = [span for one in sets for span in one.spans]
        sides = {one.alternates for one in sets}
        alternates = sides.pop() if len(sides) == 1 else None
        encoding = model.encode(escounts.Video(table.parent / file))
        marked = sets[0].spans[len(sets[0].spans) // 2] if len(sets) == 1 else None
        guided = _guided(encoding, marked) if marked is not None else ()
        trials.append(Trial(float(len(spans)), encoding.evidence(), guided, alternates=alternates))
    return trials


def _guided(encoding: MultiRateEncoding, marked: tuple[float, float]) -> Sequence[Evidence]:
    """What is said with the marked repetition as an exemplar; nothing where it is too long for any view, or still."""
    try:
        return encoding.evidence([encoding.encode_exemplar(*marked)])
    except ExemplarError:
        return ()


def calibrate(trials: Sequence[Trial], start: Calibration | None = None) -> Calibration:
    """The calibration whose choice of views, floor and confidence fit the trials; the rest, such as the gate, is kept
    from `start`."""
    start = start or Calibration()
    start = replace(start, choice=fit_choice(trials, start))
    start = replace(start, nothing_below=fit_floor(trials, start))
    start = replace(start, repeats=fit_repeats(trials, start), alternates=fit_alternates(trials))
    counted: list[tuple[Array, bool]] = []
    nothing: list[tuple[Array, bool]] = []
    for trial in trials:
        zero_shot = decide(trial.evidence, start)
        (nothing if is_zero(zero_shot.density.values) else counted).append(_judged(zero_shot, trial.truth))
        if trial.guided:
            asked = Asked(exemplars=1, without=trial.evidence)
            counted.append(_judged(decide(trial.guided, start, asked=asked), trial.truth))
    return replace(
        start,
        weights=_fit(counted) if counted else start.weights,
        nothing_weights=_fit(nothing) if nothing else start.nothing_weights,
    )


def _judged(decision: Decision, truth: float) -> tuple[Array, bool]:
    """A decision's features, and whether its count is within one of the truth. "No repetitions" is right where there
    are none."""
    right = abs(decision.count - truth) <= 1.0 if decision.count else truth < 0.5
    return np.array(decision.features), right


def _fit(judged: Sequence[tuple[Array, bool]]) -> tuple[float, ...]:
    rows, right = zip(*judged, strict=True)
    return _rounded(logistic(np.stack(rows), np.array(right, dtype=np.float64)))


def _count(evidence: Sequence[Evidence], calibration: Calibration) -> float:
    return float(choose_views(evidence, calibration)[0].sum())


def fit_choice(trials: Sequence[Trial], start: Calibration) -> tuple[float, ...]:
    """Which view to believe, from zero-shot trials of videos that repeat; as it was where there are none."""
    rows, right = [], []
    for trial in trials:
        if trial.truth >= 0.5 and len(trial.evidence) > 1:
            rows.append(choice_features(trial.evidence))
            off = [abs(round(view.count()) - round(trial.truth)) for view in trial.evidence]
            right += [near <= max(0.5, RIGHT * trial.truth) for near in off]
    if not rows:
        return start.choice
    return _rounded(logistic(np.concatenate(rows), np.array(right, dtype=np.float64)))


def fit_floor(trials: Sequence[Trial], calibration: Calibration) -> float:
    """The lowest floor below which the answer is "no repetitions", such that of the videos with none, NOTHING_RIGHT
    answer 0; as it was where there are no such videos."""
    nothing = [trial.evidence for trial in trials if trial.truth < 0.5]
    if not nothing:
        return calibration.nothing_below
    floors = np.arange(0.10, 0.51, 0.01).round(2).tolist()
    for floor in floors:
        tried = replace(calibration, nothing_below=floor)
        counts = [_count(views, tried) for views in nothing]
        if np.mean(np.round(counts) == 0) >= NOTHING_RIGHT:
            break
    return float(floor)


def fit_repeats(trials: Sequence[Trial], calibration: Calibration) -> tuple[float, ...]:
    """Weights of REPEATS, moved to the share REPEATING. None for a model whose views do not say, or without clips of
    both kinds."""
    clear = [trial for trial in trials if (trial.truth >= 0.95 or trial.truth < 0.05) and _says(trial)]
    repeats = np.array([trial.truth >= 0.5 for trial in clear])
    if not repeats.any() or repeats.all():
        return ()
    rows = np.stack([repeats_features(trial.evidence, calibration.choice) for trial in clear])
    weights = logistic(rows, repeats.astype(np.float64))
    weights[0] += _logit(REPEATING) - _logit(float(repeats.mean()))
    return _rounded(weights)


def fit_alternates(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Weights of ALTERNATES, from clips in which it can be seen. None for a model whose views do not say."""
    seen = [trial for trial in trials if trial.truth >= 1.5 and trial.alternates is not None and _says(trial)]
    two_sided = np.array([trial.alternates for trial in seen])
    if not two_sided.any() or two_sided.all():
        return ()
    rows = np.stack([alternates_features(trial.evidence) for trial in seen])
    return _rounded(logistic(rows, two_sided.astype(np.float64)))


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _says(trial: Trial) -> bool:
    """Whether the views say anything of the whole video."""
    return all(view.repeats is not None for view in trial.evidence)


def logistic(inputs_NF: Array, outcome_N: Array, *, steps: int = 50) -> Array:
    """Weights of a ridge logistic regression by Newton's method; the first column is the bias, not pulled."""
    weights = np.zeros(inputs_NF.shape[1])
    pull = np.full(len(weights), RIDGE)
    pull[0] = 0.0
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-inputs_NF @ weights))
        gradient = inputs_NF.T @ (outcome_N - chance) - pull * weights
        curvature = (inputs_NF * (chance * (1 - chance))[:, None]).T @ inputs_NF + np.diag(pull + 1e-9)
        change = np.linalg.solve(curvature, gradient)
        weights = weights + change
        if np.abs(change).max() < 1e-8:
            break
    return weights


def _rounded(weights: Array) -> tuple[float, ...]:
    return tuple(round(float(weight), 4) for weight in weights)
