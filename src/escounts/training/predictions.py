"""What a decoder says of every video of a dataset: one row a video, kept on disk, so that any number can be
recomputed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from escounts.atomic_files import write_bytes, write_text
from escounts.datasets.annotations import VideoAnnotation
from escounts.datasets.tokens import TokenStore
from escounts.density import density_map
from escounts.errors import DataError
from escounts.nn.decoder import Decoder
from escounts.results import DensityKind, DensityMap, FloatArray

Exemplars = Literal["same", "other"]
ExemplarSource = Mapping[str, Sequence[tuple[Tensor, float]]]
"""Video name → its exemplars: tokens (T, H, W, C) and their length in cells, 0 when of another video."""


@dataclass(frozen=True)
class Prediction:
    """One counted video. count: the truth; predicted: the sum of the map. times in seconds; density: the map
    from `start`, cells of `step` seconds, of a kind. spans: annotated repetitions. shots, exemplars: what it was
    given."""

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

    @property
    def rounded(self) -> int:
        """The whole count, half to even."""
        return round(self.predicted)

    def density_map(self) -> DensityMap:
        """The map as counting returns it."""
        return DensityMap(np.asarray(self.density, np.float32), self.start, self.step, self.kind)

    def peak_map(self) -> DensityMap:
        """The map with one peak a repetition; a rate map's repetitions get a peak at their middle."""
        if self.kind == "peaks":
            return self.density_map()
        spans = [(max(found.start, 0.0), found.end) for found in self.density_map().repetitions()]
        values = density_map(spans, cells=len(self.density), step=self.step, start=self.start)
        return DensityMap(values.astype(np.float32), self.start, self.step)


def predict(
    network: nn.Module,
    store: TokenStore,
    videos: Sequence[VideoAnnotation],
    *,
    dataset: str = "",
    shifts: int = 4,
    by_window: bool = False,
    exemplars: ExemplarSource | None = None,
    kind: Exemplars | Literal["none"] = "none",
    device: torch.device | str = "cpu",
    model: str = "",
) -> list[Prediction]:
    """Count every stored video, zero-shot or with the given exemplars; those without tokens are left out."""
    decoder = decoder_of(network).eval()
    map_kind: DensityKind = "rate" if decoder.config.head.kind == "rate" else "peaks"
    rows = []
    for video in videos:
        if video.name not in store or store.entries[video.name].cells == 0:
            continue
        entry = store.entries[video.name]
        shots = list(exemplars.get(video.name, ())) if exemplars else []
        density = decode_video(decoder, store, video.name, shots, shifts=shifts, by_window=by_window, device=device)
        rows.append(
            Prediction(
                dataset=dataset,
                split=video.split,
                name=video.name,
                action=video.action or "",
                count=video.count,
                predicted=float(density.sum(dtype=np.float64)),
                duration=entry.duration,
                repetition_length=video.repetition_length or 0.0,
                start=0.0,
                step=entry.step,
                density=tuple(float(value) for value in density),
                spans=video.spans,
                pseudo=video.pseudo,
                shots=len(shots),
                exemplars=kind if shots else "none",
                model=model,
                kind=map_kind,
            )
        )
    return rows


@torch.no_grad()
def decode_video(
    decoder: Decoder,
    store: TokenStore,
    name: str,
    shots: Sequence[tuple[Tensor, float]] = (),
    *,
    shifts: int = 4,
    by_window: bool = False,
    device: torch.device | str = "cpu",
) -> FloatArray:
    """The density map of a stored video, averaged over K shifted starts by how many maps cover a cell
    (section 3.3). by_window: every encoder window is decoded on its own."""
    entry = store.entries[name]
    total = np.zeros(entry.cells, np.float64)
    covered = np.zeros(entry.cells, np.float64)
    tokens = store.load(name)
    dtype = next(decoder.parameters()).dtype
    given = _given(decoder, shots, device, dtype)
    for offset in store.layout.offsets[:shifts]:
        sequence = tokens.sequences.get(offset)
        if sequence is None:
            continue
        length = store.layout.window_cells if by_window else len(sequence)
        for begin in range(0, len(sequence), length):
            part_1THWC = sequence[begin : begin + length][None].to(device, dtype)
            density_T = decoder(part_1THWC, **given).density_BT[0].float().cpu().numpy()
            first = offset + begin
            total[first : first + len(density_T)] += density_T
            covered[first : first + len(density_T)] += 1
    averaged: FloatArray = (total / np.maximum(covered, 1)).astype(np.float32)
    return averaged


def _given(
    decoder: Decoder, shots: Sequence[tuple[Tensor, float]], device: torch.device | str, dtype: torch.dtype
) -> dict[str, Tensor]:
    if not shots:
        return {}
    tokens = torch.stack([shot for shot, _ in shots])[None].to(device, dtype)
    cells = torch.tensor([[length for _, length in shots]], device=device)
    return {"exemplars_BSTHWC": tokens, "cells_BS": cells}


def decoder_of(network: nn.Module) -> Decoder:
    """The decoder of a network, or the decoder itself."""
    decoder = network if isinstance(network, Decoder) else network.decoder
    assert isinstance(decoder, Decoder)
    return decoder


def save_predictions(path: Path, rows: Iterable[Prediction]) -> None:
    """One row a video: Parquet when the name ends so, else CSV; maps and spans as JSON."""
    table = [_flat(row) for row in rows]
    names = [field.name for field in fields(Prediction)]
    if path.suffix == ".parquet":
        write_bytes(path, _parquet(table, names))
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(table)
    write_text(path, text.getvalue())


def load_predictions(path: Path) -> list[Prediction]:
    """What save_predictions wrote."""
    if not path.exists():
        raise DataError(f"no predictions at {path}; make them with escounts evaluate")
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path).to_pylist()
        else:
            with path.open(newline="") as handle:
                table = list(csv.DictReader(handle))
        return [_prediction(row) for row in table]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} does not hold predictions: {error}") from error


def _flat(row: Prediction) -> dict[str, Any]:
    values = asdict(row)
    values["density"] = json.dumps([round(value, 6) for value in row.density])
    values["spans"] = json.dumps([[round(t, 5) for t in span] for span in row.spans])
    return values


def _prediction(values: Mapping[str, Any]) -> Prediction:
    whole = ("count", "shots")
    real = ("predicted", "duration", "repetition_length", "start", "step")
    changed = dict(values)
    changed |= {name: int(values[name]) for name in whole} | {name: float(values[name]) for name in real}
    changed["pseudo"] = str(values["pseudo"]) == "True"
    changed["density"] = tuple(json.loads(values["density"]))
    changed["spans"] = tuple((float(start), float(end)) for start, end in json.loads(values["spans"]))
    return Prediction(**changed)


def _parquet(table: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet needs pyarrow: install escounts[train], or write a .csv") from None
    buffer = pyarrow.BufferOutputStream()
    columns = {name: [row[name] for row in table] for name in names}
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    data: bytes = buffer.getvalue().to_pybytes()
    return data
