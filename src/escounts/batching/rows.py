"""Results of a batch: a folder, here or in object storage, of Parquet files with one row per video.

A worker writes each row as soon as it has it, as a small file of its own: whoever is killed afterwards, it is there.
From time to time the driver gathers the small files into a Parquet file and removes them. Killed in between, it finds
rows in both places, and knows them by their id.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from escounts.batching.tasks import Row, storage_of
from escounts.errors import EscountsError, OutputError
from escounts.system.atomic_files import printable, remove_partials, write_bytes
from escounts.system.extras import install_command

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from fsspec.implementations.local import LocalFileSystem
except ImportError as error:
    raise EscountsError(f"this needs {error.name}: {install_command('batch')}") from error

ATTEMPTS = 20
"""Times that the files are listed anew where one of them is gone when it is read."""
GATHERED = 1000
"""Rows in a Parquet file."""
PART = re.compile(r"part-[0-9a-f]{16}\.parquet")
"""How our Parquet files are called; others in the folder are somebody else's."""


class ResultFolder:
    """Rows by their id. Safe to use from several processes and machines; a row that two gather is known by its id."""

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            self._storage, self._path = storage_of(address)
            self._storage.makedirs(f"{self._path}/rows", exist_ok=True)
        except (OSError, ValueError) as error:
            raise OutputError(f"{address}: cannot be written to: {error}") from error
        self._gathering = threading.Lock()

    def write(self, row: Row) -> None:
        """Keep one row: whole or not at all."""
        text = printable(
            json.dumps(row, ensure_ascii=False)
        )  # a file's name may be no UTF-8, and neither table takes it
        self._put(f"{self._path}/rows/{row['id']}.json", text.encode())

    def sweep(self, *, older: float = 0.0) -> None:
        """Remove what killed processes left half-written. older: seconds, for a folder that machines share."""
        if isinstance(self._storage, LocalFileSystem):
            for folder in (Path(self._path), Path(self._path) / "rows"):
                remove_partials(folder, older=older)

    def _put(self, path: str, data: bytes) -> None:
        """A file, whole or not at all."""
        if isinstance(self._storage, LocalFileSystem):
            write_bytes(Path(path), data)
            return
        try:
            self._storage.pipe_file(path, data)  # an object appears whole
        except OSError as error:
            raise OutputError(f"{self.address}: cannot be written to: {error}") from error

    def has(self, id_: str) -> bool:
        """Whether a row was written and not gathered yet."""
        name = f"{self._path}/rows/{id_}.json"
        return bool(self._storage.exists(name)) and self._row(name) is not None

    def finished(self) -> dict[str, str]:
        """The status of every video that has a row, by its id."""
        table = self._gathered(columns=["id", "status"])
        found = list(zip(table["id"].to_pylist(), table["status"].to_pylist(), strict=True))
        found += [(row["id"], row["status"]) for row in self._loose()]
        return dict(sorted(found, key=lambda pair: pair[1], reverse=True))  # "counted" is the last word

    def gather(self, *, least: int = 1) -> None:
        """Put the rows that lie about into Parquet files, where there are at least `least`."""
        with self._gathering:
            loose = list(self._loose()) if len(self._names()) >= least else []
            if not loose:
                return
            known = set(self._gathered(columns=["id"])["id"].to_pylist())
            new = [row for row in loose if row["id"] not in known]
            for first in range(0, len(new), GATHERED):
                self._write_part(new[first : first + GATHERED])
            for row in loose:
                with suppress(FileNotFoundError):  # a second run on this folder has gathered it, too
                    self._storage.rm_file(f"{self._path}/rows/{row['id']}.json")

    def forget_errors(self, ids: Iterable[str]) -> None:
        """Take these error rows out: their videos will be counted again. What a second run on this folder has counted
        of them meanwhile stays, and so does a file that it is taking rows out of."""
        unwanted = pa.array(sorted(set(ids)), pa.string())
        self.gather()
        for name in self._parts():
            with suppress(FileNotFoundError):
                table = self._read(name)
                gone = pc.and_(pc.is_in(table["id"], value_set=unwanted), pc.equal(table["status"], "error"))
                kept = table.filter(pc.invert(gone))
                if len(kept) < len(table):
                    if len(kept):
                        self._write_part(kept.to_pylist())
                    self._storage.rm_file(name)

    def table(self, ids: Iterable[str] | None = None) -> pa.Table:
        """The rows with these ids (None: all), each once, in the order of their videos' addresses. Of a video that
        two runs have tried, a row that was counted goes before an error."""
        self.gather()
        table = self._gathered().sort_by("status")  # "counted" comes before "error"
        wanted = set(table["id"].to_pylist() if ids is None else ids)
        first = [id_ in wanted and wanted.discard(id_) is None for id_ in table["id"].to_pylist()]  # type: ignore[func-returns-value]
        return table.filter(pa.array(first, pa.bool_())).sort_by("video")

    def _names(self) -> list[str]:
        self._storage.invalidate_cache()
        names = self._storage.ls(f"{self._path}/rows", detail=False)
        return [name for name in names if name.endswith(".json")]

    def _loose(self) -> Iterable[Row]:
        return filter(None, map(self._row, self._names()))

    def _row(self, name: str) -> Row | None:
        """The row in a file; None for one that a crash of the machine has torn, that is not ours, or that has been
        gathered since it was listed."""
        try:
            row = json.loads(self._storage.cat_file(name))
            pa.Table.from_pylist([row], schema=row_schema())  # else all of them could not be gathered
            return row if row["id"] == Path(name).stem and isinstance(row["status"], str) else None
        except (pa.ArrowException, ValueError, KeyError, TypeError, RecursionError, FileNotFoundError):
            return None

    def _parts(self) -> list[str]:
        self._storage.invalidate_cache()
        found = self._storage.glob(f"{self._path}/part-*.parquet")
        return sorted(name for name in found if PART.fullmatch(Path(name).name))

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        try:
            # Whole, and by this thread alone: one of pyarrow's own that lets go of Python's bytes while Python ends
            # aborts the process (seen twice in some hundred batches).
            whole = pa.BufferReader(self._storage.cat_file(name))
            return _conformed(
                pq.ParquetFile(whole, pre_buffer=False).read(columns=columns, use_threads=False), columns
            )
        except FileNotFoundError:  # a second run on this folder has put its rows elsewhere
            raise
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise OutputError(f"{name} cannot be read ({reason}); move it away to count its videos again") from error

    def _gathered(self, columns: list[str] | None = None) -> pa.Table:
        for left in reversed(range(ATTEMPTS)):
            try:
                parts = [self._read(name, columns) for name in self._parts()]
                return pa.concat_tables([_schema(columns).empty_table(), *parts])
            except FileNotFoundError as error:
                if not left:
                    raise OutputError(f"{self.address}: others are changing it all the time; try again") from error
        raise AssertionError

    def _write_part(self, rows: list[Row]) -> None:
        data = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=row_schema()), data)
        self._put(f"{self._path}/part-{secrets.token_hex(8)}.parquet", data.getvalue())


