"""`escounts models`, `weights` and `export`: which models there are, public weights, a model for others."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from escounts.errors import ModelError
from escounts.nn.encoders.public import ENCODER_SOURCES, RELEASED_DECODER
from escounts.zoo import catalogue
from escounts.zoo import store as weights


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON list on stdout.")
def models_command(as_json: bool) -> None:
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


@click.group()
def weights_command() -> None:
    """Add and list public weights.

    Files are converted once to safetensors in the user's cache ($ESCOUNTS_CACHE overrides where); the original
    is left as it is and no longer needed.
    """


@weights_command.command()
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


@weights_command.command("list")
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


@click.command()
@click.argument("model", default="default")
@click.option("--format", "format_", type=click.Choice(["onnx"]), default="onnx", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
def export_command(model: str, format_: str, out: Path) -> None:
    """Write MODEL as encoder.onnx and decoder.onnx; `escounts count --model FOLDER` counts with them."""
    try:
        from escounts.zoo.onnx_export import export_onnx  # noqa: PLC0415 - the extra [onnx]
    except ImportError as error:
        raise click.UsageError(f"ONNX is not installed ({error}); pip install 'escounts[onnx]'") from error
    from escounts.counter import load  # noqa: PLC0415 - torch takes a second to load
    from escounts.inference.multi_rate import MultiRateModel  # noqa: PLC0415 - torch, likewise

    counting = load(model, device="cpu").model
    if not isinstance(counting, MultiRateModel):
        raise ModelError(f"model {counting.name!r} cannot be exported; `lite` and networks of its form can")
    click.echo("exporting and checking takes a minute or two", err=True)
    export_onnx(counting, out)
    for file in sorted(out.iterdir()):
        click.echo(f"wrote {file} ({file.stat().st_size / 1e6:.1f} MB)")
    click.echo(f"count with it: escounts count VIDEO --model {out}")
