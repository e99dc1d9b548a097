"""What a decoder says of every video of a dataset: one row per video, kept on disk, so that any number can be
recomputed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from escounts.counting.maps import Stitcher, density_map
from escounts.errors import DataError
from escounts.nn.decoder import Decoder
from escounts.nn.network import Network
from escounts.output.text import cells_of_any_length, csv_text, unguarded
from escounts.research.datasets.annotations import VideoAnnotation
from escounts.research.datasets.tokens import TokenLayout, TokenStore, VideoTokens
from escounts.results import DensityKind, DensityMap
from escounts.system.arrays import Array, Array32
from escounts.system.atomic_files import write_bytes, write_text
from escounts.system.extras import install_command

ExemplarTokens = tuple[Tensor, float]
"""An exemplar: tokens (T, H, W, C) and its length in cells, 0 when it is of another video."""
VIDEOS_AT_ONCE, BYTES_AT_ONCE = 64, 64 << 20
"""Of stored videos that are decoded together: on a GPU a small head takes as long over one as over many."""


@dataclass(frozen=True)
class Prediction:
    """One counted video. count: the truth; predicted: the sum of the map. times in seconds; density: the map
    from `start`, cells of `step` seconds, of a kind. spans: annotated repetitions. shots, exemplars: what it was
    given. released_truth: the count that the released loader takes as the truth, where it was asked for."""

    dataset: str
    split: str
    name: str
    action: str
    count: int
    predicted: float
    duration: float
    repetition_length: float
    start: float
    step: float
    density: tuple[float, ...]
    spans: tuple[tuple[float, float], ...]
    pseudo: bool = False
    shots: int = 0
    exemplars: str = "none"
    model: str = ""
    kind: DensityKind = "peaks"
    released_truth: float | None = None

    def density_map(self) -> DensityMap:
        """The map as counting returns it."""
        return DensityMap(np.asarray(self.density, np.float32), self.start, self.step, self.kind)

    def peak_map(self) -> DensityMap:
        """The map with one peak per repetition; a rate map's repetitions get a peak at their middle."""
        if self.kind == "peaks":
            return self.density_map()
        spans = [(max(found.start, 0.0), found.end) for found in self.density_map().repetitions()]
        values = density_map(spans, cells=len(self.density), step=self.step, start=self.start)
        return DensityMap(values.astype(np.float32), self.start, self.step)


def true_counts(rows: Sequence[Prediction]) -> Array:
    """The annotated counts, or the released loader's where the released arithmetic was asked for."""
    return np.array([row.count if row.released_truth is None else row.released_truth for row in rows], np.float64)


def predict(
    network: nn.Module,
    store: TokenStore,
    videos: Sequence[VideoAnnotation],
    *,
    shifts: int = 4,
    by_window: bool = False,
    device: torch.device | str = "cpu",
) -> list[Prediction]:
    """Count every stored video zero-shot; those without tokens are left out."""
    head = head_of(network).eval()
    rows = []
    for group in decoded_together(videos, store):
        tokens = [store.load(video.name) for video in group]
        maps = decode_videos(head, tokens, store.layout, shifts=shifts, by_window=by_window, device=device)
        for video, one, values in zip(group, tokens, maps, strict=True):
            density = DensityMap(values, 0.0, one.step, map_kind(head))
            rows.append(prediction_of(video, density, duration=one.duration))
    return rows


