"""What training minimises: eq. 6 for density maps, and its counterpart for the rate head.

`loss_terms(config, output, target)` gives a dictionary of scalars whose "loss" is the total; the others are its terms
before they are weighted, for the log. Any config with `weights()` and `terms()` is an objective.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from escounts.nn.heads import VIDEO_OUTPUTS, HeadOutput, RateHeadConfig, pool_video_logits


@dataclass
class Target:
    """The truth for a batch.

    density_BT: repetitions per cell (a density map, or a rate map for the rate objective).
    count_B: annotated counts. valid_BT: True where a cell is real, None when all are.
    period_BT: length in cells of the repetition a cell lies in, 0 outside; the rate objective needs it.
    video_BK: 1 or 0 for each of VIDEO_OUTPUTS, NaN where it is not known; None where nothing is.
    """

    density_BT: Tensor
    count_B: Tensor
    valid_BT: Tensor | None = None
    period_BT: Tensor | None = None
    video_BK: Tensor | None = None


class ObjectiveConfig(Protocol):
    """What is minimised; a frozen dataclass of plain values, so that a run folder can keep it."""

    @property
    def kind(self) -> str:
        """Its name in files."""
        ...

    def weights(self) -> Mapping[str, float]:
        """Term → its weight in the loss."""
        ...

    def terms(self, output: HeadOutput, target: Target) -> dict[str, Tensor]:
        """The terms of a batch before they are weighted."""
        ...


@dataclass(frozen=True)
class DensityObjectiveConfig:
    """Eq. 6. map_weight, count_weight: its two terms (the ablation of Table 3g sets the second to 0).

    map_scale: both maps are multiplied by it first. drop: share of cells left out of the map term at random.
    count_rule: "paper" divides the count error by max(c, 1), "released" by c + 0.1.
    """

    kind: Literal["density"] = "density"
    map_weight: float = 1.0
    count_weight: float = 1.0
    map_scale: float = 1.0
    drop: float = 0.0
    count_rule: Literal["paper", "released"] = "paper"

    def weights(self) -> Mapping[str, float]:
        return {"map": self.map_weight, "count": self.count_weight}

    def terms(self, output: HeadOutput, target: Target) -> dict[str, Tensor]:
        """Mean squared error of the maps over time, absolute error of the counts over the true count."""
        density_BT = output.density_BT.float()
        error_BT = _real(self.map_scale * (density_BT - target.density_BT), target)
        if self.drop > 0:
            error_BT = error_BT * (torch.rand_like(density_BT) >= self.drop)
        map_B = error_BT.square().sum(1) / _cells(target)
        divisor_B = target.count_B + 0.1 if self.count_rule == "released" else target.count_B.clamp(min=1.0)
        miss_B = (_real(density_BT, target).sum(1) - target.count_B).abs() / divisor_B
        return {"map": map_B.mean(), "count": miss_B.mean()}


@dataclass(frozen=True)
class RateObjectiveConfig:
    """The rate head's objective; head: the period classes it was built with.

    floor: smallest energy of a target map by which the map error is divided, so that a video without
    repetitions still counts.
    """

    kind: Literal["rate"] = "rate"
    map_weight: float = 1.0
    count_weight: float = 1.0
    period_weight: float = 0.5
    gate_weight: float = 1.0
    video_weight: float = 0.4
    floor: float = 0.02
    head: RateHeadConfig = field(default_factory=RateHeadConfig)

    def weights(self) -> Mapping[str, float]:
        return {
            "map": self.map_weight,
            "count": self.count_weight,
            "period": self.period_weight,
            "gate": self.gate_weight,
            **dict.fromkeys(VIDEO_OUTPUTS, self.video_weight),
        }

    def terms(self, output: HeadOutput, target: Target) -> dict[str, Tensor]:
        """Map and count errors relative to the truth, cross-entropy of the period, cross-entropy of the gate."""
        if output.gate_logits_BT is None or output.period_logits_BTP is None or target.period_BT is None:
            raise ValueError("the rate objective needs a rate head and periods; a density alone has neither")
        density_BT, truth_BT = output.density_BT.float(), target.density_BT
        error_B = _real((density_BT - truth_BT).square(), target).sum(1)
        energy_B = _real(truth_BT.square(), target).sum(1).clamp(min=self.floor)
        miss_B = (_real(density_BT, target).sum(1) - target.count_B).abs() / (target.count_B + 1)
        inside_BT = (target.period_BT > 0).float()
        known_BT = _real(inside_BT, target)
        period_error_BT = _period_cross_entropy(self.head, output.period_logits_BTP, target.period_BT)
        gate_error_BT = F.binary_cross_entropy_with_logits(output.gate_logits_BT.float(), inside_BT, reduction="none")
        cells = truth_BT.numel() if target.valid_BT is None else target.valid_BT.sum()
        return {
            "map": (error_B / energy_B).mean(),
            "count": miss_B.mean(),
            "period": (period_error_BT * known_BT).sum() / known_BT.sum().clamp(min=1),
            "gate": _real(gate_error_BT, target).sum() / cells,
            **_video_terms(output, target),
        }


RELEASED_OBJECTIVE = DensityObjectiveConfig(map_scale=100.0, drop=0.2, count_rule="released")
"""The released code's arithmetic."""


