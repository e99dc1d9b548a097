"""Tables on real videos: labelled clips with the tokens of a public encoder, split by whole sources.

`valid` of the table of sets is what figures are of; of the training clips one source in eight is kept aside to choose
learning rates by. Generated clips, drawn into tokens of the same encoder, can be trained on beside them or alone.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from escounts.models.checkpoint import save_decoder
from escounts.nn.decoder import PAPER, Decoder, DecoderConfig
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import LITE_DECODER
from escounts.research.datasets.annotations import Dataset
from escounts.research.datasets.encoding_plan import plan_encoding
from escounts.research.datasets.generated import SyntheticSet
from escounts.research.datasets.stores import OWN_EVERY, load_labels, open_encoder, store_path
from escounts.research.datasets.tokens import INDEX, TokenLayout, TokenStore
from escounts.research.evaluation.models import EvalSpec, EvaluatedModel, mean_count
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.recipes import Recipe
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun, load_trained
from paper.entries import Group, NamedModel, Table, row
from paper.generated import QUICK_TRAIN, STANDS_IN, GeneratedBench, GeneratedExperiment, GeneratedScale
from paper.generated_tokens import generated_stores
from paper.runs import Source, Unavailable
from paper.tables import TABLES

HELD_ASIDE = 8
"""One source in this many is kept from training, to choose by."""
LATENT = 256
"""Rows of z_0: an exemplar has 16 cells of 3×3."""
LICENCE = "MIT; trained on clips of public repositories, most of them without a stated licence"
MIXED, GENERATED = "mixed", "generated"
"""What a recipe's dataset is called where it is not the real clips alone."""

REAL_TRAIN = replace(QUICK_TRAIN, steps=600, batch_size=32, lr=1e-3, warmup_steps=60, log_every=50)
BESIDE = SyntheticSet(train=800, valid=1, test=1, fps=15.0, size=(128, 128), seconds=(6.0, 14.0), period=(5.0, 90.0))
"""Generated clips of about the length of the real ones."""


@dataclass(frozen=True)
class RealExperiment(GeneratedExperiment):
    """clips: the table of sets, the clips beside it. encoder: whose tokens."""

    clips: Path = Path("../shared/clips/pool_labels.csv")
    encoder: str = "i3d"


@dataclass(frozen=True)
class SimilarRecipe(Recipe):
    """The decoder as the default model has it: it also sees how much each cell looks like the others."""

    similarity: bool = True

    def run_of(
        self, decoder: DecoderConfig, train: TrainConfig, tokens: StoredTokensConfig, layout: TokenLayout
    ) -> TokenRun:
        """The default model's decoder in the size of the given one."""
        names = ("in_channels", "channels", "heads", "grid", "head")
        size: dict[str, Any] = {name: getattr(decoder, name) for name in names}
        return super().run_of(replace(LITE_DECODER, **size, window=(16, *decoder.grid)), train, tokens, layout)


def real_experiment(clips: Path, encoder: str = "i3d") -> RealExperiment:
    """The experiment at the size of the tables in the docs."""
    base = replace(PAPER, latent_tokens=LATENT, input_norm=True, head=RateHeadConfig())
    scale = GeneratedScale(256, 4, 3, REAL_TRAIN, time_cells=2, base=base)  # a cell lasts 2/15 s
    return RealExperiment(BESIDE, scale, pool=3, head="density", clips=clips, encoder=encoder)


TABLE_CLIPS = Table(
    "clips",
    "What a decoder on a frozen Kinetics encoder learns from",
    ("Trained on",),
    (Group(),),
    (
        row("real clips", Recipe(head="rate")),
        row("real and generated clips", Recipe(head="rate", dataset=MIXED)),
        row("generated clips alone", Recipe(head="rate", dataset=GENERATED)),
        row("real clips, with self-similarity", SimilarRecipe(head="rate")),
        row("real and generated clips, with self-similarity", SimilarRecipe(head="rate", dataset=MIXED)),
    ),
)
TABLE_SHOTS = replace(
    TABLES["4"],
    groups=(Group(),),
    rows=tuple(replace(row, cells=row.cells[:1]) for row in TABLES["4"].rows if row.cells[0].recipe is not None),
    note="",
)
"""Table 4 of one dataset."""


