"""One running service and a few small videos, shared by the tests of the API."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs escounts[serve]")

from movies import bouncing, write_movie
from serving import Client, service_running

from escounts.serve.app import Service


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Videos of a bouncing block: repetitions → file."""
    folder = tmp_path_factory.mktemp("clips")
    return {n: write_movie(folder / f"bounce{n}.mp4", bouncing(n, n * 0.8)) for n in (5, 7, 9)}


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, clips: dict[int, Path]) -> Iterator[tuple[str, Service]]:
    """A service with a media root that also holds things nobody may have."""
    base = tmp_path_factory.mktemp("service")
    media = base / "media"
    (media / "sub").mkdir(parents=True)
    (media / "sub" / "seven.mp4").write_bytes(clips[7].read_bytes())
    (media / "notes.txt").write_text("private")
    secret = base / "secret.mp4"
    secret.write_bytes(clips[5].read_bytes())
    (media / "link.mp4").symlink_to(secret)
    (media / "circle.mp4").symlink_to("circle.mp4")
    os.mkfifo(media / "pipe.mp4")
    with service_running(base / "data", media_root=media) as (address, service):
        Client(address).worker_pid()
        yield address, service


@pytest.fixture()
def client(running: tuple[str, Service]) -> Iterator[Client]:
    with Client(running[0]) as client:
        yield client


@pytest.fixture()
def service(running: tuple[str, Service]) -> Service:
    return running[1]


@pytest.fixture()
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
