"""`escounts export`: a model for other runtimes."""

from __future__ import annotations

from pathlib import Path

import click

from escounts.errors import ModelError


@click.command()
@click.argument("model", default="default")
@click.option("--format", "format_", type=click.Choice(["onnx"]), default="onnx", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
def command(model: str, format_: str, out: Path) -> None:
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
