"""Tables: every entry is whole, ours is only what was measured, and the quick table learns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from release_figures import SHARE, share_of
from stores import LAYOUT, store, video

from escounts.errors import DataError
from escounts.nn.decoder import PAPER, RELEASED, Decoder, DecoderConfig
from escounts.nn.encoders.registry import build_encoder
from escounts.research.datasets.encoding import layout_for
from escounts.research.datasets.generated import SyntheticSet
from escounts.research.datasets.stores import find_store, store_path
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.research.evaluation.models import EvalSpec
from escounts.research.training.objective import DensityObjectiveConfig
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.recipes import Recipe
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun, train_on_tokens
from escounts.system.config_codec import to_plain
from paper import making
from paper.entries import METRICS, Cells, Group, Table, TableRow
from paper.generated import (
    FULL_EXPERIMENT,
    QUICK_EXPERIMENT,
    QUICK_SCALE,
    RATES,
    GeneratedBench,
    GeneratedExperiment,
    generated_run,
    one_thread,
)
from paper.making import TableMaker
from paper.rendering import fill
from paper.rivals import RivalRecipe
from paper.runs import Source, TableRunner, Unavailable, stored_model, stored_source
from paper.tables import TABLES

NAMES = [
    *("1a", "1b", "1c", "2", "3a", "3b", "3c", "3d", "3e", "3f", "3g", "4"),
    *("L", "Lprime", "windows", "sampling", "speed", "localisation", "11", "ovr", "text", "rivals"),
]


def test_every_table_of_the_paper_is_there_and_whole() -> None:
    assert list(TABLES) == NAMES
    for table in TABLES.values():
        for row in table.rows:
            assert len(row.labels) == len(table.labels), table.name
            for cells, group in zip(row.cells, table.groups, strict=True):
                assert len(cells.published) == len(group.columns), f"{table.name} {row.labels}"
        assert any(cells.recipe for row in table.rows for cells in row.cells), table.name


def test_published_numbers_agree_across_tables() -> None:
    """One setting has one number: RepCount, ViT-B, zero-shot. Known contradictions of the paper are noted."""
    full = {
        table.name: cells.published
        for table in TABLES.values()
        for row in table.rows
        for cells, group in zip(row.cells, table.groups, strict=True)
        if cells.recipe == Recipe() and cells.spec == EvalSpec() and group.columns == METRICS
    }
    assert set(full.values()) == {(4.455, 0.213, 0.245, 0.563)}
    assert len(full) == 13
    twice = Recipe(other_video=0.0)
    numbers = {
        cells.published for name in ("3c", "3d") for row in TABLES[name].rows for cells in row.cells
        if cells.recipe == twice
    }  # fmt: skip
    assert len(numbers) == 2
    assert "other numbers there" in TABLES["3c"].note


def _decoder(run: TokenRun) -> DecoderConfig:
    assert isinstance(run.decoder, DecoderConfig)
    return run.decoder


def _objective(run: TokenRun) -> DensityObjectiveConfig:
    assert isinstance(run.objective, DensityObjectiveConfig)
    return run.objective


def test_disputed_and_foreign_numbers_say_so() -> None:
    """RepNet's 0.995 and 0.998 stood without the dispute about them, and 3f as if its rows were four runs."""
    for name in ("1a", "1c"):
        assert "arXiv 2411.08878" in TABLES[name].note
    rerun = {row.labels[0]: row.cells[0] for row in TABLES["1c"].rows if "official checkpoint" in row.labels[0]}
    found = {label.split(",")[0]: (cells.published[1], cells.published[3]) for label, cells in rerun.items()}
    assert found["ESCounts"] == (0.352, 0.595) and found["RepNet"] == (0.435, 0.583) and len(found) == 4
    assert all(cells.source == "published, not re-run" and not cells.ours for cells in rerun.values())
    assert "MultiCounter+" in TABLES["1a"].note and "42.1 %" in TABLES["1a"].note
    shifts = TABLES["3f"]
    assert len({row.cells[0].recipe for row in shifts.rows}) == 1 and "one run per seed" in shifts.note