def decoded_together(videos: Sequence[VideoAnnotation], store: TokenStore) -> Iterator[list[VideoAnnotation]]:
    """The stored videos of some, in their order, as many at once as are decoded together."""
    group: list[VideoAnnotation] = []
    size = 0
    for video in videos:
        entry = store.entries.get(video.name)
        if entry is None or entry.cells == 0:
            continue
        if group and (len(group) == VIDEOS_AT_ONCE or size + entry.bytes > BYTES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(video)
        size += entry.bytes
    if group:
        yield group


def prediction_of(video: VideoAnnotation, density: DensityMap, *, duration: float, **about: Any) -> Prediction:
    """The row of an annotated video with the map that a model made of it. duration: seconds that were counted.

    about: further fields of Prediction.
    """
    return Prediction(
        split=video.split,
        name=video.name,
        action=video.action or "",
        count=video.count,
        predicted=density.count,
        duration=duration,
        repetition_length=video.repetition_length or 0.0,
        start=density.start,
        step=density.step,
        density=tuple(float(value) for value in density.values),
        spans=video.spans,
        pseudo=video.pseudo,
        kind=density.kind,
        **({"dataset": ""} | about),
    )


def decode_tokens(
    head: nn.Module,
    tokens: VideoTokens,
    layout: TokenLayout,
    exemplars: Sequence[ExemplarTokens] = (),
    *,
    shifts: int = 4,
    by_window: bool = False,
    device: torch.device | str = "cpu",
) -> Array32:
    """The density map of a video, averaged over K shifted starts by how many maps cover a cell (section 3.3).

    by_window: every encoder window is decoded on its own.
    """
    given = exemplar_arguments(head, exemplars, device)
    mean = Stitcher(len(tokens.sequences[0]))
    for first, piece_THWC in _pieces(tokens, layout, shifts, by_window):
        mean.add(decode(head, piece_THWC, given, device), first)
    averaged: Array32 = mean.result().astype(np.float32)
    return averaged


def decode_videos(
    head: nn.Module,
    videos: Sequence[VideoTokens],
    layout: TokenLayout,
    *,
    shifts: int = 4,
    by_window: bool = False,
    device: torch.device | str = "cpu",
) -> list[Array32]:
    """The maps that decode_tokens makes of some videos one by one, zero-shot; pieces of one length in one call."""
    dtype = next(head.parameters()).dtype
    means = [Stitcher(len(video.sequences[0])) for video in videos]
    alike: dict[int, list[tuple[Stitcher, int, Tensor]]] = {}
    for mean, video in zip(means, videos, strict=True):
        for first, piece_THWC in _pieces(video, layout, shifts, by_window):
            alike.setdefault(len(piece_THWC), []).append((mean, first, piece_THWC))
    for pieces in alike.values():
        for begin in range(0, len(pieces), VIDEOS_AT_ONCE):
            some = pieces[begin : begin + VIDEOS_AT_ONCE]
            # Each on its own first: under autocast a CPU stacks no float16.
            tokens_BTHWC = torch.stack([piece_THWC.to(dtype) for *_, piece_THWC in some]).to(device)
            with torch.no_grad():
                density_BT = head(tokens_BTHWC).density_BT.float().cpu().numpy()
            for (mean, first, _), density_T in zip(some, density_BT, strict=True):
                mean.add(density_T, first)
    return [mean.result().astype(np.float32) for mean in means]


def _pieces(tokens: VideoTokens, layout: TokenLayout, shifts: int, by_window: bool) -> Iterator[tuple[int, Tensor]]:
    """What is decoded on its own of a video: first cell and tokens (T, H, W, C)."""
    for offset in layout.offsets[:shifts]:
        sequence = tokens.sequences.get(offset)
        if sequence is None:
            continue
        length = layout.window_cells if by_window else len(sequence)
        for begin in range(0, len(sequence), length):
            yield offset + begin, sequence[begin : begin + length]


@torch.no_grad()
def decode(
    head: nn.Module, sequence_THWC: Tensor, given: Mapping[str, Tensor], device: torch.device | str
) -> Array32:
    """The map (T,) of one sequence of tokens; given: what exemplar_arguments made."""
    dtype = next(head.parameters()).dtype
    density_BT: Tensor = head(sequence_THWC[None].to(device, dtype), **given).density_BT
    density_T: Array32 = density_BT[0].float().cpu().numpy()
    return density_T


def exemplar_arguments(
    head: nn.Module, exemplars: Sequence[ExemplarTokens], device: torch.device | str
) -> dict[str, Tensor]:
    """What a head is called with for some exemplars; nothing zero-shot."""
    if not exemplars:
        return {}
    dtype = next(head.parameters()).dtype
    tokens = torch.stack([tokens.to(dtype) for tokens, _ in exemplars])[None].to(device)
    cells = torch.tensor([[length for _, length in exemplars]], device=device)
    return {"exemplars_BSTHWC": tokens, "cells_BS": cells}


def head_of(network: nn.Module) -> nn.Module:
    """What decodes tokens: a network's decoder, or the decoder or rival's head itself."""
    return network.decoder if isinstance(network, Network) else network


def map_kind(head: nn.Module) -> DensityKind:
    """What a head's map is: one peak per repetition, or a rate."""
    if isinstance(head, Decoder):
        return "rate" if head.config.head.kind == "rate" else "peaks"
    kind: DensityKind = head.map_kind  # type: ignore[assignment]
    return kind


def save_predictions(path: Path, rows: Iterable[Prediction]) -> None:
    """One row per video: Parquet when the name ends so, else CSV; maps and spans as JSON."""
    table = [flat_row(row) for row in rows]
    names = [field.name for field in fields(Prediction)]
    if path.suffix == ".parquet":
        write_bytes(path, _parquet(table, names))
        return
    write_text(path, csv_text(names, ([row[name] for name in names] for row in table)))


def load_predictions(path: Path) -> list[Prediction]:
    """What save_predictions wrote."""
    if not path.exists():
        raise DataError(f"no predictions at {path}; make them with escounts evaluate")
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet  # noqa: PLC0415 - the extra [train]

            table = pyarrow.parquet.read_table(path).to_pylist()
        else:
            with path.open(newline="", encoding="utf-8") as handle, cells_of_any_length():
                table = [
                    {name: unguarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
                    for row in csv.DictReader(handle)
                ]
        return [row_from(row) for row in table]
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(f"{path} does not hold predictions: {error}") from error


def flat_row(row: Prediction) -> dict[str, Any]:
    """A row as plain values, maps and spans as JSON."""
    values = asdict(row)
    values["density"] = json.dumps([round(value, 6) for value in row.density])
    values["spans"] = json.dumps([[round(t, 5) for t in span] for span in row.spans])
    return values


def row_from(values: Mapping[str, Any]) -> Prediction:
    """The inverse of flat_row, also of text."""
    whole = ("count", "shots")
    real = ("predicted", "duration", "repetition_length", "start", "step")
    changed = dict(values)
    changed |= {name: int(values[name]) for name in whole} | {name: float(values[name]) for name in real}
    known = values.get("released_truth")
    changed["released_truth"] = None if known in (None, "") else float(str(known))
    changed["pseudo"] = str(values["pseudo"]) == "True"
    changed["density"] = tuple(json.loads(values["density"]))
    changed["spans"] = tuple((float(start), float(end)) for start, end in json.loads(values["spans"]))
    return Prediction(**changed)


def _parquet(table: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bytes:
    try:
        import pyarrow.parquet  # noqa: PLC0415 - the extra [train]
    except ImportError:
        raise DataError(f"Parquet needs pyarrow: {install_command('train')}, or write a .csv") from None
    buffer = pyarrow.BufferOutputStream()
    columns = {name: [row[name] for row in table] for name in names}
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    data: bytes = buffer.getvalue().to_pybytes()
    return data
