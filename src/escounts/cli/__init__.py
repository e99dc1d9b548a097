"""The command line: commands that belong together share a file, loaded only when one of them is called."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from escounts.errors import EscountsError

COMMANDS = {
    "count": ("count", "Count the repetitions in videos."),
    "batch": ("batch", "Count thousands of videos, here or on a Ray cluster, into Parquet."),
    "watch": ("watch", "Count a camera, a stream or a file while it runs."),
    "export": ("models", "Write a model for other runtimes (ONNX)."),
    "models": ("models", "What can be loaded, from where, how big, on what it was trained."),
    "bench": ("models", "How fast this machine counts."),
    "doctor": ("models", "Versions, device, decoders, weights: what works here."),
    "sample": ("data", "Draw the sample video with the project's own generator."),
    "weights": ("models", "Add and list public weights."),
    "data": ("data", "Check a dataset: what is there, what is missing, what is odd."),
    "encode": ("data", "Encode a dataset into a token store."),
    "train": ("train", "Train on a dataset, your own folder, or generated repetitions."),
    "evaluate": ("evaluate", "Evaluate a run: all metrics with confidence intervals."),
    "table": ("evaluate", "The paper's tables: from a checkout, python -m paper table."),
    "figure": ("evaluate", "The paper's figures: from a checkout, python -m paper figure."),
    "serve": ("serve", "A local web page and REST service."),
}
"""Command → the module of this package that has it, as `NAME_command`, and what it is for."""


class LazyGroup(click.Group):
    """Imports a command's module on demand, so that `escounts --help` does not load torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"escounts.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, purpose) for name, (_, purpose) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="escounts")
def app() -> None:
    """escounts counts repetitions in videos: how many, when, and how sure."""


def main(command: click.Command | None = None) -> None:
    """Entry point: a user's mistake is one line on stderr and exit code 2, never a traceback."""
    try:
        sys.exit((command or app)(standalone_mode=False) or 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except EscountsError as error:
        click.echo(f"escounts: {error}", err=True)
        sys.exit(2)
    except MemoryError:
        click.echo("escounts: not enough memory for this; a smaller file, or a machine with more, may do", err=True)
        sys.exit(2)
    except OSError as error:  # a place that is read-only, full, or no folder: a traceback helps nobody
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"escounts: {where}{error.strerror or error}", err=True)
        sys.exit(2)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while a process imports torch, and exempt what is made meanwhile.

    torch's modules are a quarter of a million objects, gone through several times while they are made and again
    afterwards: 0.2 s, a sixth of what loading takes. Not for a library: the caller's objects would stay, too.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.collect()  # what is garbage already is not to stay
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
