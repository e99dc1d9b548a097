"""Tables on generated videos: the whole chain, from drawing to the printed table, on any machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from escounts.datasets import generated as synthetic_set
from escounts.datasets.annotations import Dataset, VideoAnnotation
from escounts.datasets.encoders import open_encoder, quick_encoder, store_path
from escounts.datasets.encoding import encode_dataset, layout_for
from escounts.datasets.labels import save_labels
from escounts.datasets.tokens import TokenLayout
from escounts.errors import DataError
from escounts.evaluation.rendering import FilledTable, Line, fill
from escounts.evaluation.workbench import Source, TableRunner
from escounts.metrics import mae, obo, obz, rmse
from escounts.training.predictions import Prediction, load_predictions, save_predictions
from escounts.training.recipes import METRICS, Recipe, Table
from escounts.training.token_run import TokenRun
from escounts.training.trainer import Report

SOURCE = "ours, synthetic"


def synthetic_source(
    folder: Path, what: synthetic_set.SyntheticSet, encoder_name: str, *, shifts: int = 1, device: str = "cpu"
) -> Source:
    """Generated videos with their tokens, made if they are not there."""
    root = folder / "synthetic"
    dataset = synthetic_set.create(root, what)
    encoder, identity = open_encoder(encoder_name, device=device)
    layout = layout_for(encoder.spec, identity, shifts=shifts, exemplars=4)
    path = store_path(folder / "tokens", f"synthetic-K{shifts}-{identity}", encoder_name)
    store, problems = encode_dataset(dataset, root, path, encoder, layout)
    if problems:
        raise DataError(f"a generated video cannot be encoded: {problems[0]}")
    save_labels(path, dataset)
    return Source(dataset, store, "test")


def synthetic_table(
    table: Table,
    out: Path,
    *,
    quick: bool = True,
    seeds: Sequence[int] = (0, 1),
    device: str = "cpu",
    report: Report | None = None,
) -> FilledTable:
    """A table's runs on generated videos, with "always the mean count" and `spectral` beside them."""
    with one_thread(quick and device == "cpu"):
        return _synthetic_table(table, out, quick=quick, seeds=seeds, device=device, report=report)


def _synthetic_table(
    table: Table, out: Path, *, quick: bool, seeds: Sequence[int], device: str, report: Report | None
) -> FilledTable:
    what = synthetic_set.QUICK if quick else synthetic_set.SyntheticSet(train=600, valid=60, test=150)
    shifts = max(cells.test.shifts for row in table.rows for cells in row.cells) if table.name == "3f" else 1
    encoder = quick_encoder()
    source = synthetic_source(out, what, encoder, shifts=shifts, device=device)

    def plan(recipe: Recipe, layout: TokenLayout, seed: int) -> TokenRun:
        return recipe.quick_run(layout, seed, steps=None if quick else 4000)

    bench = TableRunner(out, lambda *_: source, plan, seeds=seeds, device=device, report=report)
    columns = table.groups[0].columns
    extra = []
    if set(columns) <= set(METRICS):
        extra = baselines(source, out, table)
    notes = (
        f"ours: {len(source.dataset.split('train'))} generated videos to train on, "
        f"{len(source.dataset.split('test'))} held out, tokens of {encoder}, a small decoder; "
        "the paper's numbers are of real data and not comparable",
    )
    return fill(table, bench, ours=SOURCE, extra=extra, notes=notes)


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Quick runs are of small arrays: a second thread costs more than it brings, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def baselines(source: Source, out: Path, table: Table) -> list[Line]:
    """What the trained runs must beat: the mean count of the training videos, and the classical method."""
    train, test = source.dataset.split("train"), source.dataset.split(source.test)
    constant = float(np.mean([video.count for video in train]))
    lines = [_line("always the mean count", [constant] * len(test), test, table)]
    rows = spectral_predictions(source.dataset, out / "synthetic", test, out / "spectral-synthetic.csv")
    lines.append(_line("spectral", [row.predicted for row in rows], test, table))
    return lines


def spectral_predictions(
    dataset: Dataset, root: Path, videos: Sequence[VideoAnnotation], path: Path
) -> list[Prediction]:
    """`spectral` on the same videos, kept on disk like every other prediction."""
    if path.exists():
        rows = load_predictions(path)
        if [row.name for row in rows] == [video.name for video in videos]:
            return rows
    from escounts.counter import load

    counter = load("spectral")
    rows = []
    for video in videos:
        file = dataset.locate(root, video)
        assert file is not None
        result = counter.count(file)
        rows.append(
            Prediction(
                dataset=dataset.name,
                split=video.split,
                name=video.name,
                action=video.action or "",
                count=video.count,
                predicted=result.raw_count,
                duration=result.duration,
                repetition_length=video.repetition_length or 0.0,
                start=result.density.start,
                step=result.density.step,
                density=tuple(result.density.values.tolist()),
                spans=video.spans,
                model="spectral",
                kind=result.density.kind,
            )
        )
    save_predictions(path, rows)
    return rows


def _line(label: str, predicted: Sequence[float], videos: Sequence[VideoAnnotation], table: Table) -> Line:
    truth = np.array([video.count for video in videos])
    counted = np.array(predicted)
    values = {"RMSE": rmse, "MAE": mae, "OBZ": obz, "OBO": obo}
    cells = [(values[column](truth, counted),) for column in table.groups[0].columns]
    empty = [()] * sum(len(group.columns) for group in table.groups[1:])
    labels = (label, *[""] * (len(table.labels) - 1))
    return Line(labels, "baseline, synthetic", (*cells, *empty))
