"""An evaluation as text: metrics with their intervals, localisation, groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from escounts.evaluation.groups import GroupResult, by_action, by_count, by_duration, by_repetition_length
from escounts.evaluation.localisation import localise
from escounts.metrics import evaluate, off_by_curve
from escounts.training.predictions import Prediction, true_counts

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
    for g in groups:
        lines.append(f"    {g.name:24s} {g.videos:6d} {g.rmse:7.3f} {g.mae:7.3f} {g.obz:7.3f} {g.obo:7.3f}")
    return "\n".join(lines)
