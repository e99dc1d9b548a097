"""`escounts table`: a table of the paper, ours beside the published numbers; trains what is missing."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("name", required=False)
@click.option("--tokens", type=click.Path(path_type=Path), default=Path("tokens"), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("tables"), show_default=True)
@click.option("--data", type=click.Choice(["paper", "synthetic"]), default="paper", show_default=True,
              help="The table's own datasets, or generated videos instead.")  # fmt: skip
@click.option("--quick", is_flag=True, help="With --data synthetic: small runs, minutes on two CPU cores.")
@click.option("--seeds", type=int, help="Runs of each row (default 1; 2 with --data synthetic).")
@click.option("--device", default="auto", show_default=True)
@click.option("--list", "show_list", is_flag=True, help="The tables there are.")
def command(
    name: str | None, tokens: Path, out: Path, data: str, quick: bool, seeds: int | None, device: str, show_list: bool
) -> None:
    """Print table NAME. Where a dataset is absent, only the paper's row is shown; no cell is ever made up."""
    from escounts.evaluation.tables import TABLES

    if show_list or name is None:
        for entry in TABLES.values():
            click.echo(f"{entry.name:13s} {entry.title}  ({', '.join(entry.datasets)})")
        return
    if name not in TABLES:
        raise click.BadParameter(f"no table {name!r}; there are {', '.join(TABLES)}")
    from escounts.atomic_files import write_text
    from escounts.cli.training_display import training_display
    from escounts.evaluation.rendering import fill
    from escounts.evaluation.synthetic_bench import synthetic_table
    from escounts.evaluation.workbench import TableRunner, stored_source
    from escounts.nn.device import choose_device

    where = str(choose_device(device))
    out.mkdir(parents=True, exist_ok=True)
    with training_display() as report:
        if data == "synthetic":
            numbers = range(seeds or 2)
            filled = synthetic_table(TABLES[name], out, quick=quick, seeds=numbers, device=where, report=report)
        else:
            bench = TableRunner(
                out,
                stored_source(tokens),
                lambda recipe, layout, seed: recipe.paper_run(layout, seed),
                seeds=range(seeds or 1),
                device=where,
                report=report,
            )
            filled = fill(TABLES[name], bench)
    stem = name if data == "paper" else f"{name}-synthetic"
    write_text(out / f"{stem}.md", filled.markdown())
    write_text(out / f"{stem}.csv", filled.csv())
    _show(filled.headers, filled.texts(), f"Table {filled.name}: {filled.title}", filled.notes)
    click.echo(f"wrote {out / stem}.md and .csv")


def _show(headers: tuple[str, ...], rows: list[list[str]], title: str, notes: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for header in headers:
        shown.add_column(header)
    for row in rows:
        shown.add_row(*row, style=None if "paper" in row else "bold")
    console = Console(width=None if Console().is_terminal else 140)
    console.print(shown)
    for note in notes:
        console.print(f"· {note}", highlight=False)
