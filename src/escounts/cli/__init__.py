"""The command line: one file per command, loaded only when that command is called."""

from __future__ import annotations

import importlib
import sys

import click

from escounts.errors import EscountsError

COMMANDS = {
    "count": "Count the repetitions in videos.",
    "batch": "Count thousands of videos, here or on a Ray cluster, into Parquet.",
    "watch": "Count a camera, a stream or a file while it runs.",
    "export": "Write a model for other runtimes (ONNX).",
    "models": "What can be loaded, from where, how big, on what it was trained.",
    "bench": "How fast this machine counts: every engine, in one table.",
    "doctor": "Versions, device, decoders, weights: what works here.",
    "sample": "Draw the sample video with the project's own generator.",
    "weights": "Add and list public weights.",
    "data": "Check a dataset: what is there, what is missing, what is odd.",
    "encode": "Encode a dataset into a token store.",
    "train": "Train on a dataset, your own folder, or generated repetitions.",
    "evaluate": "Evaluate a run: all metrics with confidence intervals.",
    "table": "A table of the paper, ours beside the published numbers.",
    "figure": "A figure of the paper from a run's predictions.",
    "serve": "A local web page and REST service.",
}


class LazyGroup(click.Group):
    """Imports escounts.cli.<command> on demand, so that `escounts --help` does not load torch.

    Each module defines a click command (or group) called `command`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"escounts.cli.{cmd_name}")
        command: click.Command = module.command
        command.name = cmd_name  # the function's own is "command" in every module
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup)
@click.version_option(package_name="escounts")
def app() -> None:
    """escounts counts repetitions in videos: how many, when, and how sure."""


def main() -> None:
    """Entry point: a user's mistake is one line on stderr and exit code 2, never a traceback."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
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
