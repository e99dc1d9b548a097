"""Tables: every entry is whole, ours is only what was measured, and the quick table learns."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from stores import LAYOUT, store, video

from escounts.config_codec import from_plain, to_plain
from escounts.datasets.encoders import find_store, store_path
from escounts.errors import DataError
from escounts.evaluation.rendering import fill
from escounts.evaluation.tables import TABLES
from escounts.evaluation.workbench import Source, TableRunner, Unavailable, stored_source
from escounts.nn.decoder import PAPER
from escounts.training.config import TrainConfig
from escounts.training.recipes import METRICS, Cells, Group, Recipe, Row, Table, Test
from escounts.training.token_run import TokenRun

NAMES = [
    *("1a", "1b", "1c", "2", "3a", "3b", "3c", "3d", "3e", "3f", "3g", "4"),
    *("L", "Lprime", "windows", "sampling", "speed", "localisation", "11", "ovr"),
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
        if cells.recipe == Recipe() and cells.test == Test() and group.columns == METRICS
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


def test_recipes_become_the_decoder_they_name() -> None:
    layout = replace(LAYOUT, channels=768, grid=(14, 14))
    default = Recipe().paper_run(layout)
    assert default.decoder == PAPER
    assert (default.train.lr, default.train.epochs, default.train.batch_size) == (5e-5, 300, 8)
    assert default.tokens.exemplars.other_video == 0.4
    assert Recipe(window="full", cross_blocks=4).paper_run(layout).decoder.window == "full"
    assert Recipe(count_weight=0.0).paper_run(layout).objective.count_weight == 0.0
    assert Recipe(sigma="variable").paper_run(layout).tokens.sigma == "variable"
    assert from_plain(TokenRun, to_plain(default)) == default
    quick = Recipe(self_attention_only=True).quick_run(layout, 3)
    assert quick.decoder.self_attention_only
    assert quick.train.seed == quick.tokens.seed == 3
    assert from_plain(TokenRun, to_plain(quick)) == quick
    assert quick.digest != Recipe().quick_run(layout, 3).digest


def test_absent_data_shows_the_papers_row_only(tmp_path: Path) -> None:
    bench = TableRunner(tmp_path, stored_source(tmp_path / "nowhere"), lambda *_: pytest.fail("nothing to train on"))
    for name in NAMES:
        filled = fill(TABLES[name], bench)
        assert all(line.source == "paper" for line in filled.lines), name
        assert any("holds no tokens of" in note for note in filled.notes), name
        assert "| ours |" not in filled.markdown()


TINY = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=1, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip


def test_a_table_trains_what_is_missing_once_and_shows_the_spread(tmp_path: Path) -> None:
    videos = [video(f"t{k}", count=2 + k % 3) for k in range(4)] + [video("e", split="test", count=4)]
    made, dataset = store(tmp_path / "tokens", videos)
    trained = []

    def plan(recipe: Recipe, layout: object, seed: int) -> TokenRun:
        trained.append(seed)
        return TokenRun(TINY, TrainConfig(steps=2, batch_size=2, seed=seed))

    ours = Row(("ours",), (Cells((1.0, None, 0.5, 0.5), Recipe()), Cells((None,), Recipe(), Test("gone"))))
    table = Table("t", "Title", ("Method",), (Group("here"), Group("there", ("MAE",))), (ours,))

    def source(name: str, encoder: str, every: int) -> Source | Unavailable:
        return Unavailable("gone is not here") if name == "gone" else Source(dataset, made, "test")

    bench = TableRunner(tmp_path / "out", source, plan, seeds=(0, 1))
    filled = fill(table, bench)
    assert filled.headers == ("Method", "source", "here RMSE", "here MAE", "here OBZ", "here OBO", "there MAE")
    paper, mine = filled.texts()
    assert paper == ["ours", "paper", "1.000", "", "0.500", "0.500", ""]
    assert "±" in mine[2]
    assert mine[-1] == "", "a cell that was not measured stays empty"
    assert any("gone is not here" in note for note in filled.notes)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("last.safetensors")}
    assert len(stamps) == 2
    again = fill(table, bench)
    assert again.texts() == filled.texts()
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps, "a finished run is not trained again"
    rows = list(csv.DictReader(io.StringIO(filled.csv())))
    assert [row["seed"] for row in rows] == ["", "0", "1"]


def test_stores_are_found_by_dataset_and_encoder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="escounts encode repcount"):
        find_store(tmp_path, "repcount")
    for encoder in ("patches", "lite"):
        store(store_path(tmp_path, "repcount", encoder), [video("v")])
    with pytest.raises(DataError, match="several encoders"):
        find_store(tmp_path, "repcount")
    assert find_store(tmp_path, "repcount", "lite").name == "repcount-lite"
    assert find_store(tmp_path / "repcount-lite", "repcount").name == "repcount-lite"


def test_quick_table_on_generated_videos(tmp_path: Path) -> None:
    """The whole chain: draw, encode, train both decoders twice, print; at least 30 % below the mean count."""
    from escounts.evaluation.synthetic_bench import synthetic_table

    filled = synthetic_table(TABLES["3a"], tmp_path, quick=True, seeds=(0, 1))
    error = filled.headers.index("MAE") - len(TABLES["3a"].labels) - 1
    values = {(line.labels[0], line.source): line.values[error] for line in filled.lines}
    mean = values["always the mean count", "baseline, synthetic"][0]
    for decoder in ("SA-only", "ESCounts"):
        ours = values[decoder, "ours, synthetic"]
        assert len(ours) == 2, "two seeds"
        assert sum(ours) / 2 <= 0.7 * mean, f"{decoder}: {ours}, always the mean: {mean}"
    assert len(values["spectral", "baseline, synthetic"]) == 1
    assert list((tmp_path / "runs").rglob("predictions/*.csv")), "every prediction is kept"
