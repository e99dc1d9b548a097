"""The notebook runs from its first cell to its last and counts the sample right."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_the_quickstart_counts_the_sample() -> None:
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    answers = [
        next((output.data["text/plain"] for output in cell.outputs if "data" in output), None) for cell in cells
    ]
    assert str(answers[0]).startswith("(8,")
    assert answers[4] == "8" and answers[6] == "True"
