"""What a table is made of: evaluations, rows and columns, and the published numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from escounts.research.evaluation.models import EvalSpec
from escounts.research.training.recipes import Recipe

METRICS = ("RMSE", "MAE", "OBZ", "OBO")
Number = float | None
NamedModel = Literal["mean", "spectral", "lite", "escounts-repcount"]
"""Rows that train nothing: the training videos' mean count, the classical method, the model in the package, the
authors' checkpoint."""


ONCE = EvalSpec()
"""Zero-shot on the recipe's own dataset."""


@dataclass(frozen=True)
class Cells:
    """The cells of one row in one group of columns: published numbers, and how to measure ours, if it is ours.

    recipe: the run that is trained; or model: a model that is there, on the spec's dataset. source: where the
    published numbers are from.
    """

    published: tuple[Number, ...]
    recipe: Recipe | None = None
    spec: EvalSpec = ONCE
    model: NamedModel | None = None
    source: str = "paper"

    @property
    def ours(self) -> bool:
        """Whether we can measure it."""
        return self.recipe is not None or self.model is not None

    @property
    def dataset(self) -> str:
        """What it is tested on."""
        return self.spec.dataset or (self.recipe.dataset if self.recipe else "")


@dataclass(frozen=True)
class TableRow:
    """labels: one for each label column. cells: one for each group of columns."""

    labels: tuple[str, ...]
    cells: tuple[Cells, ...]


def row(*parts: str | Number | Recipe | EvalSpec | Cells) -> TableRow:
    """A row: its labels; run, evaluation and published numbers of its first group; cells of the other groups."""
    labels = tuple(part for part in parts if isinstance(part, str))
    cells = tuple(part for part in parts if isinstance(part, Cells))
    numbers = tuple(part for part in parts if part is None or isinstance(part, float))
    recipe = next((part for part in parts if isinstance(part, Recipe)), None)
    spec = next((part for part in parts if isinstance(part, EvalSpec)), ONCE)
    return TableRow(labels, (Cells(numbers, recipe, spec), *cells) if numbers or recipe else cells)


@dataclass(frozen=True)
class Group:
    """Columns that belong together, such as one test set."""

    title: str = ""
    columns: tuple[str, ...] = METRICS


@dataclass(frozen=True)
class Table:
    """A table. note: what the reader should know about the published numbers. about_map: the rows differ in the
    density map or its objective, so that all of them, also on generated videos, keep the density head. What a row
    leaves out was not published."""

    name: str
    title: str
    labels: tuple[str, ...]
    groups: tuple[Group, ...]
    rows: tuple[TableRow, ...]
    note: str = ""
    about_map: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(map(self._whole, self.rows)))

    def _whole(self, row: TableRow) -> TableRow:
        """The row with a cell in each column."""
        nothing = Cells((), source=row.cells[0].source)
        cells = (*row.cells, *[nothing] * (len(self.groups) - len(row.cells)))
        return replace(row, cells=tuple(
            one if one.published else replace(one, published=(None,) * len(group.columns))
            for one, group in zip(cells, self.groups, strict=True)
        ))  # fmt: skip

    @property
    def cells(self) -> Iterator[Cells]:
        """Of all rows."""
        return (cells for row in self.rows for cells in row.cells)

    @property
    def recipes(self) -> dict[Recipe, None]:
        """What is trained for it, each once."""
        return {cells.recipe: None for cells in self.cells if cells.recipe is not None}

    @property
    def names_encoder(self) -> bool:
        """Whether its rows say which encoder they use, so that no other may stand in for it."""
        return "Encoder" in self.labels

    @property
    def reference(self) -> tuple[str, ...] | None:
        """The labels of the paper's own setting, with the paper's head where rows differ in it; None without it."""
        found = [(row.cells[0].recipe, row.labels) for row in self.rows if row.cells[0].spec == ONCE]
        plain = [(one.head, labels) for one, labels in found if one and not set(one.changes) - {"lr", "head"}]
        return min(plain)[1] if plain else None

    def published_mae(self, labels: tuple[str, ...] | None) -> float | None:
        """The published MAE of a row, in its first group of columns."""
        rows = [row.cells[0].published for row in self.rows if row.labels == labels]
        return dict(zip(self.groups[0].columns, rows[0], strict=True)).get("MAE") if rows else None

    def published_difference(self, labels: tuple[str, ...]) -> float | None:
        """The same less the reference's."""
        mine, other = self.published_mae(labels), self.published_mae(self.reference)
        return None if mine is None or other is None else mine - other

    @property
    def datasets(self) -> tuple[str, ...]:
        """Datasets that ours needs, each once."""
        named = ((cells.recipe.dataset if cells.recipe else None, cells.spec.dataset) for cells in self.cells)
        return tuple(dict.fromkeys(name for both in named for name in both if name))
