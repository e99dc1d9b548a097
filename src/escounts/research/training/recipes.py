"""Recipes: the training runs that tables are made of, at the paper's scale or on generated videos; and training on a
dataset's stored tokens, or on your own folder of videos, by name: what `escounts train` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from escounts.errors import DataError
from escounts.models.catalogue import LITE_WEIGHTS
from escounts.models.checkpoint import read_checkpoint
from escounts.nn.decoder import PAPER, RELEASED, DecoderConfig
from escounts.nn.heads import DensityHeadConfig, RateHeadConfig
from escounts.nn.network import NARROW_DECODER, NetworkConfig
from escounts.research.datasets.annotations import Problem
from escounts.research.datasets.encoding import Progress, encode_dataset, layout_for
from escounts.research.datasets.registry import load_dataset
from escounts.research.datasets.stores import (
    find_store,
    load_labels,
    network_encoder,
    open_encoder,
    save_labels,
    store_path,
)
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.research.rival_heads import RepNetConfig, TransRACConfig
from escounts.research.training.batches import ExemplarSampling
from escounts.research.training.objective import (
    RELEASED_OBJECTIVE,
    DensityObjectiveConfig,
    ObjectiveConfig,
    PeriodObjectiveConfig,
    RateObjectiveConfig,
)
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun, train_on_tokens
from escounts.research.training.trainer import Report

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

OWN_TRAIN = TrainConfig(
    steps=400,
    batch_size=8,
    lr=1e-4,
    betas=(0.9, 0.98),
    schedule="cosine",
    warmup_steps=20,
    ema=0.99,
    validate_every=50,
    checkpoint_every=50,
)
"""For your own videos: few of them, so that it starts from the default model and trains gently."""


def train_dataset(
    recipe: Recipe,
    tokens: Path,
    out: Path,
    *,
    encoder: str | None = None,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    device: str = "cpu",
    report: Report | None = None,
) -> dict[str, float]:
    """Train a recipe on its dataset's tokens into a run folder; the last validation's figures.

    encoder: whose tokens, when the folder holds several. changes: fields of the recipe's TrainConfig.

    >>> train_dataset(Recipe(dataset="ucfrep", method="repnet"), Path("tokens"), Path("runs/repnet"))
    """
    path = find_store(tokens, recipe.dataset, encoder)
    store, dataset = TokenStore(path), load_labels(path, recipe.dataset)
    run = _changed(recipe.paper_run(store.layout, seed), changes or {})
    return train_on_tokens(run, dataset, store, out, device=device, report=report)


def train_folder(
    root: Path,
    out: Path,
    *,
    tokens: Path | None = None,
    initial: str = "lite",
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    report: Report | None = None,
) -> tuple[dict[str, float], list[Problem]]:
    """Encode and train on your own videos; the last validation's figures, and every video that was left out.

    initial: `lite`, a checkpoint, or `none`. tokens: where they are kept (None: in the run's folder).
    changes: fields of OWN_TRAIN.
    """
    dataset = load_dataset("folder", root)
    start = {"lite": LITE_WEIGHTS, "none": None}.get(initial, Path(initial))
    if start is not None and not start.exists():
        raise DataError(f"no checkpoint {start} to start from; --init none trains from nothing")
    encoder, identity = (
        open_encoder("patches", device=device) if start is None else network_encoder(start, device=device)
    )
    layout = layout_for(encoder.spec, identity, shifts=2)
    path = store_path(tokens or out / "tokens", "folder", encoder.spec.name)
    store, problems = encode_dataset(dataset, root, path, encoder, layout, progress=progress)
    save_labels(path, dataset)
    run = _changed(folder_run(layout, start, seed=seed), changes or {})
    figures = train_on_tokens(run, dataset, store, out, device=device, initial=start, report=report)
    return figures, [*dataset.problems, *problems]


def folder_run(layout: TokenLayout, initial: Path | None, *, seed: int = 0) -> TokenRun:
    """The run for a folder of own videos. initial: the network it starts from, None to start from nothing."""
    if initial is None:
        decoder = replace(NARROW_DECODER, in_channels=layout.channels)
    else:
        decoder = NetworkConfig.from_plain(read_checkpoint(initial)[1]).decoder
    assert isinstance(decoder.head, RateHeadConfig)
    train = replace(OWN_TRAIN, seed=seed, lr=2e-3 if initial is None else OWN_TRAIN.lr)
    tokens = StoredTokensConfig(
        seed=seed, batch_size=train.batch_size, target="rate", by_window=True, shifts=2, validation_shifts=2
    )
    return TokenRun(decoder, train, tokens, RateObjectiveConfig(head=decoder.head))


def _changed(run: TokenRun, changes: Mapping[str, Any]) -> TokenRun:
    """The run with other fields of its TrainConfig; epochs stand in the place of its steps."""
    train = replace(run.train, **({"steps": None} if "epochs" in changes else {}) | dict(changes))
    return replace(run, train=train, tokens=replace(run.tokens, batch_size=train.batch_size))
