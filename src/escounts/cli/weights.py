"""`escounts weights`: add public weights to the user's store, and list what is there."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from escounts.nn.encoders.public import ENCODER_SOURCES, RELEASED_DECODER
from escounts.zoo import store as weights


@click.group()
def command() -> None:
    """Add and list public weights.

    Files are converted once to safetensors in the user's cache ($ESCOUNTS_CACHE overrides where); the original
    is left as it is and no longer needed.
    """


@command.command()
@click.argument("source", metavar="PATH|HUB_ID")
@click.option("--as", "name", metavar="NAME", help="Keep it under this name instead of its own.")
@click.option("--encoder", metavar="NAME", help="The encoder a decoder file was trained on, if not ViT-B.")
def add(source: str, name: str | None, encoder: str | None) -> None:
    """Convert a weights file, a Hugging Face folder or a hub id, and keep it."""
    from escounts.zoo.conversion import add as add_weights  # noqa: PLC0415 - torch: 2 s that listing does not wait for

    kept = add_weights(source, name=name, encoder=encoder)
    click.echo(f"{kept.name}: {kept.kind}, {kept.size_bytes / 1e6:.1f} MB, sha256 {kept.sha256[:16]}…")
    click.echo(f"  kept at {kept.path}")
    click.echo(f"  licence: {kept.licence}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON list on stdout.")
def list_(as_json: bool) -> None:
    """What is in the store, and the public files that can be added."""
    kept = weights.stored()
    if as_json:
        rows = [asdict(entry) | {"path": str(entry.path)} for entry in kept]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    click.echo(f"store: {weights.store_folder()}")
    for entry in kept:
        click.echo(f"  {entry.name}: {entry.kind}, {entry.size_bytes / 1e6:.1f} MB, from {entry.source}")
        click.echo(f"    licence: {entry.licence}")
    if not kept:
        click.echo("  (empty)")
    here = {entry.name for entry in kept}
    click.echo("can be added:")
    for source in (*ENCODER_SOURCES, RELEASED_DECODER):
        mark = " (added)" if source.encoder in here and source is not RELEASED_DECODER else ""
        click.echo(f"  {source.file}{mark}: {source.encoder}, {source.origin}")
        click.echo(f"    licence: {source.licence}")
