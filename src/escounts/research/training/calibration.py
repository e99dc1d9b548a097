"""Fits a model's calibration on videos it was not trained on: labelled clips, or generated ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import escounts
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.views import BASE_RATE
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
from escounts.synthetic import Generator
from escounts.synthetic.clips import LABEL_COLUMNS, pool_rows
from escounts.synthetic.labelled import read_labels
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
REPEATING = 2 / 3
"""Share of the videos that people bring that holds a repetition; of the labelled clips it is five in six."""


@dataclass(frozen=True)
class Trial:
    """One counted video: the true count, every view's evidence, what is said with one exemplar
    ("guided"; nothing where no whole repetition is in it), and whether the motion has two sides, None where nobody
    knows. real: a labelled clip."""

    truth: float
    evidence: Sequence[Evidence]
    guided: Sequence[Evidence] = ()
    alternates: bool | None = False
    real: bool = False


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
        trials.append(_trial(encoding, float(len(spans)), marked, alternates=alternates, real=True))
    return trials


def _trial(
    encoding: MultiRateEncoding,
    truth: float,
    marked: tuple[float, float] | None,
    *,
    alternates: bool | None,
    real: bool,
) -> Trial:
    """What is said without an exemplar and with the marked repetition as one."""
    guided: Sequence[Evidence] = ()
    if marked is not None:
        try:
            guided = encoding.evidence([encoding.encode_exemplar(*marked)])
        except ExemplarError:  # too long for any view, or still: no exemplar then
            guided = ()
    return Trial(truth, encoding.evidence(), guided, alternates=alternates, real=real)


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
        whole_spans = [span for span in spans if span[0] >= 0 and span[1] <= encoding.end]
        marked = whole_spans[len(whole_spans) // 2] if whole_spans else None
        trials.append(_trial(encoding, truth, marked, alternates=batch.alternates[0], real=False))
    return trials


def calibrate(trials: Sequence[Trial], start: Calibration | None = None) -> Calibration:
    """The calibration whose choice of views, floor and confidence fit the trials; the rest, such as the gate, is kept
    from `start`. Where labelled clips are among the trials only the choice of views listens to the others."""
    start = start or Calibration()
    real = [trial for trial in trials if trial.real]
    start = replace(start, choice=fit_choice(trials, start))
    start = replace(start, nothing_below=fit_floor(trials, start))
    start = replace(start, repeats=fit_repeats(real or trials, start), alternates=fit_alternates(real or trials))
    counted: list[tuple[Array, bool]] = []
    nothing: list[tuple[Array, bool]] = []
    for trial in real or trials:
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
    """Weights of REPEATS, from labelled clips moved to the share REPEATING; from generated videos alone so that of
    those without repetitions NOTHING_RIGHT are answered with 0. None for a model whose views do not say, or without
    videos of both kinds."""
    clear = [trial for trial in trials if (trial.truth >= 0.95 or trial.truth < 0.05) and _says(trial)]
    repeats = np.array([trial.truth >= 0.5 for trial in clear])
    if not repeats.any() or repeats.all():
        return ()
    views = [trial.evidence for trial in clear]
    rows = np.stack([repeats_features(each, calibration.choice) for each in views])
    weights = logistic(rows, repeats.astype(np.float64))
    if any(trial.real for trial in clear):
        weights[0] += _logit(REPEATING) - _logit(float(repeats.mean()))
    else:
        free = replace(calibration, repeats=(), nothing_below=0.0)
        logits = [
            logit if round(_count(each, free)) else -np.inf
            for trial, each, logit in zip(clear, views, rows @ weights, strict=True)
            if trial.truth < 0.5
        ]
        weights[0] -= max(0.0, float(np.quantile(logits, NOTHING_RIGHT, method="higher")) + 1e-4)
    return _rounded(weights)


def fit_alternates(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Weights of ALTERNATES, from videos in which it can be seen; those of generated videos are moved to the share of
    real motion that alternates. None for a model whose views do not say."""
    seen = [trial for trial in trials if trial.truth >= 1.5 and trial.alternates is not None and _says(trial)]
    two_sided = np.array([trial.alternates for trial in seen])
    if not two_sided.any() or two_sided.all():
        return ()
    rows = np.stack([alternates_features(trial.evidence) for trial in seen])
    weights = logistic(rows, two_sided.astype(np.float64))
    if not any(trial.real for trial in seen):
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
