"""Tunes a rate head on a few labelled videos whose features are computed once.

Everything before the head stays as it is, so a video is encoded and decoded once; after that a step of training takes
milliseconds, and counting with another head goes the way counting always goes (`FeatureEncoding`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from escounts.counting.maps import period_map, rate_map
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.views import BASE_RATE, View, Window
from escounts.decision.rules import Calibration
from escounts.errors import DataError
from escounts.nn.decoder import ExemplarKeysValues
from escounts.nn.heads import HeadOutput, RateHead, RateHeadConfig, period_bins
from escounts.nn.network import Network
from escounts.research.datasets.annotations import Span
from escounts.research.training.objective import nearest_periods

SHORTEST_PERIOD = 2.5
"""Cells a labelled repetition must last at a view to be learnt there; at a slower view the motion is an alias, and
the view learns to be unsure, so that a faster one is asked."""
MOST_WINDOWS = 48
"""Windows of a video and view that are trained on, spread over it: hours of video teach no more than minutes."""
PERIOD_WEIGHT = 0.5
LEARNING_RATE = 1e-2
PULL = 1e-3
"""Strength of the pull back to the weights that training started from."""


class FeatureEncoding(MultiRateEncoding):
    """An encoded video that keeps what the head sees of every window, so that any head counts it at once.

    encoding: has all views of its model. features: window's offset → (T, C), shared by all heads.
    """

    def __init__(self, encoding: MultiRateEncoding, model: MultiRateModel, features: dict[int, Tensor]) -> None:
        super().__init__(model, lambda _: (), start=encoding.start, video=encoding.video)
        self.store, self.windows = encoding.store, encoding.windows
        self.frames, self.end, self.meter = encoding.frames, encoding.end, encoding.meter
        self.features = features
        model.encode_views(self)

    @classmethod
    @torch.inference_mode()
    def of(cls, encoding: MultiRateEncoding) -> FeatureEncoding:
        """Decode every window of an encoding once."""
        decoder, device = encoding.model.network.decoder, encoding.model.device
        latent = decoder.encode_exemplars()
        features = {}
        for window in [window for windows in encoding.windows.values() for window in windows]:
            if window.offset is not None:  # one in which nothing moves is not decoded
                seen_1THWC = decoder.features(encoding.store.read([window], device), latent)
                features[window.offset] = seen_1THWC[0].mean((1, 2))
        return cls(encoding, encoding.model, features)

    def read_by(self, model: MultiRateModel) -> FeatureEncoding:
        """The same video for a model that differs in its head alone; it asks the views that this head wants."""
        return FeatureEncoding(self, model, self.features)

    def seen(self, window: Window) -> Tensor:
        """What the head sees of a window in which something moves, (T, C)."""
        assert window.offset is not None
        return self.features[window.offset]

    def head_output(self, windows: Sequence[Window], keys_values: ExemplarKeysValues) -> HeadOutput:
        """What the model's head makes of the kept features; without exemplars only, which would change them."""
        kept_BTC = torch.stack([self.seen(window) for window in windows])
        output: HeadOutput = self.model.network.decoder.head(kept_BTC[:, :, None, None])
        return output


@dataclass(frozen=True)
class HeadRows:
    """Cells of labelled videos: what the head sees and what it is to say.

    features_NC. inside_N: 1 in a repetition. period_NP: shares of the period classes, all alike where the view is too
    slow, 0 outside. counted_N: 1 where the density is to sum to the labels. weight_N: sums to 1 over all. window_N:
    index of the cell's window; truth_W, weight_W: repetitions in it and its share of the count's loss.
    """

    features_NC: Tensor
    inside_N: Tensor
    period_NP: Tensor
    counted_N: Tensor
    weight_N: Tensor
    window_N: Tensor
    truth_W: Tensor
    weight_W: Tensor

    @classmethod
    def of(cls, videos: Sequence[tuple[FeatureEncoding, Sequence[Span]]], config: RateHeadConfig) -> HeadRows:
        """Rows of videos with their labelled repetitions; every video and every view of it weighs the same."""
        features, rates, periods, shares = [], [], [], []
        for encoding, spans in videos:
            lasting = [span for span in spans if span[1] > span[0]]
            for view, windows in encoding.windows.items():
                chosen = _spread([window for window in windows if window.offset is not None], MOST_WINDOWS)
                for window in chosen:
                    rate_T, period_T = _targets(lasting, view, window, encoding.start)
                    features.append(encoding.seen(window))
                    rates.append(rate_T)
                    periods.append(period_T)
                    shares.append(1 / (len(videos) * len(encoding.windows) * len(chosen)))
        if not features:
            raise DataError("nothing moves in the labelled videos; there is no action to learn")
        period_N = torch.cat(periods)
        inside_N = period_N > 0
        learnt_N = (period_N >= SHORTEST_PERIOD) & (period_N <= config.max_period)
        window_N = torch.cat([torch.full((len(rate),), index) for index, rate in enumerate(rates)])
        counted_N = (~inside_N | learnt_N).float()
        weight_W = torch.tensor(shares)
        length_W = torch.tensor([float(len(rate)) for rate in rates])
        truth_W = torch.zeros(len(rates)).index_add_(0, window_N, torch.cat(rates) * counted_N)
        return cls(
            features_NC=torch.cat(features).float().cpu(),
            inside_N=inside_N.float(),
            period_NP=_period_shares(config, period_N, learnt_N) * inside_N[:, None],
            counted_N=counted_N,
            weight_N=(weight_W / length_W)[window_N],
            window_N=window_N,
            truth_W=truth_W,
            weight_W=weight_W,
        )

    def loss(self, head: RateHead, calibration: Calibration) -> Tensor:
        """Gate, period and count as counting reads them: with the calibration's gate, not the bare one."""
        output: HeadOutput = head(self.features_NC[None, :, None, None])
        assert output.gate_logits_BT is not None and output.period_logits_BTP is not None
        gate_N = calibration.gate_sharpness * (output.gate_logits_BT[0] + calibration.gate_bias)
        logs_NP = output.period_logits_BTP[0].log_softmax(-1)
        period = -((self.period_NP * logs_NP).sum(-1) * self.weight_N).sum()
        gate_error_N = F.binary_cross_entropy_with_logits(gate_N, self.inside_N, reduction="none")
        density_N = (logs_NP.exp() / period_bins(head.config, logs_NP.device)).sum(-1) * gate_N.sigmoid()
        count_W = torch.zeros_like(self.truth_W).index_add_(0, self.window_N, density_N * self.counted_N)
        count = ((count_W - self.truth_W).abs() / (self.truth_W + 1) * self.weight_W).sum()
        return PERIOD_WEIGHT * period + (gate_error_N * self.weight_N).sum() + count