def test_recipes_become_the_decoder_they_name() -> None:
    layout = replace(LAYOUT, channels=768, grid=(14, 14))
    default = Recipe().paper_run(layout)
    assert default.decoder == PAPER
    assert (default.train.lr, default.train.epochs, default.train.batch_size) == (5e-5, 300, 8)
    assert default.tokens.exemplars.other_video == 0.4
    assert _decoder(Recipe(window="full", cross_blocks=4).paper_run(layout)).window == "full"
    assert _objective(Recipe(count_weight=0.0).paper_run(layout)).count_weight == 0.0
    assert Recipe(sigma="variable").paper_run(layout).tokens.sigma == "variable"
    assert TokenRun.from_plain(to_plain(default)) == default
    released = Recipe(released_decoder=True, released_objective=True).paper_run(layout)
    assert replace(_decoder(released), in_channels=768) == RELEASED
    assert _objective(released).map_scale == 100.0
    shallow = Recipe(self_attention_only=True, cross_blocks=4, window_blocks=1)
    quick = generated_run(shallow, layout, 3, scale=QUICK_SCALE)
    decoder = _decoder(quick)
    assert decoder.self_attention_only
    assert (decoder.cross_blocks, decoder.window_blocks) == (4, 1), "as many blocks as the row says"
    assert quick.train.seed == quick.tokens.seed == 3
    for recipe in (Recipe(), Recipe(head="rate"), RivalRecipe(method="repnet"), RivalRecipe(method="transrac")):
        run = generated_run(recipe, layout, 3, scale=QUICK_SCALE)
        assert TokenRun.from_plain(to_plain(run)) == run


def test_parameters_that_the_speed_table_names_are_those_of_the_decoders_it_trains() -> None:
    for encoder in ("resnext3d-101", "mae-vit-b"):
        with torch.device("meta"):
            layout = layout_for(build_encoder(encoder).spec, "")
            decoder = Decoder(_decoder(Recipe(encoder=encoder).paper_run(layout)))
        million = sum(weight.numel() for weight in decoder.parameters() if weight.requires_grad) / 1e6
        assert f" {million:.2f} M" in TABLES["speed"].note, encoder
    (ours,) = [row for row in TABLES["speed"].rows if row.labels == ("ESCounts",)]
    assert ours.cells[0].published[1:] == (21.1, 0.138, 0.141, 8.0, 12.0)


def no_model(name: str, spec: EvalSpec) -> Unavailable:
    return Unavailable(f"{name} is not asked")


def test_rows_without_data_are_printed_as_not_run(tmp_path: Path) -> None:
    """And say which command would make them, with the encoder that is missing."""
    nowhere = tmp_path / "nowhere"
    runner = TableRunner(
        tmp_path,
        stored_source(nowhere),
        lambda *_: pytest.fail("nothing to train on"),
        find_model=stored_model(nowhere, {}, table="1c"),
    )
    for name in NAMES:
        filled = fill(TABLES[name], runner)
        ours = [row for row in filled.rows if row.source.startswith("ours")]
        assert ours and all(row.source == "ours, not run" and not any(row.values) for row in ours), name
        assert all(row.videos.startswith(("not run", "–")) for row in ours)
    notes = "\n".join(fill(TABLES["1a"], runner).notes)
    assert "escounts encode repcount --root FOLDER --encoder swin3d-t" in notes
    assert "python -m paper table 1c --root repcount=FOLDER" in notes, "it is told which table it fills"
    sampling = "\n".join(fill(TABLES["sampling"], runner).notes)
    assert "--encoder mae-vit-b --every 32" in sampling


TINY = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=1, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip


def test_a_table_trains_what_is_missing_once_and_shows_the_spread(tmp_path: Path) -> None:
    videos = [video(f"t{k}", count=2 + k % 3) for k in range(4)] + [video("e", split="test", count=4)]
    made, dataset = store(tmp_path / "tokens", videos)

    def plan(recipe: Recipe, layout: object, seed: int) -> TokenRun:
        return TokenRun(TINY, TrainConfig(steps=2, batch_size=2, seed=seed))

    ours = TableRow(("ours",), (Cells((1.0, None, 0.5, 0.5), Recipe()), Cells((None,), Recipe(), EvalSpec("gone"))))
    table = Table("t", "Title", ("Method",), (Group("here"), Group("there", ("MAE",))), (ours,))

    def source(recipe: Recipe, name: str) -> Source | Unavailable:
        return Unavailable("gone is not here") if name == "gone" else Source(dataset, made, "test")

    bench = TableRunner(tmp_path / "out", source, plan, find_model=no_model, seeds=(0, 1))
    filled = fill(table, bench)
    headers = ("Method", "source", "here RMSE", "here MAE", "here OBZ", "here OBO", "there MAE", "videos")
    assert filled.headers == headers
    paper, mine = filled.texts()
    assert paper == ["ours", "paper", "1.000", "", "0.500", "0.500", "", ""]
    assert "±" in mine[2]
    grid = "×".join(map(str, made.layout.grid))
    assert mine[1] == f"ours; 2 steps, {grid} tokens, 2 seeds", "a short run says that it is short"
    assert mine[-2:] == ["", "1/1 · not run"], "a cell that was not measured stays empty"
    assert any("toy test: 1 of 1 videos scored" in note for note in filled.notes)
    assert any("gone is not here" in note for note in filled.notes)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("last.safetensors")}
    assert len(stamps) == 2
    again = fill(table, bench)
    assert again.texts() == filled.texts()
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps, "a finished run is not trained again"
    rows = list(csv.DictReader(io.StringIO(filled.csv())))
    assert [row["seed"] for row in rows] == ["", "0", "1"]


