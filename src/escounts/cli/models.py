"""`escounts models`: what can be loaded, from where, how big, on what it was trained."""

from __future__ import annotations

import json

import click

from escounts.zoo import catalogue


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON list on stdout.")
def command(as_json: bool) -> None:
    """List the models that have names, and which of them are ready."""
    entries = catalogue.entries()
    default = catalogue.default_name()
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "name": entry.name,
                        "default": entry.name == default,
                        "state": entry.state(),
                        "summary": entry.summary,
                        "source": entry.source,
                        "size_bytes": entry.size_bytes,
                        "trained_on": entry.trained_on,
                        "licence": entry.licence,
                    }
                    for entry in entries
                ],
                ensure_ascii=False,
                indent=1,
            )
        )
        return
    for entry in entries:
        mark = " (default)" if entry.name == default else ""
        click.echo(f"{entry.name}{mark}: {entry.state()}")
        click.echo(f"  {entry.summary}")
        click.echo(f"  trained on: {entry.trained_on}")
        click.echo(f"  from: {entry.source} · {size(entry)} · licence: {entry.licence}")


def size(entry: catalogue.ModelEntry) -> str:
    """ "8.4 MB", "no weights" where none are needed, "not here" where they are missing."""
    if entry.size_bytes:
        return f"{entry.size_bytes / 1e6:.1f} MB"
    return "no weights" if entry.state() == "ready" else "not here"