def loss_terms(config: ObjectiveConfig, output: HeadOutput, target: Target) -> dict[str, Tensor]:
    """{"loss": total, and its terms}, each a scalar averaged over the batch."""
    terms, weights = config.terms(output, target), config.weights()
    return {"loss": torch.stack([weights[name] * term for name, term in terms.items()]).sum(), **terms}


def _real(values_BT: Tensor, target: Target) -> Tensor:
    """The values, 0 where a cell is padding."""
    return values_BT if target.valid_BT is None else values_BT * target.valid_BT


def _cells(target: Target) -> Tensor | int:
    """Real cells of each video."""
    return target.density_BT.shape[1] if target.valid_BT is None else target.valid_BT.sum(1)


def _video_terms(output: HeadOutput, target: Target) -> dict[str, Tensor]:
    """Cross-entropy of each output about the whole video, over the videos for which the truth is known."""
    if output.video_logits_BTK is None or output.gate_logits_BT is None or target.video_BK is None:
        return {}
    logits_BK = pool_video_logits(output.video_logits_BTK, output.gate_logits_BT, target.valid_BT)
    known_BK = ~target.video_BK.isnan()
    error_BK = F.binary_cross_entropy_with_logits(logits_BK, target.video_BK.nan_to_num(), reduction="none")
    error_K = (error_BK * known_BK).sum(0) / known_BK.sum(0).clamp(min=1)
    return dict(zip(VIDEO_OUTPUTS, error_K, strict=True))


def _period_cross_entropy(head: RateHeadConfig, logits_BTP: Tensor, period_BT: Tensor) -> Tensor:
    """Cross-entropy against the two period classes nearest in log, weighted by nearness; periods in cells."""
    below_BT, share_BT = nearest_periods(head, period_BT)
    logs_BTP = logits_BTP.float().log_softmax(-1)
    index_BT1 = below_BT[..., None]
    lower_BT = logs_BTP.gather(-1, index_BT1).squeeze(-1)
    upper_BT = logs_BTP.gather(-1, index_BT1 + 1).squeeze(-1)
    return -(lower_BT * (1 - share_BT) + upper_BT * share_BT)


def nearest_periods(head: RateHeadConfig, period: Tensor) -> tuple[Tensor, Tensor]:
    """The lower of the two period classes nearest in log, and the share of the upper one; of any shape, in cells."""
    low, high = math.log(head.min_period), math.log(head.max_period)
    place = (period.clamp(head.min_period, head.max_period).log() - low) / (high - low) * (head.bins - 1)
    below = place.floor().clamp(0, head.bins - 2)
    return below.long(), (place - below).clamp(0, 1)
