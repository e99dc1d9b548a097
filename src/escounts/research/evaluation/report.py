"""What an evaluation says: metrics with their intervals, results by group (figure 6), localisation; and all of it as
text.

Groups are by count, by length of a repetition, by duration, by action. Localisation asks whether the peaks of a map
are where the repetitions are: the Jaccard index at relative thresholds (the paper's appendix). Peaks above a
threshold are kept. A repetition with at least one peak inside is found (TP; further peaks in it change nothing), one
without is missed (FN), a peak in no repetition is wrong (FP): J = TP / (TP + FP + FN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from escounts.decision.spans import find_peaks
from escounts.research.metrics import Score, bootstrap, evaluate, mae, obo, obz, off_by_curve, released_mae, rmse
from escounts.research.training.predictions import Prediction, true_counts
from escounts.results import DensityMap

if TYPE_CHECKING:
    from escounts.research.evaluation.evaluate import Evaluation

SIZES = ("XS", "S", "M", "L", "XL")
LENGTH_EDGES = (0.96, 1.53, 2.29, 3.09)
"""Seconds of a repetition between the paper's groups on RepCount."""
DURATION_EDGES = (11.0, 26.0, 33.9, 45.9)
"""Seconds of a video between the paper's groups on RepCount."""

Value = Callable[[Prediction], float]


@dataclass(frozen=True)
class GroupResult:
    """Metrics of one group: videos is how many are in it; MAE is nan where every true count is 0."""

    name: str
    videos: int
    rmse: float
    mae: float
    obz: float
    obo: float


def score(name: str, rows: Sequence[Prediction]) -> GroupResult:
    """All four metrics of some videos; the released code's against its own truth, where that was asked for."""
    if not rows:
        nan = float("nan")
        return GroupResult(name, 0, nan, nan, nan, nan)
    truth = true_counts(rows)
    counted = np.array([row.predicted for row in rows], dtype=np.float64)
    relative = mae(truth, counted) if (truth > 0).any() else float("nan")
    if rows[0].released_truth is not None:
        relative = released_mae(truth, counted)
    return GroupResult(name, len(rows), rmse(truth, counted), relative, obz(truth, counted), obo(truth, counted))


def by_edges(rows: Sequence[Prediction], value: Value, edges: Sequence[float], unit: str) -> list[GroupResult]:
    """Groups between fixed edges, smallest first; a value on an edge falls in the lower group."""
    bounds = [float("-inf"), *edges, float("inf")]
    names = SIZES if len(edges) + 1 == len(SIZES) else tuple(str(i + 1) for i in range(len(edges) + 1))
    results = []
    for name, low, high in zip(names, bounds[:-1], bounds[1:], strict=True):
        members = [row for row in rows if low < value(row) <= high]
        results.append(score(f"{name} {_between(low, high, unit)}", members))
    return results


def by_equal_size(rows: Sequence[Prediction], value: Value, groups: int = 5, unit: str = "") -> list[GroupResult]:
    """Groups of about equal size; videos of one value stay together."""
    values = np.sort([value(row) for row in rows])
    edges = np.unique(np.quantile(values, np.arange(1, groups) / groups, method="lower"))
    return by_edges(rows, value, [float(edge) for edge in edges if edge < values[-1]], unit)


def by_count(rows: Sequence[Prediction]) -> list[GroupResult]:
    """By the true number of repetitions, equally sized groups (the paper does not state its edges)."""
    return by_equal_size(rows, lambda row: float(row.count))


def by_repetition_length(rows: Sequence[Prediction]) -> list[GroupResult]:
    """By the mean length of a repetition; videos without repetitions have none and are left out."""
    known = [row for row in rows if row.repetition_length > 0]
    return by_edges(known, lambda row: row.repetition_length, LENGTH_EDGES, "s")


def by_duration(rows: Sequence[Prediction]) -> list[GroupResult]:
    """By the duration of the video."""
    return by_edges(rows, lambda row: row.duration, DURATION_EDGES, "s")


def by_action(rows: Sequence[Prediction]) -> list[GroupResult]:
    """By action class, in alphabetical order."""
    actions = sorted({row.action for row in rows})
    return [score(action or "not labelled", [r for r in rows if r.action == action]) for action in actions]


def _between(low: float, high: float, unit: str) -> str:
    unit = f" {unit}" if unit else ""
    if low == float("-inf"):
        return f"≤ {high:g}{unit}"
    return f"> {low:g}{unit}" if high == float("inf") else f"{low:g}–{high:g}{unit}"


Span: TypeAlias = tuple[float, float]
THRESHOLDS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def threshold(values: npt.ArrayLike, theta: float) -> float:
    """Height a peak must exceed, as the paper writes it: θ (max − min)."""
    values = np.asarray(values, dtype=np.float64)
    return theta * float(values.max() - values.min())


def jaccard(density: DensityMap, spans: Sequence[Span], theta: float) -> float:
    """The index of one video at one threshold, 0..1; 1 when there is nothing to find and nothing is found.

    spans: annotated repetitions in seconds. A peak is at the middle of its cell and inside a repetition when
    start <= time < end.
    """
    if len(density.values) == 0:
        return 0.0 if spans else 1.0
    above = threshold(density.values, theta)
    times = density.times[find_peaks(density.values, above=above)]
    edges = np.array(spans, dtype=np.float64).reshape(-1, 2)
    inside = (times[:, None] >= edges[None, :, 0]) & (times[:, None] < edges[None, :, 1])
    found = int(inside.any(0).sum())
    wrong = int((~inside.any(1)).sum())
    total = len(edges) + wrong
    return found / total if total else 1.0


