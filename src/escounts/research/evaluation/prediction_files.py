"""Predictions on disk: kept video by video while an evaluation runs, one table with its coverage when it is done.

An evaluation that is stopped goes on where it was. What was made by another model, of other labels, of another video
or by other arithmetic is not used again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from escounts.errors import DataError, one_line
from escounts.research.training.predictions import Prediction, flat_row, load_predictions, row_from, save_predictions
from escounts.system.atomic_files import append_json, json_lines, printable, remove_partials, write_text


@dataclass(frozen=True)
class Coverage:
    """What of a split was scored. videos: of the split, those with unusable labels too, or as many of its first
    usable ones as were asked for. missing: name → why it has no count. whole: videos of the split, where only its
    first were asked for. left_out: name → why rows of the labels were left out that are not among `missing`: of a
    video that was scored by its other rows or, where only the first were asked for, of any other."""

    dataset: str
    split: str
    videos: int
    scored: int
    missing: Mapping[str, str]
    whole: int | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """For a table's cell."""
        return f"{self.scored}/{self.videos}" + (f" of {self.whole}" if self.whole else "")

    @property
    def scored_text(self) -> str:
        """`folder all: 1 of 3 videos scored`."""
        line = f"{self.dataset} {self.split}: {self.scored} of {self.videos} videos scored"
        return f"{line} (the first of {self.whole})" if self.whole else line

    def text(self, shown: int = 5) -> str:
        """For a table's notes, in one line: how many, and which are missing by name."""
        if not self.missing:
            return self.scored_text
        named = [_named(name, why) for name, why in list(self.missing.items())[:shown]]
        more = f" and {len(self.missing) - shown} more" if len(self.missing) > shown else ""
        return f"{self.scored_text}; missing: {', '.join(named)}{more}"

    def not_scored(self, shown: int = 10) -> list[str]:
        """What was not scored, a line for each: the first videos and rows, and how many more there are."""
        lines = [f"missing: {_named(name, why)}" for name, why in list(self.missing.items())[:shown]]
        left = max(0, shown - len(self.missing))
        lines += [f"labels left out: {_named(name, why)}" for name, why in list(self.left_out.items())[:left]]
        more = len(self.missing) + len(self.left_out) - len(lines)
        return [*lines, f"… and {more} more"] if more else lines


def _named(name: str, why: str) -> str:
    """A name with the reason, as a line can hold them: tables have names of thousands of characters."""
    return f"{_shortened(name, 80) or 'a row without a name'} ({_shortened(why, 200)})"


def _shortened(text: str, most: int) -> str:
    text = one_line(printable(text))
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


class PredictionFile:
    """The predictions of one evaluation: `path` (CSV or Parquet), beside it `.json` with identity and coverage.

    While it runs there is a `.partial.jsonl`, one line per video.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.digest = digest_of(identity)
        self.identity = identity
        self.about_path = path.with_name(f"{path.name}.json")
        self.partial = path.with_name(f"{path.name}.partial.jsonl")

    def keep_others(self) -> None:
        """Raise DataError where the file is of a model of another name: its predictions are not written over.

        Other weights of one name, or of one run, make them stale.
        """
        try:
            there = json.loads(self.about_path.read_text())["made_of"]["model"].get("name")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        mine = self.identity.get("model", {}).get("name")
        if there and mine and there != mine:
            raise DataError(f"{self.path} holds the predictions of {there}; choose another --out, or move it away")

    def known(self) -> dict[str, tuple[str, Prediction]]:
        """Name → fingerprint of the video and its row, of every row that is not stale by identity."""
        found: dict[str, tuple[str, Prediction]] = {}
        about = self._about()
        if about is not None and self.path.exists():
            prints = about["fingerprints"]
            found = {row.name: (prints[row.name], row) for row in load_predictions(self.path) if row.name in prints}
        if self.partial.exists():
            found |= self._partial_rows()
        return found

    def add(self, fingerprint: str, row: Prediction) -> None:
        """Keep one row now: a stopped evaluation loses no video that was counted."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.partial.exists():
            write_text(self.partial, json.dumps({"identity": self.digest}) + "\n")
        append_json(self.partial, {"fingerprint": fingerprint, "row": flat_row(row)})

    def finish(self, rows: Sequence[tuple[str, Prediction]], coverage: Coverage) -> None:
        """Write the table and what it covers; the partial file goes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        save_predictions(self.path, [row for _, row in rows])
        about = {
            "identity": self.digest,
            "made_of": self.identity,
            "coverage": asdict(coverage),
            "fingerprints": {row.name: fingerprint for fingerprint, row in rows},
        }
        write_text(self.about_path, json.dumps(about, indent=1) + "\n")
        self.partial.unlink(missing_ok=True)
        remove_partials(self.path.parent)  # of an evaluation that was killed while it wrote one of these

    def _about(self) -> dict[str, Any] | None:
        try:
            about: dict[str, Any] = json.loads(self.about_path.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return about if about.get("identity") == self.digest else None

    def _partial_rows(self) -> dict[str, tuple[str, Prediction]]:
        """Rows of a stopped evaluation; the file goes where it is of another identity."""
        first, *entries = [*json_lines(self.partial)] or [{}]
        if first.get("identity") != self.digest:
            self.partial.unlink()
            return {}
        found = {}
        for entry in entries:
            with suppress(ValueError, KeyError, TypeError):
                row = row_from(entry["row"])
                found[row.name] = (entry["fingerprint"], row)
        return found


def digest_of(identity: Mapping[str, Any]) -> str:
    """Short hash of JSON values."""
    try:
        text = json.dumps(identity, sort_keys=True)
    except TypeError as error:
        raise DataError(f"an identity takes plain values: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:16]
