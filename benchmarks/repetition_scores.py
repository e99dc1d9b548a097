"""Fits and measures the scores of single repetitions (counting/repetition_scores.py) on generated videos.

    python benchmarks/repetition_scores.py [--model lite] [--videos 240] [--seed 9100]

Draws videos by code alone, counts them zero-shot and with one exemplar, and asks of every repetition that was found:
is at least COVERED of it where the motion repeats, and is it as long as a repetition there (or a side, or two)?
Half of the videos fit the weights, the other half measures them; then both halves are fitted together, and what is
to be put into WEIGHTS is printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from report import arguments

import escounts
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.repetition_scores import SCORE_FEATURES, SCORE_WEIGHTS, features, span_evidence
from escounts.counting.views import BASE_RATE, MultiRateExemplar
from escounts.decision.evidence import UNITS, choose_views
from escounts.research.metrics import auc
from escounts.research.training.calibration import logistic
from escounts.results import DensityMap
from escounts.synthetic import Generator, GeneratorConfig

COVERED = 0.8
"""Part of a span that must lie inside true repetitions."""
AS_LONG = 0.25
"""How far its length may be from theirs, in log."""
LENGTHS = (240, 360, 480)
"""Frames of the videos."""

Array = npt.NDArray[np.float64]
Span = tuple[float, float]


class Found(NamedTuple):
    """Repetitions found in one video: their features and whether they are right."""

    rows: Array
    right: Array


def main() -> None:
    parser = arguments(__doc__, model="lite")
    parser.add_argument("--videos", type=int, default=240)
    parser.add_argument("--seed", type=int, default=9100)
    options = parser.parse_args()
    model = escounts.load(options.model).model
    assert isinstance(model, MultiRateModel)
    generator = Generator(GeneratorConfig(), seed=options.seed)
    videos = [found for index in range(options.videos) for found in count(model, generator, index)]
    halves = [joined(videos[half::2]) for half in (0, 1)]
    report("as shipped", halves[1], np.array(SCORE_WEIGHTS))
    report("fitted on the other half", halves[1], logistic(halves[0].rows, halves[0].right))
    both = joined(videos)
    print("WEIGHTS =", tuple(round(float(weight), 3) for weight in logistic(both.rows, both.right)))


def count(model: MultiRateModel, generator: Generator, index: int) -> list[Found]:
    """What is found in one generated video, zero-shot and with its middle repetition as the exemplar."""
    plan = generator.plan(index, LENGTHS[index % len(LENGTHS)])
    batch = generator.render([plan], device=model.device, size=model.network.encoder.spec.size)
    encoding = model.encode_images(batch.frames_BTCHW[0].permute(0, 2, 3, 1).cpu().numpy())
    truth = [(start / BASE_RATE, end / BASE_RATE) for start, end in batch.spans[0]]
    whole = [span for span in truth if span[0] >= 0 and span[1] <= encoding.end]
    asked = [judged(encoding, truth, [], ())]
    if whole:
        marked = whole[len(whole) // 2]
        asked.append(judged(encoding, truth, [encoding.encode_exemplar(*marked)], marked))
    return [found for found in asked if found is not None]


def judged(
    encoding: MultiRateEncoding,
    truth: Sequence[Span],
    exemplars: Sequence[MultiRateExemplar],
    anchors: Sequence[float],
) -> Found | None:
    """The features of the repetitions found, and which are right; None without repetitions."""
    evidence = encoding.evidence(exemplars)
    density, chosen = choose_views(evidence, encoding.model.calibration, repeats=bool(exemplars))
    found = DensityMap(density, 0.0, 1 / BASE_RATE, "rate").repetitions(anchors=anchors)
    if not found:
        return None
    main = max(set(chosen), key=chosen.count)
    view = next(v for v in encoding.windows if v.rate == evidence[main].rate)
    spans = [(one.start, one.end) for one in found]
    rows = features(span_evidence(encoding, view, evidence[main], 0, exemplars, spans))
    return Found(rows, np.array([is_right(span, truth) for span in spans], dtype=np.float64))


def is_right(span: Span, truth: Sequence[Span]) -> bool:
    """Whether a span lies where the motion repeats and is as long as a repetition, a side or two of them there."""
    start, end = span
    shared = [max(0.0, min(end, b) - max(start, a)) for a, b in truth]
    if sum(shared) < COVERED * (end - start):
        return False
    low, high = truth[int(np.argmax(shared))]
    ratios = [abs(math.log((end - start) / (high - low) * unit)) for unit in UNITS]
    return min(ratios) < AS_LONG


def joined(videos: Sequence[Found]) -> Found:
    return Found(np.concatenate([v.rows for v in videos]), np.concatenate([v.right for v in videos]))


def report(name: str, found: Found, weights: Array) -> None:
    """Area under the curve of the scores and of each feature, and how often repetitions of a score are right."""
    scores = 1 / (1 + np.exp(-found.rows @ weights))
    print(f"{name}: {len(scores)} repetitions, {found.right.mean():.0%} right, AUC {auc(scores, found.right):.3f}")
    print(
        "  alone:",
        ", ".join(f"{f} {auc(found.rows[:, i], found.right):.2f}" for i, f in enumerate(SCORE_FEATURES) if i),
    )
    for low, high in ((0.0, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.01)):
        part = (scores >= low) & (scores < high)
        if part.any():
            share = found.right[part].mean()
            print(f"  score {low:.2f}–{min(high, 1):.2f}: {part.sum()} repetitions, {share:.0%} right")


if __name__ == "__main__":
    main()
