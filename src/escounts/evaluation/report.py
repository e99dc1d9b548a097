"""An evaluation as text: metrics with their intervals, localisation, groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from escounts.evaluation.groups import GroupResult, by_action, by_count, by_duration, by_repetition_length
from escounts.evaluation.localisation import localise
from escounts.metrics import evaluate, off_by_curve
from escounts.training.predictions import Prediction, true_counts

if TYPE_CHECKING:
    from escounts.evaluation.evaluating import Evaluation

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
        found = localise([(row.peak_map(), row.spans) for row in marked])
        lines.append(f"  localisation, mean Jaccard index {found.average}")
    return "\n".join(lines)


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
            {"name": row.name, "action": row.action, "count": row.count, "predicted": round(float(row.predicted), 3)}
            for row in rows
        ],
    }


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Floats to six places, and null for what is not a number."""
    return {
        name: (round(value, 6) if math.isfinite(value) else None) if isinstance(value, float) else value
        for name, value in values.items()
    }
