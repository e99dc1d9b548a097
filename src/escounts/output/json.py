"""json: a result for programs; docs/json-schema.md says what each field is and what may change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from escounts.decision.repetitions import RepetitionSet, into_sets
from escounts.errors import OutputError
from escounts.results import CountResult, DensityMap, ExemplarSpan, Hypothesis, MachineCount, Repetition, Track
from escounts.system.atomic_files import printable, write_text

SCHEMA = "escounts.result"
VERSION = "1.2"
"""The first number changes when a field goes away or changes its meaning, the second when one is added."""


def write(result: CountResult, path: Path, *, video: Path | None = None) -> None:
    """One JSON object in a file."""
    write_text(path, json.dumps(to_dict(result), ensure_ascii=False, indent=1) + "\n")


def to_dict(result: CountResult) -> dict[str, Any]:
    """The result as plain JSON types. Seconds are rounded to a tenth of a millisecond."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "video": printable(result.video),
        "model": result.model,
        "count": result.count,
        "raw_count": round(result.raw_count, 4),
        "confidence": round(result.confidence, 4) if result.machine is None else None,
        "unsure": result.unsure,
        "reasons": list(result.reasons),
        "confidence_kind": result.confidence_kind,
        "unsure_below": result.unsure_below,
        "unit": result.unit,
        "without_unit": result.without_unit,
        "hypotheses": [
            {name: value for name, value in _plain(one).items() if value is not None} for one in result.hypotheses
        ],
        "phase": result.phase,
        "corrected": result.machine is not None,
        "machine": None if result.machine is None else asdict(result.machine),
        "repetitions": _plain(result.repetitions),
        "left_out": _plain(result.left_out),
        "sets": _plain(result.sets),
        "duration": round(result.duration, 4),
        "range": _plain(result.range),
        "region": result.region,
        "tracks": _plain(result.tracks),
        "exemplars": [asdict(span) for span in result.exemplars],
        "density": {
            "kind": result.density.kind,
            "start": round(result.density.start, 6),
            "step": result.density.step,
            "values": [round(float(value), 6) for value in result.density.values],
        },
        "timings": {name: round(seconds, 4) for name, seconds in result.timings.items()},
        "details": {name: round(value, 6) for name, value in result.details.items()},
    }


def _plain(value: Any) -> Any:
    """Values as JSON has them, rounded. A repetition's score is null where nobody judged single ones: readers of 1.0
    look for the key."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def _repetitions(found: Sequence[dict[str, Any]]) -> tuple[Repetition, ...]:
    return tuple(Repetition(one["start"], one["end"], one.get("score")) for one in found)


def from_dict(data: dict[str, Any]) -> CountResult:
    """A result read back; raises OutputError for another schema or a newer major version.

    What version 1.0 did not have yet takes the values that were true of it. Early files of 1.1 have no score where it
    is null now.
    """
    version = str(data.get("version", ""))
    if data.get("schema") != SCHEMA or version.split(".")[0] != VERSION.split(".")[0]:
        raise OutputError(
            f"schema {data.get('schema')!r} version {version!r}; this escounts reads {SCHEMA} {VERSION}"
        )
    density = data["density"]
    first, last = data["range"]
    machine = MachineCount(**data["machine"]) if data.get("machine") else None
    repetitions = _repetitions(data["repetitions"])
    return CountResult(
        video=data["video"],
        model=data["model"],
        count=data["count"],
        raw_count=data["raw_count"],
        repetitions=repetitions,
        density=DensityMap(
            np.array(density["values"], np.float32), density["start"], density["step"], density["kind"]
        ),
        confidence=machine.confidence if machine is not None else data["confidence"],
        unsure=data["unsure"],
        duration=data["duration"],
        range=(first, last),
        exemplars=tuple(ExemplarSpan(e["start"], e["end"], e["video"]) for e in data["exemplars"]),
        timings=data["timings"],
        details=data["details"],
        confidence_kind=data.get("confidence_kind", "probability"),
        unsure_below=data.get("unsure_below"),
        unit=data.get("unit"),
        hypotheses=tuple(Hypothesis(h["count"], h.get("unit"), h["p"]) for h in data.get("hypotheses", ())),
        phase=data.get("phase", "arbitrary"),
        machine=machine,
        without_unit=data.get("without_unit"),
        reasons=tuple(data.get("reasons", ())),
        region=data.get("region"),
        tracks=tuple(
            Track(**{**track, "repetitions": tuple(Repetition(**one) for one in track["repetitions"])})
            for track in data.get("tracks", ())
        ),
        sets=tuple(RepetitionSet(**one) for one in data["sets"]) if "sets" in data else into_sets(repetitions),
        left_out=_repetitions(data.get("left_out", ())),
    )