def test_more_shifts_than_tokens_were_stored_at_are_not_run(tmp_path: Path) -> None:
    """Of two stored offsets K = 3 and K = 4 would be the row of K = 2 under other names."""
    made, dataset = store(tmp_path / "repcount-mae-vit-b", [video("t"), video("e", split="test")], name="repcount")
    made.layout = replace(made.layout, offsets=made.layout.offsets[:2])
    source = Source(dataset, made, "test")
    runner = TableRunner(
        tmp_path / "out", lambda *_: source, lambda *_: pytest.fail("nothing is trained"), find_model=no_model
    )
    cells = {row.labels[0]: row.cells[0] for row in TABLES["3f"].rows}
    for shifts in ("3", "4"):
        found = runner.measure(cells[shifts], METRICS)
        assert isinstance(found, Unavailable), shifts
        assert found.reason == f"K = {shifts} needs tokens at as many offsets, and repcount-mae-vit-b has 2"
        assert found.command == "escounts encode repcount --root FOLDER --encoder mae-vit-b --tokens NEW"


def test_stores_are_found_by_dataset_and_encoder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="escounts encode repcount"):
        find_store(tmp_path, "repcount")
    for encoder in ("patches", "lite"):
        store(store_path(tmp_path, "repcount", encoder), [video("v")])
    with pytest.raises(DataError, match="several encoders"):
        find_store(tmp_path, "repcount")
    assert find_store(tmp_path, "repcount", "lite").name == "repcount-lite"
    assert find_store(tmp_path / "repcount-lite", "repcount").name == "repcount-lite"


def test_speed_is_that_of_the_samples_that_were_trained(tmp_path: Path) -> None:
    """An epoch is as many steps as the videos need, not one."""
    videos = [video(f"t{k}", cells=20 + k) for k in range(6)] + [video("e", split="test")]
    made, dataset = store(tmp_path / "tokens", videos)
    source = Source(dataset, made, "test")

    def plan(recipe: Recipe, layout: object, seed: int) -> TokenRun:
        return TokenRun(TINY, TrainConfig(epochs=2, batch_size=2, seed=seed), StoredTokensConfig(batch_size=2))

    runner = TableRunner(tmp_path / "out", lambda *_: source, plan, find_model=no_model)
    done = json.loads((runner.trained(Recipe(), source, 0) / "done.json").read_text())
    log = (tmp_path / "out").rglob("log.jsonl")
    steps = json.loads(next(log).read_text().splitlines()[-1])["step"]
    assert steps == 6
    assert done["train_samples"] == 12
    assert done["train_seconds_per_sample"] == pytest.approx(done["train_seconds"] / 12)


def identities(table: Table, runner: TableRunner) -> dict[tuple[object, ...], list[tuple[str, ...]]]:
    """Identity → labels of the rows that have it, group by group."""
    found: dict[tuple[object, ...], list[tuple[str, ...]]] = {}
    for row in table.rows:
        for group, cells in enumerate(row.cells):
            if cells.recipe is not None:
                source = runner.find_source(cells.recipe, cells.recipe.dataset)
                if not isinstance(source, Unavailable):
                    run = runner.folder(cells.recipe, source, 0).name
                    found.setdefault((group, run, cells.spec), []).append(row.labels)
            elif cells.model is not None:
                found.setdefault((group, cells.model, cells.spec), []).append(row.labels)
    return found


def layout_of(encoder: str, every: int) -> TokenLayout:
    return replace(LAYOUT, encoder=encoder, identity=f"weights of {encoder}", channels=768, grid=(6, 6), every=every)


