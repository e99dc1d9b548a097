"""What a table is made of: recipes (one training run), tests (one evaluation of it), rows and columns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from escounts.datasets.tokens import TokenLayout
from escounts.nn.decoder import PAPER
from escounts.nn.heads import RateHeadConfig
from escounts.nn.lite import NARROW_DECODER
from escounts.training.config import TrainConfig
from escounts.training.objective import DensityObjectiveConfig, RateObjectiveConfig
from escounts.training.sampling import ExemplarSampling
from escounts.training.stored_tokens import StoredTokensConfig
from escounts.training.token_run import TokenRun

METRICS = ("RMSE", "MAE", "OBZ", "OBO")
Number = float | None


@dataclass(frozen=True)
class Recipe:
    """One run of the paper; the defaults are ESCounts as in Table 1. Every ablated choice is a field."""

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

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the paper's final setting."""
        mine, default = asdict(self), asdict(Recipe())
        return {name: value for name, value in mine.items() if value != default[name]}

    def paper_run(self, layout: TokenLayout, seed: int = 0) -> TokenRun:
        """The run at the paper's scale on tokens of a layout."""
        decoder = replace(PAPER, in_channels=layout.channels, grid=layout.grid, **self._decoder_choices())
        return TokenRun(
            decoder=decoder,
            train=TrainConfig(seed=seed),
            tokens=StoredTokensConfig(seed=seed, exemplars=self._sampling(), sigma=self.sigma),
            objective=DensityObjectiveConfig(count_weight=self.count_weight),
        )

    def quick_run(self, layout: TokenLayout, seed: int = 0, *, steps: int | None = None) -> TokenRun:
        """The same choices at a size that two CPU cores train in about a minute, on generated videos.

        A map of peaks needs more training than that, so the quick runs learn a rate map, except where the table
        is about the map (sigma) or its objective.
        """
        about_map = self.sigma != 0.5 or self.count_weight != 1.0
        window = self.window if self.window == "full" else (4 * self.window[0], 1, 1)
        choices = self._decoder_choices() | {
            "window": window,
            "window_blocks": max(self.window_blocks - 2, 1),
        }
        decoder = replace(
            NARROW_DECODER,
            in_channels=layout.channels,
            cross_blocks=min(self.cross_blocks, 2),
            **_without(choices),
        )
        common = {"seed": seed, "exemplars": self._sampling(), "batch_size": QUICK_TRAIN.batch_size, "crop": 0.6}
        train = replace(QUICK_TRAIN, seed=seed, steps=steps or QUICK_TRAIN.steps)
        if about_map:
            return TokenRun(
                decoder=replace(decoder, head=PAPER.head),
                train=train,
                tokens=StoredTokensConfig(**common, sigma=self.sigma),  # type: ignore[arg-type]
                objective=DensityObjectiveConfig(count_weight=self.count_weight),
            )
        head = decoder.head
        assert isinstance(head, RateHeadConfig)
        return TokenRun(
            decoder=decoder,
            train=train,
            tokens=StoredTokensConfig(**common, target="rate"),  # type: ignore[arg-type]
            objective=RateObjectiveConfig(head=head),
        )

    def _sampling(self) -> ExemplarSampling:
        return ExemplarSampling(self.shots, self.other_video, self.same_class)

    def _decoder_choices(self) -> dict[str, Any]:
        return {
            "self_attention_only": self.self_attention_only,
            "cross_blocks": self.cross_blocks,
            "window_blocks": self.window_blocks,
            "window": self.window,
        }


@dataclass(frozen=True)
class Test:
    """One evaluation. dataset: None for the recipe's own. shots and where they come from; shifts: K."""

    __test__ = False  # not a test case, whatever its name suggests to pytest

    dataset: str | None = None
    shots: int = 0
    exemplars: Literal["same", "other"] = "same"
    shifts: int = 4


@dataclass(frozen=True)
class Cells:
    """The cells of one row in one group of columns: the paper's numbers, and how to measure ours, if it is ours."""

    published: tuple[Number, ...]
    recipe: Recipe | None = None
    test: Test = Test()


@dataclass(frozen=True)
class Row:
    """labels: one for each label column."""

    labels: tuple[str, ...]
    cells: tuple[Cells, ...]


@dataclass(frozen=True)
class Group:
    """Columns that belong together, such as one test set."""

    title: str = ""
    columns: tuple[str, ...] = METRICS


@dataclass(frozen=True)
class Table:
    """A table of the paper. note: what the reader should know about the published numbers."""

    name: str
    title: str
    labels: tuple[str, ...]
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Datasets that ours needs, each once."""
        used = [
            name
            for row in self.rows
            for cells in row.cells
            if cells.recipe
            for name in (cells.recipe.dataset, cells.test.dataset)
            if name
        ]
        return tuple(dict.fromkeys(used))


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


def _without(choices: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if name != "cross_blocks"}