def tuned_heads(
    start: RateHead, rows: HeadRows, calibration: Calibration, *, steps: int, every: int
) -> Iterator[tuple[int, RateHead]]:
    """Train a copy of a head on all rows at once; (step, head) every `every` steps, the first (0) and the last too.

    The head that is given out goes on being trained: use it before asking for the next.
    """
    head = copy.deepcopy(start).float().cpu()
    origin = [parameter.detach().clone() for parameter in head.parameters()]
    optimiser = torch.optim.Adam(head.parameters(), lr=LEARNING_RATE)
    yield 0, head
    for step in range(1, steps + 1):
        pull = sum(((now - then) ** 2).sum() for now, then in zip(head.parameters(), origin, strict=True))
        loss = rows.loss(head, calibration) + PULL * pull
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step % every == 0 or step == steps:
            yield step, head


def without_video_outputs(head: RateHead) -> RateHead:
    """The head without what it says of whole videos: labels, not the model, say whether sides or cycles are meant."""
    plain = RateHead(replace(head.config, video_width=0), head.linear.in_features).to(head.linear.weight.device)
    plain.linear.load_state_dict(head.linear.state_dict())
    return plain


def in_other_unit(head: RateHead, factor: float) -> RateHead:
    """The head that counts `factor` repetitions where this one counts 1: its period classes moved along.

    Classes that the old head has no period for become unlikely.
    """
    config = head.config
    moved = copy.deepcopy(head)
    per_class = math.log(config.max_period / config.min_period) / (config.bins - 1)
    place_P = torch.arange(config.bins) + math.log(factor) / per_class
    below_P = place_P.floor()
    share_P = place_P - below_P
    low_P, high_P = (i.clamp(0, config.bins - 1).long() + 1 for i in (below_P, below_P + 1))  # row 0 is the gate
    outside_P = (place_P < 0) | (place_P > config.bins - 1)
    with torch.no_grad():
        old = head.linear
        moved.linear.weight[1:] = old.weight[low_P].lerp(old.weight[high_P], share_P[:, None])
        moved.linear.bias[1:] = old.bias[low_P].lerp(old.bias[high_P], share_P) - 8.0 * outside_P
    return moved


def with_head(model: MultiRateModel, head: RateHead, *, name: str) -> MultiRateModel:
    """A model with another head and a confidence that is not a probability: nobody calibrated this one."""
    decoder = copy.deepcopy(model.network.decoder)
    decoder.head, decoder.config = head.to(model.device), replace(decoder.config, head=head.config)
    network = Network(
        replace(model.network.config, decoder=decoder.config), encoder=model.network.encoder, decoder=decoder
    )
    return MultiRateModel(
        name,
        network,
        device=model.device,
        # Such a head says nothing of whole videos, so that the floor decides whether there are repetitions.
        calibration=replace(model.calibration, calibrated=False, repeats=(), alternates=()),
        views=model.views,
        fast_views=model.fast_views,
    )


def _spread(windows: Sequence[Window], most: int) -> list[Window]:
    """At most `most` windows, evenly over all."""
    if not windows:
        return []
    places = np.linspace(0, len(windows) - 1, min(most, len(windows))).round().astype(int)
    return [windows[place] for place, _ in groupby(places.tolist())]


def _targets(spans: Sequence[Span], view: View, window: Window, start: float) -> tuple[Tensor, Tensor]:
    """Repetitions per cell and length in cells of the repetition at each, (T,); spans in seconds of the video."""
    step = view.divisor / BASE_RATE
    begin = start + view.phase / BASE_RATE + window.start * step
    rate_T = rate_map(spans, cells=window.cells, step=step, start=begin)
    period_T = period_map(spans, cells=window.cells, step=step, start=begin)
    return torch.from_numpy(rate_T.astype(np.float32)), torch.from_numpy(period_T.astype(np.float32))


def _period_shares(config: RateHeadConfig, period_N: Tensor, learnt_N: Tensor) -> Tensor:
    """(N, P): the two nearest classes by nearness in log, or all alike where the period cannot be learnt."""
    below_N, share_N = nearest_periods(config, period_N)
    index_N1, share_N1 = below_N[:, None], share_N[:, None]
    shares_NP = torch.zeros(len(period_N), config.bins)
    shares_NP.scatter_(1, index_N1, 1 - share_N1).scatter_(1, index_N1 + 1, share_N1)
    return torch.where(learnt_N[:, None], shares_NP, torch.full_like(shares_NP, 1 / config.bins))
