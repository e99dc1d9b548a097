"""Fits a model's confidence on generated videos it was not trained on: is the count within one of the truth?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import BASE_RATE
from escounts.decision.decide import Asked, Decision, choose_views, decide
from escounts.decision.evidence import (
    Evidence,
    alternates_features,
    choice_features,
    is_zero,
    repeats_features,
)
from escounts.decision.rules import Calibration
from escounts.synthetic import Generator
from escounts.system.arrays import Array

Progress = Callable[[int, int, str], None]
"""Called with (done, in all, what is in hand)."""

RIDGE = 0.3
"""Strength of the pull towards zero weights: a few hundred videos carry a handful of weights, no more."""


RIGHT = 0.1
"""A view is right when its count is off by no more than this part of the truth."""


ALTERNATING = 13 / 74
"""Share of real motion that has two sides, by the held-out clips; the generator draws as many as training needs."""
NOTHING_RIGHT = 0.95
"""Share of generated videos with no repetitions that must be answered with 0."""


@dataclass(frozen=True)
class Trial:
    """One counted video: the true count, every view's evidence, what is said with one exemplar ("guided"; nothing
    where no whole repetition is in it), and whether the motion has two sides, None where nobody knows."""

    truth: float
    evidence: Sequence[Evidence]
    guided: Sequence[Evidence] = ()
    alternates: bool | None = False


def collect(
    model: MultiRateModel,
    generator: Generator,
    videos: int,
    *,
    lengths: Sequence[int],
    progress: Progress | None = None,
) -> list[Trial]:
    """Count generated videos zero-shot and, where a whole repetition is in them, with one exemplar."""
    trials = []
    for index in range(videos):
        if progress is not None:
            progress(index, videos, "calibrating")
        length = lengths[index % len(lengths)]
        size = model.network.encoder.spec.size
        batch = generator.render([generator.plan(index, length)], device=model.device, size=size)
        images = batch.frames_BTCHW[0].permute(0, 2, 3, 1).cpu().numpy()
        encoding = model.encode_images(images)
        spans = [(start / BASE_RATE, end / BASE_RATE) for start, end in batch.spans[0]]
        inside = [min(end, encoding.end) - max(start, 0.0) for start, end in spans]
        truth = sum(part / (end - start) for part, (start, end) in zip(inside, spans, strict=True))
        evidence = encoding.evidence()
        whole = [span for span in spans if span[0] >= 0 and span[1] <= encoding.end]
        shots = [encoding.encode_exemplar(*whole[len(whole) // 2])] if whole else []
        guided = encoding.evidence(shots) if shots else ()
        trials.append(Trial(truth, evidence, guided, alternates=batch.alternates[0]))
    return trials


def calibrate(trials: Sequence[Trial], start: Calibration | None = None) -> Calibration:
    """The calibration whose choice of views, floor and confidence fit the trials; the rest is kept from `start`."""
    start = start or Calibration()
    start = replace(start, choice=fit_choice(trials, start))
    start = replace(start, nothing_below=fit_floor(trials, start))
    start = replace(start, repeats=fit_repeats(trials, start), alternates=fit_alternates(trials))
    counted: list[tuple[Array, bool]] = []
    nothing: list[tuple[Array, bool]] = []
    for trial in trials:
        zero_shot = decide(trial.evidence, start, base_rate=BASE_RATE)
        (nothing if is_zero(zero_shot.density) else counted).append(_judged(zero_shot, trial.truth))
        if trial.guided:
            asked = Asked(exemplars=1, without=trial.evidence)
            counted.append(_judged(decide(trial.guided, start, base_rate=BASE_RATE, asked=asked), trial.truth))
    return replace(
        start,
        weights=_fit(counted) if counted else start.weights,
        nothing_weights=_fit(nothing) if nothing else start.nothing_weights,
    )


def _judged(decision: Decision, truth: float) -> tuple[Array, bool]:
    """A decision's features, and whether its count is within one of the truth."""
    return np.array(decision.features), abs(decision.counted - truth) <= 1.0


def _fit(judged: Sequence[tuple[Array, bool]]) -> tuple[float, ...]:
    rows, right = zip(*judged, strict=True)
    return _rounded(logistic(np.stack(rows), np.array(right, dtype=np.float64)))


def _counts(evidence: Sequence[Evidence], calibration: Calibration) -> bool:
    """Whether the answer is not "no repetitions"."""
    return not is_zero(choose_views(evidence, BASE_RATE, calibration)[0])


def fit_choice(trials: Sequence[Trial], start: Calibration) -> tuple[float, ...]:
    """Which view to believe, from zero-shot trials of videos that repeat; as it was where there are none."""
    rows, right = [], []
    for trial in trials:
        if trial.truth >= 0.5 and len(trial.evidence) > 1:
            rows.append(choice_features(trial.evidence, BASE_RATE))
            off = [abs(round(view.count()) - round(trial.truth)) for view in trial.evidence]
            right += [near <= max(0.5, RIGHT * trial.truth) for near in off]
    if not rows:
        return start.choice
    return _rounded(logistic(np.concatenate(rows), np.array(right, dtype=np.float64)))


def fit_floor(trials: Sequence[Trial], calibration: Calibration) -> float:
    """The lowest floor below which the answer is "no repetitions", such that of the videos with none, NOTHING_RIGHT
    answer 0; as it was where there are no such videos."""
    nothing = [trial for trial in trials if trial.truth < 0.5]
    if not nothing:
        return calibration.nothing_below
    floors = np.arange(0.10, 0.51, 0.01).round(2).tolist()
    for floor in floors:
        tried = replace(calibration, nothing_below=floor)
        if np.mean([not _counts(trial.evidence, tried) for trial in nothing]) >= NOTHING_RIGHT:
            break
    return float(floor)


def fit_repeats(trials: Sequence[Trial], calibration: Calibration) -> tuple[float, ...]:
    """Weights of REPEATS, moved so that of the videos without repetitions NOTHING_RIGHT are answered with 0; none for
    a model whose views do not say, or without videos of both kinds."""
    clear = [trial for trial in trials if (trial.truth >= 0.95 or trial.truth < 0.05) and _says(trial)]
    repeats = np.array([trial.truth >= 0.5 for trial in clear])
    if not repeats.any() or repeats.all():
        return ()
    rows = np.stack([repeats_features(trial.evidence, BASE_RATE, calibration.choice) for trial in clear])
    weights = logistic(rows, repeats.astype(np.float64))
    free = replace(calibration, repeats=(), nothing_below=0.0)
    logits = [
        logit if _counts(trial.evidence, free) else -np.inf
        for trial, logit in zip(clear, rows @ weights, strict=True)
        if trial.truth < 0.5
    ]
    weights[0] -= max(0.0, float(np.quantile(logits, NOTHING_RIGHT, method="higher")) + 1e-4)
    return _rounded(weights)


def fit_alternates(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Weights of ALTERNATES, from videos in which it can be seen, moved to the share of real motion that alternates;
    none for a model whose views do not say."""
    seen = [trial for trial in trials if trial.truth >= 1.5 and trial.alternates is not None and _says(trial)]
    two_sided = np.array([trial.alternates for trial in seen])
    if not two_sided.any() or two_sided.all():
        return ()
    rows = np.stack([alternates_features(trial.evidence) for trial in seen])
    weights = logistic(rows, two_sided.astype(np.float64))
    weights[0] += _logit(ALTERNATING) - _logit(float(two_sided.mean()))
    return _rounded(weights)


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