def _schema(columns: list[str] | None) -> pa.Schema:
    return pa.schema([field for field in row_schema() if columns is None or field.name in columns])


def _conformed(table: pa.Table, columns: list[str] | None) -> pa.Table:
    """A table in today's columns (None: all). Another version may have written fewer, which are empty then, or more;
    without an id or a status it is none of ours, and raises ValueError."""
    wanted = _schema(columns)
    empty = [name for name in ("id", "status") if name in wanted.names and table[name].null_count]
    if empty:
        raise ValueError(f"rows without {empty[0]}")
    there = [
        table[one.name].cast(one.type) if one.name in table.column_names else pa.nulls(len(table), one.type)
        for one in wanted
    ]
    return pa.Table.from_arrays(there, schema=wanted)


def row_schema() -> pa.Schema:
    """The columns of a row. status: "counted" or "error"; times in seconds."""
    return pa.schema(
        {
            "id": pa.string(),
            "video": pa.string(),
            "status": pa.string(),
            "count": pa.int64(),
            "raw_count": pa.float64(),
            "confidence": pa.float64(),
            "unsure": pa.bool_(),
            "unit": pa.string(),
            "starts": pa.list_(pa.float64()),
            "ends": pa.list_(pa.float64()),
            "duration": pa.float64(),
            "model": pa.string(),
            "error": pa.string(),
            "spent": pa.float64(),
            "escounts": pa.string(),
            "region": pa.string(),
        }
    )
