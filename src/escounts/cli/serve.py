"""`escounts serve`: the local web page and REST service."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import click

from escounts.cli.options import COUNT, Number, size
from escounts.errors import EscountsError
from escounts.serve.settings import Settings
from escounts.system.atomic_files import lock_folder
from escounts.system.extras import install_command
from escounts.system.sandbox import missing_protections

DAYS = Number(0, 36_500)
LIMIT = Number(1, 1e9)


def default_data() -> Path:
    """The user's own data folder."""
    base = os.environ.get("XDG_DATA_HOME")
    try:
        return Path(base or Path.home() / ".local" / "share") / "escounts"
    except RuntimeError as error:
        raise EscountsError("there is no home directory to keep uploads in; give a folder with --data") from error


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder for uploads, jobs and results.")
@click.option("--token", envvar="ESCOUNTS_TOKEN", help="Secret that clients must send; made up when needed.")
@click.option(
    "--token-file",
    envvar="ESCOUNTS_TOKEN_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line is the token; keeps it out of the list of processes.",
)
@click.option("--media-root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Offer its videos.")
@click.option("--model", default="default", show_default=True, help="See `escounts models`.")
@click.option("--device", multiple=True, help="One worker for each; default: every GPU, or the CPU.")
@click.option("--max-upload", type=size("64k"), default="2G", show_default=True, help="Largest upload.")
@click.option("--max-duration", type=LIMIT, default=14400.0, show_default=True, help="Seconds.")
@click.option("--max-queue", type=COUNT, default=200, show_default=True, help="Jobs that may wait.")
@click.option(
    "--max-body", type=size("64k"), default="16M", show_default=True, help="Largest request besides uploads."
)
@click.option("--max-connections", type=click.IntRange(8), default=256, show_default=True, help="Open at once.")
@click.option("--max-guesses", type=COUNT, default=10, show_default=True, help="Wrong tokens per minute.")
@click.option("--request-seconds", type=LIMIT, default=20.0, show_default=True, help="Silence within a request.")
@click.option("--keep-days", type=DAYS, default=7.0, show_default=True, help="0: keep uploads.")
@click.option("--trash-days", type=DAYS, default=3.0, show_default=True, help="Keep what was deleted.")
@click.option("--rebuild", is_flag=True, help="Make a damaged or lost database anew from the files, then serve.")
@click.option("--job-seconds", type=LIMIT, default=1800.0, show_default=True, help="Time for a job.")
@click.option("--max-live", type=COUNT, default=2, show_default=True, help="Live counts at once.")
@click.option("--live-seconds", type=Number(10, 1e9), default=1800.0, show_default=True, help="For a live count.")
@click.option("--worker-memory", type=size("256M"), default="6G", show_default=True, help="Memory for a job.")
@click.option("--sandbox/--no-sandbox", default=True, show_default=True,
              help="Confine the processes that open videos (Linux); see `escounts doctor`.")  # fmt: skip
def serve_command(
    host: str,
    port: int,
    data: Path | None,
    token: str | None,
    token_file: Path | None,
    media_root: Path | None,
    model: str,
    device: tuple[str, ...],
    rebuild: bool,
    **limits: Any,
) -> None:
    """Serve a page where a video is dropped, counted and corrected; the same address is a REST service."""
    settings = Settings(
        data=(data or default_data()).resolve(),
        host=host,
        port=port,
        token=chosen_token(token, token_file),
        media_root=media_root.resolve() if media_root else None,
        model=model,
        devices=tuple(dict.fromkeys(device)) or every_device(),
        **limits,  # under the names that they have in Settings
    )
    serve(settings, rebuild=rebuild)


def chosen_token(token: str | None, file: Path | None) -> str | None:
    """The token that was given, directly or by a file; None: none was."""
    if file is None:
        return token or None
    if token:
        raise click.UsageError("give --token or --token-file, not both")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EscountsError(f"{file}: the token cannot be read: {error}") from error
    if not lines or not lines[0].strip():
        raise EscountsError(f"{file}: its first line should be the token, and is empty")
    return lines[0].strip()


def every_device() -> tuple[str, ...]:
    """One name for each NVIDIA GPU when there are several; "auto" finds the one, or the CPU."""
    found = sorted(glob.glob("/dev/nvidia[0-9]*"))
    return tuple(f"cuda:{index}" for index in range(len(found))) if len(found) > 1 else ("auto",)


def serve(settings: Settings, *, rebuild: bool = False) -> None:
    """Listen, print the address, serve until Ctrl-C. rebuild: make the database anew first."""
    try:
        from escounts.serve import app, data_folder, security  # noqa: PLC0415 - the extra [serve]
    except ImportError as error:
        raise EscountsError(f"serve needs more packages ({error.name}): {install_command('serve')}") from error

    settings = dataclasses.replace(settings, model=settings.loadable(settings.model))
    if not settings.loopback and settings.token is None:
        settings = dataclasses.replace(settings, token=secrets.token_urlsafe(24))
    folder = data_folder.DataFolder(settings)
    try:
        folder.check(rebuild=rebuild)
        folder.prepare()
    except OSError as error:
        # a file, or a link to a disk that is not there
        named = (
            f"{error.filename} is there and is no folder" if isinstance(error, FileExistsError) else error.strerror
        )
        raise EscountsError(f"{settings.data} cannot be used as data folder: {named}") from error
    busy = EscountsError(f"{settings.data} is in use by another server; choose another --data")
    held = lock_folder(settings.data, busy)
    with contextlib.ExitStack() as stack:
        stack.callback(held.release)
        listening = listen(settings.host, settings.port)
        rebuilt = data_folder.rebuild(folder) if rebuild else None
        application = app.create_app(settings)
        click.echo(f"escounts is at {address(settings, listening)}")
        click.echo(f"data in {settings.data}; stop with Ctrl-C")
        if rebuilt is not None:
            click.echo(
                f"rebuilt the database: {rebuilt['videos']} videos ({rebuilt['nameless']} of them without their "
                f"name), {rebuilt['jobs']} counts, labels of {rebuilt['labels']}; the old one is in {settings.trash}",
                err=True,
            )
        for what, why in (missing_protections() if settings.sandbox else {}).items():
            click.echo(f"videos are opened without protection of {what}: {why}", err=True)
        say_unknown_files(application.state.service.unknown_files, settings.videos)
        with contextlib.suppress(KeyboardInterrupt):
            security.Server(application, settings).run(sockets=[listening])
        click.echo("stopped; what was running is taken up at the next start")


def say_unknown_files(names: list[str], folder: Path) -> None:
    """One line about files in the folder of uploads that the service does not know, and leaves alone."""
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        click.echo(f"{len(names)} unknown files in {folder} are left alone: {', '.join(names[:5])}{more}", err=True)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that the address is known before anything is printed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, UnicodeError) as error:
        listening.close()
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise EscountsError(f"cannot listen on {host} port {port}: {reason}; choose another --port") from error
    return listening


def address(settings: Settings, listening: socket.socket) -> str:
    """What to open in a browser; the token stays behind the # and so out of every log."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if settings.host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    fragment = f"#token={settings.token}" if settings.token else ""
    return f"http://{host}:{listening.getsockname()[1]}/{fragment}"