def localise(videos: Iterable[tuple[DensityMap, Sequence[Span]]]) -> tuple[dict[float, float], Score]:
    """The table of the appendix: threshold → mean over videos of the index, and the mean over thresholds with its
    interval."""
    rows = [[jaccard(density, spans, theta) for theta in THRESHOLDS] for density, spans in videos]
    if not rows:
        raise ValueError("got no videos to localise in; give at least one (density map, spans) pair")
    table = np.array(rows)
    return dict(zip(THRESHOLDS, table.mean(0).tolist(), strict=True)), bootstrap(table.mean(1))


NAMES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "obz": "OBZ",
    "obo": "OBO",
    "mae_unrounded": "MAE, not rounded",
    "rmse_unrounded": "RMSE, not rounded",
    "released_mae": "MAE as the released code has it",
}


RELEASED = ("rmse", "released_mae", "obz", "obo")
"""What the released code prints."""


def metric_report(rows: Sequence[Prediction]) -> str:
    """Every metric of some videos with its 95 % interval; localisation where repetitions were marked.

    With the released code's arithmetic, its own four metrics against its own truth.
    """
    truth = true_counts(rows)
    counted = np.array([row.predicted for row in rows])
    scores = evaluate(truth, counted)
    names = RELEASED if rows[0].released_truth is not None else tuple(NAMES)
    lines = [f"  {NAMES[name]:32s} {scores[name]}" for name in names]
    curve = off_by_curve(truth, counted, most=5)
    lines.append("  off by at most 0 … 5              " + "  ".join(f"{share:.3f}" for share in curve))
    marked = [row for row in rows if not row.pseudo]
    if marked:
        _, average = localise([(row.peak_map(), row.spans) for row in marked])
        lines.append(f"  localisation, mean Jaccard index {average}")
    return "\n".join(lines)


def video_report(rows: Sequence[Prediction]) -> str:
    """A line per video: its true count, the one found, and how far off it is."""
    width = max(len(row.name) for row in rows)
    lines = [f"  {'video':<{width}}  {'true':>5}  {'found':>7}  {'off':>5}"]
    for row in rows:
        off = round(row.predicted) - row.count
        lines.append(f"  {row.name:<{width}}  {row.count:>5}  {row.predicted:>7.2f}  {off:>+5}")
    return "\n".join(lines)


def exemplar_report(rows: Sequence[Prediction], shots: int) -> str:
    """How many videos had fewer exemplars than were asked for; nothing where all had them."""
    fewer = sum(row.shots < shots for row in rows)
    none = sum(row.shots == 0 for row in rows)
    if not fewer:
        return ""
    return f"{fewer} of {len(rows)} videos had fewer than {shots} exemplars to take, {none} none: counted zero-shot"


def group_report(rows: Sequence[Prediction]) -> str:
    """The groups of figure 6 as text."""
    parts = {
        "by number of repetitions": by_count(rows),
        "by length of a repetition": by_repetition_length(rows),
        "by duration of the video": by_duration(rows),
        "by action": by_action(rows),
    }
    return "\n".join(f"  {title}\n{_table(groups)}" for title, groups in parts.items())


def _table(groups: Sequence[GroupResult]) -> str:
    lines = [f"    {'':24s} {'videos':>6s} {'RMSE':>7s} {'MAE':>7s} {'OBZ':>7s} {'OBO':>7s}"]
    for group in groups:
        values = (group.rmse, group.mae, group.obz, group.obo)
        cells = " ".join(f"{value:7.3f}" if math.isfinite(value) else f"{'–':>7s}" for value in values)
        lines.append(f"    {group.name:24s} {group.videos:6d} {cells}")
    return "\n".join(lines)


def evaluation_document(model: Mapping[str, Any], found: Sequence[Evaluation]) -> dict[str, Any]:
    """Evaluations of one model as JSON types: metrics with intervals, results by action, and every count.

    model: what the document says of it. A metric of no video is null.
    """
    return {"model": dict(model), "evaluations": [_document(evaluation) for evaluation in found]}


def _document(evaluation: Evaluation) -> dict[str, Any]:
    rows, spec = evaluation.rows, evaluation.spec
    scores = evaluate(true_counts(rows), np.array([row.predicted for row in rows])) if rows else {}
    return {
        "shots": spec.shots,
        "exemplars": spec.exemplars if spec.shots else "none",
        "coverage": asdict(evaluation.coverage),
        "metrics": {name: _finite(asdict(score)) for name, score in scores.items()},
        "by_action": [_finite(asdict(group)) for group in by_action(rows)] if rows else [],
        "videos": [
            {"name": row.name, "action": row.action, "count": row.count, "predicted": round(float(row.predicted), 6)}
            for row in rows
        ],
    }


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Floats to six places, and null for what is not a number."""
    return {
        name: (round(value, 6) if math.isfinite(value) else None) if isinstance(value, float) else value
        for name, value in values.items()
    }