@pytest.mark.parametrize("name", ["1a", "1b", "1c", "2", "4", "11", "text", "localisation", "ovr"])
def test_lite_has_its_row_beside_every_published_number_it_can_be_asked_for(name: str) -> None:
    groups = {
        (place, cells.spec.dataset)
        for row in TABLES[name].rows
        for place, cells in enumerate(row.cells)
        if cells.model == "lite"
    }
    assert len(groups) == len(TABLES[name].groups), "one dataset for each group of columns"


@pytest.mark.parametrize("name", NAMES)
def test_rows_with_different_labels_are_different_runs(name: str, tmp_path: Path) -> None:
    """Two rows of one table never share a run and its evaluation, on the paper's data and on generated videos."""
    _, dataset = store(tmp_path / "tokens", [video("t"), video("e", split="test")])
    made = TokenStore(tmp_path / "tokens")

    def find(recipe: Recipe, data: str) -> Source:
        stored = copy(made)
        stored.layout = layout_of(recipe.encoder, recipe.every)
        return Source(replace(dataset, name=data), stored, "test")

    runner = TableRunner(tmp_path, find, lambda r, layout, seed: r.paper_run(layout, seed), find_model=no_model)
    shared = [labels for labels in identities(TABLES[name], runner).values() if len(labels) > 1]
    assert not shared

    bench = GeneratedBench.__new__(GeneratedBench)
    bench.out, bench.device, bench.encoder_name, bench.dataset = tmp_path, "cpu", "patches", dataset
    bench.stores = {}
    for every in RATES:
        bench.stores[every] = copy(made)
        bench.stores[every].layout = replace(layout_of("patches", 4), fps=40.0 / every)
    for experiment in (QUICK_EXPERIMENT, FULL_EXPERIMENT):
        bench.experiment = experiment
        found = identities(TABLES[name], bench.runner(TABLES[name], seeds=(0,)))
        assert not [labels for labels in found.values() if len(labels) > 1], experiment
        heads = {
            _decoder(bench.plan(TABLES[name])(cells.recipe, layout_of("patches", 4), 0)).head.kind
            for row in TABLES[name].rows
            for cells in row.cells
            if cells.recipe and not isinstance(cells.recipe, RivalRecipe)
        }
        assert len(heads) == 1 or name == "rivals", "an ablation and its reference have one head"


TINY_SET = SyntheticSet(
    train=10, valid=2, test=3, fps=10.0, size=(32, 32), seconds=(6.4, 9.6), period=(4, 30), calm=True
)