class RealBench(GeneratedBench):
    """Labelled clips with their tokens at every rate, made if they are not there; see GeneratedBench."""

    def __init__(
        self,
        out: Path,
        experiment: RealExperiment,
        *,
        rates: Sequence[int],
        device: str = "cpu",
        workers: int = 0,
    ) -> None:
        self.out, self.experiment, self.device = out, experiment, device
        self.encoder_name = name = experiment.encoder
        tokens = out / "tokens"
        self.stores: dict[int, TokenStore] = {}
        for every in rates:
            path = store_path(tokens, "folder", name, every)
            if not (path / INDEX).exists():
                plan = plan_encoding(
                    "folder",
                    experiment.clips,
                    tokens,
                    encoder=name,
                    pool=experiment.pool,
                    exemplars=4,
                    every=every,
                    device=device,
                )
                plan.run(jobs=workers or 1, devices=(device,) if workers else ())
            self.stores[every] = TokenStore(path)
        own = self.stores[OWN_EVERY]
        if experiment.what.train and not (own.path / "made.json").exists():
            encoder, _ = open_encoder(name, device=device)
            layouts = {own.path: own.layout}
            generated_stores(experiment.what, encoder, layouts, device=device, workers=workers, batch=16)
            self.stores[OWN_EVERY] = own = TokenStore(own.path)
        labelled = load_labels(own.path, "folder")
        self.sources = sources_of(experiment.clips, labelled)
        self.dataset = split_by_source(labelled, self.sources)
        drawn = load_labels(own.path, "synthetic").split("train") if experiment.what.train else ()
        held = tuple(video for video in self.dataset.videos if video.split != "train")
        self.datasets = {
            STANDS_IN.dataset: self.dataset,
            MIXED: replace(self.dataset, videos=(*self.dataset.videos, *drawn)),
            GENERATED: replace(self.dataset, videos=(*drawn, *held)),
        }

    def find_source(self, table: Table) -> Callable[[Recipe, str], Source | Unavailable]:
        """Tokens for a recipe, from the real clips in the place of the paper's dataset."""

        def find(recipe: Recipe, dataset: str) -> Source | Unavailable:
            if dataset not in self.datasets or recipe.every not in self.stores:
                return Unavailable(f"the row is of {dataset} at 1/{recipe.every // OWN_EVERY} of the rate")
            return Source(self.datasets[dataset], self.stores[recipe.every], "test")

        return find

    def find_model(self, name: NamedModel, spec: EvalSpec) -> tuple[EvaluatedModel, Dataset, str] | Unavailable:
        """The mean count; what counts files is evaluated by name."""
        if name == "mean":
            return mean_count(self.dataset), self.dataset, "test"
        clips = getattr(self.experiment, "clips", "")
        command = f"escounts evaluate {name} --data folder --root {clips} --split valid"
        return Unavailable(f"{name} counts files", command)


def sources_of(clips: Path, dataset: Dataset) -> Mapping[str, str]:
    """Name of a video → where its footage is from, by the list of the clips beside the table of sets (pool.csv beside
    pool_labels.csv); its file where nothing says it."""
    listed = clips.with_name(clips.name.replace("_labels", ""))
    with listed.open(newline="", encoding="utf-8") as file:
        known = {row["file"]: row.get("source", "") for row in csv.DictReader(file)}
    return {video.name: known.get(video.file) or video.file for video in dataset.videos}


def split_by_source(dataset: Dataset, sources: Mapping[str, str]) -> Dataset:
    """`valid` becomes `test`; of the other sources one in HELD_ASIDE becomes `valid`."""

    def split(name: str, split: str) -> str:
        if split == "valid":
            return "test"
        return "valid" if crc32(sources[name].encode()) % HELD_ASIDE == 0 else "train"

    videos = tuple(replace(video, split=split(video.name, video.split)) for video in dataset.videos)
    rows = {part: sum(video.split == part for video in videos) for part in ("train", "valid", "test")}
    return replace(dataset, videos=videos, rows=rows)


def keep_decoders(bench: GeneratedBench, table: Table, errors: Mapping[tuple[Recipe, int], float], out: Path) -> None:
    """Of every row of TABLE_CLIPS the decoder of the seed that is best on the clips kept aside, in half precision.

    table: with learning rates. errors: of every run, by recipe and seed, on those clips.
    """
    runner = bench.runner(table, seeds=(0,))
    for entry in table.rows:
        recipe = entry.cells[0].recipe
        assert recipe is not None
        mine = {seed: error for (other, seed), error in errors.items() if other == recipe}
        source = runner.find_source(recipe, recipe.dataset)
        if not mine or isinstance(source, Unavailable):
            continue
        folder = runner.folder(recipe, source, min(mine, key=mine.__getitem__))
        network = load_trained(folder)
        assert isinstance(network, Decoder)
        path = out / f"{entry.labels[0].replace(', ', '-').replace(' ', '-')}.safetensors"
        out.mkdir(parents=True, exist_ok=True)
        metadata = {"source": f"python -m paper.sweep --clips: {entry.labels[0]}", "licence": LICENCE}
        save_decoder(path, network, encoder=bench.encoder_name, metadata=metadata, dtype=torch.float16)
