"""The paper's recipe on a dataset's stored tokens, each ablated choice a field: `escounts train DATASET`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from escounts.errors import DataError
from escounts.models.catalogue import LITE_WEIGHTS
from escounts.models.checkpoint import read_checkpoint
from escounts.nn.decoder import PAPER, RELEASED, DecoderConfig
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import LITE_DECODER, NARROW_DECODER, NetworkConfig
from escounts.research.datasets.annotations import Problem
from escounts.research.datasets.encoding import layout_for
from escounts.research.datasets.encoding_plan import EncodingPlan, Progress
from escounts.research.datasets.registry import load_dataset
from escounts.research.datasets.stores import (
    find_store,
    load_labels,
    network_encoder,
    open_encoder,
    store_path,
)
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.research.training.batches import ExemplarSampling
from escounts.research.training.objective import RELEASED_OBJECTIVE, DensityObjectiveConfig, RateObjectiveConfig
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun, changed, train_on_tokens
from escounts.research.training.trainer import Report

RELEASED_BETAS = (0.9, 0.95)
"""Of AdamW in the released code; the paper states none."""


@dataclass(frozen=True)
class Recipe:
    """One run of the paper; the defaults are ESCounts as in Table 1. Every ablated choice is a field.

    head: what the decoder ends in, the paper's density or the default model's rate. released_decoder,
    released_objective: as the released code has them. lr: learning rate, where it is not the run's own.
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
    head: Literal["density", "rate"] = "density"
    released_decoder: bool = False
    released_objective: bool = False
    lr: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the paper's final setting."""
        mine, default = asdict(self), asdict(type(self)())
        return {name: value for name, value in mine.items() if value != default[name]}

    def paper_run(self, layout: TokenLayout, seed: int = 0, *, epochs: int | None = None) -> TokenRun:
        """The run at the paper's scale on tokens of a layout; the decoder works on the grid that is stored."""
        betas = RELEASED_BETAS if self.released_objective else TrainConfig.betas
        train = TrainConfig(seed=seed, epochs=epochs or TrainConfig.epochs, lr=self.lr or TrainConfig.lr, betas=betas)
        decoder = RELEASED if self.released_decoder else replace(PAPER, **self.decoder_choices())
        grid = decoder.grid if self.released_decoder else layout.grid
        decoder = replace(decoder, in_channels=layout.channels, grid=grid)
        if self.head == "rate":
            decoder = replace(decoder, head=RateHeadConfig())
        return self.run_of(decoder, train, StoredTokensConfig(seed=seed), layout)

    def run_of(
        self, decoder: DecoderConfig, train: TrainConfig, tokens: StoredTokensConfig, layout: TokenLayout
    ) -> TokenRun:
        """The run of a decoder with the recipe's exemplars, targets and objective. layout: of the tokens."""
        tokens = replace(tokens, exemplars=ExemplarSampling(self.shots, self.other_video, self.same_class))
        if isinstance(decoder.head, RateHeadConfig):
            return TokenRun(decoder, train, replace(tokens, target="rate"), RateObjectiveConfig(head=decoder.head))
        objective = (
            RELEASED_OBJECTIVE if self.released_objective else DensityObjectiveConfig(count_weight=self.count_weight)
        )
        return TokenRun(decoder, train, replace(tokens, sigma=self.sigma), objective)

    def decoder_choices(self) -> dict[str, Any]:
        """Fields of the decoder that are ablated."""
        return {
            "self_attention_only": self.self_attention_only,
            "cross_blocks": self.cross_blocks,
            "window_blocks": self.window_blocks,
            "window": self.window,
        }


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

    >>> train_dataset(Recipe(dataset="ucfrep"), Path("tokens"), Path("runs/ucfrep"))
    """
    path = find_store(tokens, recipe.dataset, encoder)
    store, dataset = TokenStore(path), load_labels(path, recipe.dataset)
    run = changed(recipe.paper_run(store.layout, seed), changes or {})
    return train_on_tokens(run, dataset, store, out, device=device, report=report)


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


def train_folder(
    root: Path,
    out: Path,
    *,
    tokens: Path | None = None,
    initial: str = "lite",
    encoder: str | None = None,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    report: Report | None = None,
) -> tuple[dict[str, float], list[Problem]]:
    """Encode and train on your own videos; the last validation's figures, and every video that was left out.

    initial: `lite`, a checkpoint, or `none`. encoder: instead of these, one whose frozen tokens a fresh decoder
    learns from (see `encoder_run`). tokens: where they are kept (None: in the run's folder). changes: fields of
    OWN_TRAIN, or of ENCODER_TRAIN.
    """
    dataset, files = load_dataset("folder", root), root.parent if root.is_file() else root
    start = {"lite": LITE_WEIGHTS, "none": None}.get(initial, Path(initial)) if encoder is None else None
    if start is not None and not start.exists():
        raise DataError(f"no checkpoint {start} to start from; --init none trains from nothing")
    if start is not None:
        made, identity = network_encoder(start, device=device)
    else:
        made, identity = open_encoder(encoder or "patches", device=device)
    if encoder is not None:
        layout = layout_for(made.spec, identity, pool=min(made.spec.grid, ENCODER_GRID), exemplars=4)
        run = encoder_run(layout, seed=seed)
    else:
        layout = layout_for(made.spec, identity, shifts=2)
        run = folder_run(layout, start, seed=seed)
    run = changed(run, changes or {})
    path = store_path(tokens or out / "tokens", "folder", encoder or made.spec.name)
    store, problems = EncodingPlan(dataset, files, made, layout, path).run(progress)
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


ENCODER_GRID = (3, 3)
"""To which the tokens of an encoder are averaged."""
ENCODER_TRAIN = TrainConfig(
    steps=500,
    batch_size=32,
    lr=3.5e-4,
    betas=(0.9, 0.98),
    schedule="cosine",
    warmup_steps=50,
    validate_every=10_000,
    checkpoint_every=500,
)
"""For hundreds of videos on an encoder's frozen tokens, as `escounts-i3d` was trained."""


def encoder_run(layout: TokenLayout, *, seed: int = 0) -> TokenRun:
    """A fresh decoder of the default model's form on an encoder's frozen tokens."""
    decoder = replace(LITE_DECODER, in_channels=layout.channels, grid=layout.grid, window=(16, *layout.grid))
    decoder = replace(decoder, head=RateHeadConfig())
    train = replace(ENCODER_TRAIN, seed=seed)
    tokens = StoredTokensConfig(seed=seed, batch_size=train.batch_size, target="rate", crop=0.6)
    return TokenRun(decoder, train, tokens, RateObjectiveConfig(head=RateHeadConfig()))