@pytest.fixture(scope="module")
def tiny_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedBench]:
    """A few generated videos with tokens at every rate, and runs of a few steps."""
    scale = replace(QUICK_SCALE, channels=16, train=replace(QUICK_SCALE.train, steps=3, batch_size=4, warmup_steps=0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paper.generated.quick_encoder", lambda: "patches")
        bench = GeneratedBench(tmp_path_factory.mktemp("bench"), GeneratedExperiment(TINY_SET, scale))
    # So few videos would all be of different actions, and no exemplar could come from another one.
    named = tuple(replace(v, action="ab"[place % 2]) for place, v in enumerate(bench.dataset.videos))
    bench.dataset = replace(bench.dataset, videos=named)
    yield bench


DRAWN = ("3b", "3c", "3d")
"""Tables whose rows differ in how often something is drawn: alike until enough has been drawn."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("1a", "1b", "1c", "2", "speed", "ovr")])
def test_rows_with_different_labels_give_different_predictions(
    name: str, tiny_bench: GeneratedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in DRAWN:
        scale = tiny_bench.experiment.scale
        longer = replace(tiny_bench.experiment, scale=replace(scale, train=replace(scale.train, steps=8)))
        monkeypatch.setattr(tiny_bench, "experiment", longer)
    filled = tiny_bench.fill(TABLES[name], seeds=(0,))
    seen: dict[tuple[float, ...], tuple[str, ...]] = {}
    for row in filled.rows:
        for found in row.measured:
            if found is not None:
                counts = tuple(prediction.predicted for prediction in found.rows[0])
                assert len(counts) == 3
                assert counts not in seen, f"{row.labels} shows the counts of {seen[counts]}"
                seen[counts] = row.labels
    assert seen


def test_tables_that_name_encoders_are_not_run_on_generated_videos(tiny_bench: GeneratedBench) -> None:
    for name in ("1a", "1b", "1c", "speed", "ovr"):
        filled = tiny_bench.fill(TABLES[name], seeds=(0,))
        assert all(row.source.endswith("not run") or not row.source.startswith("ours") or (row.measured[0]
                   and row.labels[0] in ("mean count", "spectral")) for row in filled.rows), name  # fmt: skip


def test_a_table_is_estimated_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos = [video(f"t{k}", cells=20 + k) for k in range(4)] + [video("e", split="test"), video("w", split="valid")]
    folder = tmp_path / "tokens" / "repcount-mae-vit-b"
    store(folder, videos, name="repcount")
    maker = TableMaker(tmp_path / "out", tokens=tmp_path / "tokens", epochs=2)
    maker.runner = tiny_runner(maker.runner)  # type: ignore[method-assign, assignment]
    tried: list[TokenRun] = []

    def trying(run: TokenRun, *rest: Any, **options: Any) -> dict[str, float]:
        tried.append(run)
        return train_on_tokens(run, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(making, "train_on_tokens", trying)
        told = maker.estimate([TABLES["3a"], TABLES["3g"]])
    assert told is not None
    assert [run.train.steps for run in tried] == [2], "an estimate is no longer than one of the runs"
    runs, steps, text = told
    assert (runs, steps) == (3, 3 * 2), "the reference is shared; two epochs of one step"
    assert "3 runs to train" in text and "GB of disk" in text
    assert not (tmp_path / "out" / "runs").exists(), "nothing was trained"
    filled, path = maker.make(TABLES["3a"])
    assert path.exists() and all(row.videos == "1/1" for row in filled.rows if row.measured)
    left = maker.estimate([TABLES["3a"], TABLES["3g"]])
    assert left is not None and left[0] == 1
    maker.make(TABLES["3g"])
    assert maker.estimate([TABLES["3a"], TABLES["3g"]]) is None
    assert maker.nothing_to_train([TABLES["3a"], TABLES["3g"]]) == "nothing to train: every run is there"
    said = maker.nothing_to_train([TABLES["3a"], TABLES["sampling"]])
    assert "escounts encode repcount --root FOLDER --encoder mae-vit-b --every 8  (runs: 1)" in said


def tiny_runner(make: Callable[[Table], TableRunner]) -> Callable[[Table], TableRunner]:
    """The same runner with a small decoder."""

    def made(table: Table) -> TableRunner:
        runner = make(table)
        plan = runner.plan_run

        def small(recipe: Recipe, layout: TokenLayout, seed: int) -> TokenRun:
            run = plan(recipe, layout, seed)
            tiny = replace(TINY, self_attention_only=_decoder(run).self_attention_only)
            return replace(run, decoder=tiny)

        runner.plan_run = small
        return runner

    return made


@pytest.mark.release  # minutes of training
def test_quick_table_on_generated_videos(tmp_path: Path) -> None:
    """The whole chain: draw, encode, train both decoders, print; at least 30 % below the mean count.

    In small it has fewer videos and steps, and the chain alone is tried: what 30 steps learn says nothing.
    """
    what, scale = QUICK_EXPERIMENT.what, QUICK_EXPERIMENT.scale
    what = replace(what, train=max(16, share_of(what.train)), test=max(4, share_of(what.test)))
    assert scale.train.steps is not None
    scale = replace(scale, train=replace(scale.train, steps=max(30, share_of(scale.train.steps))))
    table = replace(TABLES["3a"], rows=(*TABLES["3a"].rows, *TABLES["rivals"].rows[-2:]))
    table = replace(table, rows=tuple(replace(row, cells=tuple(map(four_columns, row.cells))) for row in table.rows))
    with one_thread(True):
        filled = GeneratedBench(tmp_path, replace(QUICK_EXPERIMENT, what=what, scale=scale), rates=RATES[:1]).fill(
            table, seeds=(0,)
        )
    error = filled.headers.index("MAE") - len(table.labels) - 1
    values = {row.labels[0]: row.values[error] for row in filled.rows if row.measured}
    for decoder in ("SA-only", "ESCounts"):
        assert SHARE < 1 or values[decoder][0] <= 0.7 * values["mean count"][0], values
    assert len(values["spectral"]) == 1
    assert list((tmp_path / "runs").rglob("predictions/*.csv")), "every prediction is kept"


def four_columns(cells: Cells) -> Cells:
    return replace(cells, published=cells.published[:4])
