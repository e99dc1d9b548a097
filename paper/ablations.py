"""The paper's ablations: Tables 3a to 3g, depth, windows and sampling, all against one reference."""

from __future__ import annotations

from typing import Any

from escounts.research.evaluation.models import EvalSpec
from escounts.research.training.recipes import Recipe
from paper.entries import Cells, Group, Number, Table, TableRow

OURS = Recipe()
FULL = (4.455, 0.213, 0.245, 0.563)
"""RepCount-A test, ViT-B, zero-shot: the row that every ablation shares."""


def ablation_row(label: str, recipe: Recipe, *numbers: Number, spec: EvalSpec | None = None) -> TableRow:
    """One setting, the published numbers and how ours is measured."""
    return TableRow((label,), (Cells(numbers, recipe, spec or EvalSpec()),))


def _ablation(name: str, title: str, labels: tuple[str, ...], *rows: TableRow, **about: Any) -> Table:
    """One table on RepCount with the four metrics. about: its note, and whether it is about the map."""
    return Table(name, title, labels, (Group(),), rows, **about)


ABLATIONS: tuple[Table, ...] = (
    _ablation(
        "3a",
        "Self-attention only",
        ("Decoder",),
        ablation_row("SA-only", Recipe(self_attention_only=True), 5.654, 0.273, 0.147, 0.470),
        ablation_row("ESCounts", OURS, *FULL),
    ),
    _ablation(
        "3b",
        "Number of exemplars |S| in training",
        ("|S|",),
        ablation_row("0", Recipe(shots=(0,)), 4.962, 0.240, 0.223, 0.519),
        ablation_row("{0,1}", Recipe(shots=(0, 1)), 4.633, 0.228, 0.236, 0.546),
        ablation_row("{0,2}", Recipe(shots=(0, 2)), 4.601, 0.226, 0.239, 0.550),
        ablation_row("{0,1,2}", OURS, *FULL),
        ablation_row("{0,1,2,3}", Recipe(shots=(0, 1, 2, 3)), 4.497, 0.215, 0.246, 0.560),
        ablation_row("{0,1,2,3,4}", Recipe(shots=(0, 1, 2, 3, 4)), 4.482, 0.215, 0.240, 0.559),
    ),
    _ablation(
        "3c",
        "Exemplar sampling",
        ("Other video", "Same class"),
        TableRow(("no", "–"), (Cells((4.701, 0.224, 0.226, 0.521), Recipe(other_video=0.0)),)),
        TableRow(("yes", "no"), (Cells((5.553, 0.270, 0.165, 0.464), Recipe(same_class=False)),)),
        TableRow(("yes", "yes"), (Cells(FULL, OURS),)),
        note="The first row is the setting p = 0 of Table 3d; the paper gives it other numbers there.",
    ),
    _ablation(
        "3d",
        "Sampling probability p of another video",
        ("p",),
        ablation_row("0.0", Recipe(other_video=0.0), 4.919, 0.240, 0.205, 0.545),
        ablation_row("0.2", Recipe(other_video=0.2), 4.654, 0.221, 0.236, 0.550),
        ablation_row("0.4", OURS, *FULL),
        ablation_row("0.6", Recipe(other_video=0.6), 4.561, 0.218, 0.240, 0.558),
        ablation_row("0.8", Recipe(other_video=0.8), 4.735, 0.230, 0.223, 0.553),
        ablation_row("1.0", Recipe(other_video=1.0), 5.012, 0.245, 0.218, 0.532),
        note="p = 0 is the setting of the first row of Table 3c; the paper gives it other numbers there.",
    ),
    _ablation(
        "3e",
        "Width σ of the density peaks",
        ("σ",),
        ablation_row("variable", Recipe(sigma="variable"), 6.152, 0.301, 0.165, 0.457),
        ablation_row("0", Recipe(sigma=0.0), 5.145, 0.241, 0.206, 0.510),
        ablation_row("0.25", Recipe(sigma=0.25), 4.871, 0.226, 0.228, 0.542),
        ablation_row("0.50", OURS, *FULL),
        ablation_row("0.75", Recipe(sigma=0.75), 4.683, 0.218, 0.240, 0.556),
        ablation_row("1.00", Recipe(sigma=1.0), 4.732, 0.223, 0.238, 0.552),
        about_map=True,
    ),
    _ablation(
        "3f",
        "Time shifts |K| at inference",
        ("|K|",),
        ablation_row("1", OURS, 4.592, 0.221, 0.235, 0.552, spec=EvalSpec(shifts=1)),
        ablation_row("2", OURS, 4.493, 0.217, 0.242, 0.556, spec=EvalSpec(shifts=2)),
        ablation_row("3", OURS, 4.471, 0.213, 0.243, 0.561, spec=EvalSpec(shifts=3)),
        ablation_row("4", OURS, *FULL),
        note="All four rows are one run per seed, evaluated with more or fewer shifts; they differ in nothing else. "
        "K = 1, 2, 3 use the first offsets of K = 4.",
    ),
    _ablation(
        "3g",
        "Objective",
        ("Objective",),
        ablation_row("MSE", Recipe(count_weight=0.0), 5.109, 0.273, 0.215, 0.532),
        ablation_row("+ MAE", OURS, *FULL),
        about_map=True,
    ),
    _ablation(
        "L",
        "Cross-attention blocks L",
        ("L",),
        ablation_row("1", Recipe(cross_blocks=1), 4.843, 0.229, 0.223, 0.545),
        ablation_row("2", OURS, *FULL),
        ablation_row("3", Recipe(cross_blocks=3), 4.575, 0.219, 0.247, 0.560),
        ablation_row("4", Recipe(cross_blocks=4), 4.783, 0.225, 0.235, 0.548),
    ),
    _ablation(
        "Lprime",
        "Windowed self-attention blocks L'",
        ("L'",),
        ablation_row("1", Recipe(window_blocks=1), 4.932, 0.247, 0.212, 0.525),
        ablation_row("2", Recipe(window_blocks=2), 4.634, 0.218, 0.238, 0.550),
        ablation_row("3", OURS, *FULL),
        ablation_row("4", Recipe(window_blocks=4), 4.532, 0.225, 0.230, 0.552),
    ),
    _ablation(
        "windows",
        "Window sizes (t', h', w')",
        ("Window",),
        ablation_row("(3,3,3)", Recipe(window=(3, 3, 3)), 5.212, 0.261, 0.185, 0.521),
        ablation_row("(2,7,7)", Recipe(window=(2, 7, 7)), 4.871, 0.247, 0.201, 0.537),
        ablation_row("(4,7,7)", OURS, *FULL),
        ablation_row("(7,7,7)", Recipe(window=(7, 7, 7)), 4.753, 0.225, 0.232, 0.520),
        ablation_row("full", Recipe(window="full"), 5.011, 0.227, 0.221, 0.533),
    ),
    _ablation(
        "sampling",
        "Sampling rate: every n-th frame",
        ("n",),
        ablation_row("4", OURS, *FULL),
        ablation_row("8", Recipe(every=8), 5.112, 0.268, 0.221, 0.521),
        ablation_row("16", Recipe(every=16), 5.911, 0.296, 0.185, 0.482),
        ablation_row("32", Recipe(every=32), 6.562, 0.346, 0.156, 0.444),
    ),
)
