"""Tables on generated videos: the whole chain, from drawing to the printed table, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from escounts.counting.spectral import SpectralEncoding
from escounts.nn.decoder import DecoderConfig
from escounts.nn.heads import DensityHeadConfig
from escounts.nn.network import NARROW_DECODER
from escounts.research.datasets.annotations import Dataset, VideoAnnotation
from escounts.research.datasets.encoding import layout_for
from escounts.research.datasets.generated import QUICK, SyntheticSet
from escounts.research.datasets.stores import OWN_EVERY, open_encoder, quick_encoder, store_path
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.research.evaluation.models import EvalSpec, EvaluatedModel, MapFunction, mean_count
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.recipes import Recipe
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun
from escounts.results import DensityMap
from paper.entries import NamedModel, Table
from paper.generated_tokens import generated_stores, thumbnails_of
from paper.rendering import FilledTable, SeedSpread, differences, fill, relative_errors
from paper.runs import Source, TableRunner, Unavailable

SOURCE = "ours, synthetic"
RATES = (4, 8, 16, 32)
"""Rows of the sampling table: raw frames between sampled ones in the paper, here the rate divided as much."""
WINDOW = 64
"""Cells of an encoder window: a video holds several, so that each of K = 4 shifts starts inside it."""
STANDS_IN = Recipe()
"""Whose dataset and encoder the generated set and its encoder stand in for."""

FULL_SET = SyntheticSet(
    train=2400, valid=120, test=300, fps=10.0, size=(128, 128), seconds=(16.0, 16.0), period=(6.0, 60.0)
)
"""What a GPU draws and encodes in a minute; of one length, so that a batch needs no padding."""


@dataclass(frozen=True)
class GeneratedScale:
    """How large a run is: width and heads of the decoder, the grid it pools to, the training.

    time_cells: cells that stand for one of the paper's (8 frames; here a tenth of a second). base: the decoder that a
    recipe changes, with the head of the recipes that learn a rate.
    """

    channels: int
    heads: int
    grid: int
    train: TrainConfig
    time_cells: int = 4
    base: DecoderConfig = NARROW_DECODER


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


def generated_run(recipe: Recipe, layout: TokenLayout, seed: int = 0, *, scale: GeneratedScale) -> TokenRun:
    """A recipe's choices at a size that trains in a minute.

    Cells are shorter than the paper's: a window has as many times more of them, and a peak is as many times wider. A
    window's space is clipped to the grid.
    """
    many = scale.time_cells
    window = recipe.window if recipe.window == "full" else (many * recipe.window[0], *recipe.window[1:])
    decoder = replace(
        scale.base,
        in_channels=layout.channels,
        channels=scale.channels,
        heads=scale.heads,
        grid=(min(scale.grid, layout.grid[0]),) * 2,
        head=DensityHeadConfig() if recipe.head == "density" else scale.base.head,
        **(recipe.decoder_choices() | {"window": window}),
    )
    train = replace(scale.train, seed=seed, lr=recipe.lr or scale.train.lr)
    tokens = StoredTokensConfig(seed=seed, batch_size=train.batch_size, crop=0.6)
    if isinstance(recipe.sigma, float):
        recipe = replace(recipe, sigma=many * recipe.sigma)
    return recipe.run_of(decoder, train, tokens, layout)


@dataclass(frozen=True)
class GeneratedExperiment:
    """A generated set, the size of the runs on it, and the head of rows that are not about the map."""

    what: SyntheticSet
    scale: GeneratedScale
    pool: int | None = None
    head: str = "rate"


QUICK_EXPERIMENT = GeneratedExperiment(QUICK, QUICK_SCALE)
"""Learns a rate, as a map of peaks needs more training than a minute on two cores."""
FULL_EXPERIMENT = GeneratedExperiment(FULL_SET, FULL_SCALE, pool=2, head="density")


class GeneratedBench:
    """Generated videos with their tokens at every rate, made if they are not there, and tables on them.

    sources: name of a video → where it is from, for intervals over sources; empty where every video is its own.
    """

    def __init__(
        self,
        out: Path,
        experiment: GeneratedExperiment,
        *,
        rates: Sequence[int] = RATES,
        device: str = "cpu",
        workers: int = 0,
    ) -> None:
        self.out, self.experiment, self.device = out, experiment, device
        self.sources: Mapping[str, str] = {}
        self.encoder_name = quick_encoder()
        layouts: dict[Path, TokenLayout] = {}
        for every in rates:
            encoder, identity = open_encoder(self.encoder_name, every=every, device=device)
            pool = None if experiment.pool is None else (experiment.pool, experiment.pool)
            spec = replace(encoder.spec, window_frames=WINDOW, cells=WINDOW)
            layout = layout_for(spec, identity, pool=pool, shifts=4, exemplars=4)
            name = f"synthetic-{identity}"
            layouts[store_path(out / "tokens", name, self.encoder_name, every)] = layout
        batch = 32 if device.startswith("cuda") else 4
        self.dataset = generated_stores(
            experiment.what, encoder, layouts, device=device, workers=workers, batch=batch
        )
        self.stores = {every: TokenStore(path) for every, path in zip(rates, layouts, strict=True)}

    def runner(self, table: Table, **options: Any) -> TableRunner:
        """What fills one table here."""
        source, plan = self.find_source(table), self.plan(table)
        return TableRunner(self.out, source, plan, find_model=self.find_model, device=self.device, **options)

    def find_source(self, table: Table) -> Callable[[Recipe, str], Source | Unavailable]:
        """Tokens for a recipe; a row that names its own dataset or encoder cannot be run as it is labelled."""

        def find(recipe: Recipe, dataset: str) -> Source | Unavailable:
            if dataset != STANDS_IN.dataset:
                return Unavailable(
                    f"the row is of {dataset}, not of generated videos", f"python -m paper table {table.name}"
                )
            if table.names_encoder or recipe.encoder != STANDS_IN.encoder:
                return Unavailable(
                    f"the row is of tokens of {recipe.encoder}; generated videos have tokens of {self.encoder_name}",
                    f"python -m paper table {table.name} --tokens TOKENS",
                )
            if recipe.every not in self.stores:
                return Unavailable(f"no tokens at 1/{recipe.every // OWN_EVERY} of the rate were made")
            return Source(self.dataset, self.stores[recipe.every], "test")

        return find

    def plan(self, table: Table) -> Callable[[Recipe, TokenLayout, int], TokenRun]:
        """The run of a recipe. A table about the map keeps the head that its rows name, in every row."""

        def plan(recipe: Recipe, layout: TokenLayout, seed: int) -> TokenRun:
            if not table.about_map and self.experiment.head == "rate":
                recipe = replace(recipe, head="rate")
            return generated_run(recipe, layout, seed, scale=self.experiment.scale)

        return plan

    def find_model(self, name: NamedModel, spec: EvalSpec) -> tuple[EvaluatedModel, Dataset, str] | Unavailable:
        """The rows that train nothing."""
        if spec.dataset != STANDS_IN.dataset:
            return Unavailable(f"the row is of {spec.dataset}, not of generated videos")
        if name == "mean":
            return mean_count(self.dataset), self.dataset, "test"
        if name == "spectral":
            return thumbnail_spectral(self.dataset, next(iter(self.stores.values()))), self.dataset, "test"
        return Unavailable(
            f"{name} counts video files, and generated videos are drawn straight into tokens",
            f"escounts data make synthetic --root DIR; escounts evaluate {name} --data synthetic --root DIR",
        )

    def fill(self, table: Table, **options: Any) -> FilledTable:
        """Train what is missing and print the table."""
        what = self.experiment.what
        note = (
            f"ours: {what.train} generated videos to train on, {what.test} held out, tokens of {self.encoder_name}, "
            "a small decoder; the paper's numbers are of real data and not comparable"
        )
        filled = fill(table, self.runner(table, **options), ours=SOURCE, notes=(note,))
        return replace(filled, notes=(*filled.notes, *order_notes(table, filled)))


def order_notes(table: Table, filled: FilledTable) -> list[str]:
    """For every row against the reference: our difference in MAE, and whether the paper's order is confirmed."""
    measured = {row.labels: row.measured[0] for row in filled.rows if row.measured and row.measured[0] is not None}
    errors = {
        labels: dict(enumerate(relative_errors(mine.rows)))
        for labels, mine in measured.items()
        if table.published_mae(labels) is not None
    }
    runs = {row.labels: row.cells[0].recipe for row in table.rows}
    once = {runs[labels]: np.stack(list(of.values())) for labels, of in errors.items()}
    found = differences(table, errors, spread=SeedSpread.over(once.values()))
    return [
        f"{' '.join(labels)} against {' '.join(table.reference or ())}: MAE {difference} "
        f"(paper {table.published_difference(labels):+.3f})"
        for labels, difference in found.items()
    ]


def thumbnail_spectral(dataset: Dataset, store: TokenStore) -> MapFunction:
    """`spectral` on the thumbnails of generated videos, which were never a file."""
    thumbnails = thumbnails_of(store.path)

    def density_map(video: VideoAnnotation) -> DensityMap:
        assert video.fps is not None
        return SpectralEncoding(thumbnails[video.name].numpy(), 0.0, video.fps).estimate().density

    identity = {"name": "spectral", "layout": asdict(store.layout)}
    return MapFunction("spectral", dataset, density_map, identity=identity, here=thumbnails)


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Quick runs are of small arrays: a second thread costs more than it brings, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
