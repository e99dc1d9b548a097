"""Recipes: the training runs that tables are made of, at the paper's scale or on generated videos."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from escounts.baselines.rival_heads import RepNetConfig, TransRACConfig
from escounts.datasets.tokens import TokenLayout
from escounts.nn.decoder import PAPER, RELEASED, DecoderConfig
from escounts.nn.heads import DensityHeadConfig, RateHeadConfig
from escounts.nn.network import NARROW_DECODER
from escounts.training.batches import ExemplarSampling
from escounts.training.objective import (
    RELEASED_OBJECTIVE,
    DensityObjectiveConfig,
    ObjectiveConfig,
    PeriodObjectiveConfig,
    RateObjectiveConfig,
)
from escounts.training.optimisation import TrainConfig
from escounts.training.stored_tokens import StoredTokensConfig
from escounts.training.token_run import TokenRun

Method = Literal["escounts", "repnet", "transrac"]
TIME_CELLS = 4
"""Cells of a generated video that stand for one of the paper's: a tenth of a second against 8 frames."""
TRANSRAC_KAPPA = 1 / 6
"""TransRAC's peaks: three standard deviations on either side fill the repetition."""


@dataclass(frozen=True)
class Recipe:
    """One run of the paper; the defaults are ESCounts as in Table 1. Every ablated choice is a field.

    method: whose head is trained on the tokens. head: what ESCounts' decoder ends in, the paper's density or the
    default model's rate. released_decoder, released_objective: as the released code has them. lr: learning rate,
    where it is not the scale's own.
    """

    dataset: str = "repcount"
    encoder: str = "mae-vit-b"
    every: int = 4
    shots: tuple[int, ...] = (0, 1, 2)
    other_video: float = 0.4
    same_class: bool = True
    sigma: float | Literal["variable"] = 0.5
    count_weight: float = 1.0
    self_attention_only: bool = False
    cross_blocks: int = 2
    window_blocks: int = 3
    window: tuple[int, int, int] | Literal["full"] = (4, 7, 7)
    method: Method = "escounts"
    head: Literal["density", "rate"] = "density"
    released_decoder: bool = False
    released_objective: bool = False
    lr: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the paper's final setting."""
        mine, default = asdict(self), asdict(Recipe())
        return {name: value for name, value in mine.items() if value != default[name]}

    def paper_run(self, layout: TokenLayout, seed: int = 0, *, epochs: int | None = None) -> TokenRun:
        """The run at the paper's scale on tokens of a layout; the decoder works on the grid that is stored."""
        train = TrainConfig(seed=seed, epochs=epochs or TrainConfig.epochs, lr=self.lr or TrainConfig.lr)
        decoder = RELEASED if self.released_decoder else replace(PAPER, **self._decoder_choices())
        grid = decoder.grid if self.released_decoder else layout.grid
        decoder = replace(decoder, in_channels=layout.channels, grid=grid)
        if self.head == "rate":
            decoder = replace(decoder, head=RateHeadConfig())
        return self._run(decoder, train, {"seed": seed}, layout)

    def generated_run(self, layout: TokenLayout, seed: int = 0, *, scale: GeneratedScale) -> TokenRun:
        """The same choices on generated videos, at a size that trains in a minute.

        A generated video's cells are shorter than the paper's: a window has as many times more of them, and a peak is
        as many times wider. A window's space is clipped to the grid.
        """
        window = self.window if self.window == "full" else (TIME_CELLS * self.window[0], *self.window[1:])
        head = DensityHeadConfig() if self.head == "density" else NARROW_DECODER.head
        decoder = replace(
            NARROW_DECODER,
            in_channels=layout.channels,
            channels=scale.channels,
            heads=scale.heads,
            grid=(min(scale.grid, layout.grid[0]),) * 2,
            head=head,
            **(self._decoder_choices() | {"window": window}),
        )
        train = replace(scale.train, seed=seed, lr=self.lr or scale.train.lr)
        if isinstance(self.sigma, float):
            return replace(self, sigma=TIME_CELLS * self.sigma)._generated(decoder, train, layout)
        return self._generated(decoder, train, layout)

    def _generated(self, decoder: DecoderConfig, train: TrainConfig, layout: TokenLayout) -> TokenRun:
        return self._run(decoder, train, {"seed": train.seed, "batch_size": train.batch_size, "crop": 0.6}, layout)

    def _run(
        self, decoder: DecoderConfig, train: TrainConfig, common: dict[str, Any], layout: TokenLayout
    ) -> TokenRun:
        """The method's network with its own targets and objective; trainer, data and order are everybody's."""
        none = ExemplarSampling(shots=(0,), other_video=0.0)
        if self.method == "repnet":
            config = RepNetConfig(in_channels=layout.channels)
            tokens = StoredTokensConfig(**common, exemplars=none, target="rate")
            return TokenRun(config, train, tokens, PeriodObjectiveConfig(periods=config.periods))
        if self.method == "transrac":
            tokens = StoredTokensConfig(**common, exemplars=none, sigma="variable", kappa=TRANSRAC_KAPPA)
            objective = DensityObjectiveConfig(count_weight=0.0)
            return TokenRun(TransRACConfig(in_channels=layout.channels), train, tokens, objective)
        sampling = ExemplarSampling(self.shots, self.other_video, self.same_class)
        if isinstance(decoder.head, RateHeadConfig):
            tokens = StoredTokensConfig(**common, exemplars=sampling, target="rate")
            return TokenRun(decoder, train, tokens, RateObjectiveConfig(head=decoder.head))
        tokens = StoredTokensConfig(**common, exemplars=sampling, sigma=self.sigma)
        objective_config: ObjectiveConfig = DensityObjectiveConfig(count_weight=self.count_weight)
        return TokenRun(decoder, train, tokens, RELEASED_OBJECTIVE if self.released_objective else objective_config)

    def _decoder_choices(self) -> dict[str, Any]:
        return {
            "self_attention_only": self.self_attention_only,
            "cross_blocks": self.cross_blocks,
            "window_blocks": self.window_blocks,
            "window": self.window,
        }


@dataclass(frozen=True)
class GeneratedScale:
    """How large a run on generated videos is: width and heads of the decoder, the grid it pools to, the training."""

    channels: int
    heads: int
    grid: int
    train: TrainConfig


QUICK_TRAIN = TrainConfig(
    steps=300,
    batch_size=8,
    lr=2e-3,
    betas=(0.9, 0.98),
    schedule="cosine",
    warmup_steps=20,
    validate_every=10_000,
    checkpoint_every=10_000,
    log_every=20,
)
QUICK_SCALE = GeneratedScale(channels=64, heads=2, grid=1, train=QUICK_TRAIN)
"""About a minute on two CPU cores."""
FULL_SCALE = GeneratedScale(
    channels=128, heads=4, grid=2, train=replace(QUICK_TRAIN, steps=2000, batch_size=24, lr=1e-3, warmup_steps=100)
)
"""About a minute on a GPU that a dozen runs share."""
