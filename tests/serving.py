"""A running service for the tests of the API and of the page: in this process, or as the real command."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from warm_processes import warm_processes

from escounts.serve.app import Service, create_app
from escounts.serve.schemas import Video
from escounts.serve.security import Server
from escounts.serve.settings import Settings

GUARD = {"X-Escounts": "1"}
PATIENCE = 180.0
"""Seconds for whatever is waited for: only a hang takes so long, however busy the machine is."""
REQUEST: dict[str, Any] = {"exemplars": [], "start": None, "end": None, "assume_repeats": False}
"""What was asked for of a job, as the first version kept it."""
get = functools.partial(httpx.get, timeout=PATIENCE)
post = functools.partial(httpx.post, timeout=PATIENCE)


def eventually(check: Callable[[], Any], seconds: float = PATIENCE, step: float = 0.03) -> Any:
    """The first true value of check, asked again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(step)
    raise AssertionError(f"not within {seconds} s")


def uploaded(video: str, *, name: str | None = None, size: int = 7, **options: Any) -> Video:
    """The row of an upload."""
    file = f"{video}.mp4"
    return Video(id=video, name=name or file, source="upload", file=file, size=size, **{"created": 1.0, **options})


class Client(httpx.Client):
    """Requests as the page makes them."""

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(base_url=address, headers=GUARD, timeout=PATIENCE, **options)

    def send_video(self, path: Path, name: str | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "video/mp4"}
        response = self.post(
            "/api/videos", params={"name": name or path.name}, content=path.read_bytes(), headers=headers
        )
        assert response.status_code == 201, response.text
        return dict(response.json())

    def start_count(self, video: str, **options: Any) -> dict[str, Any]:
        response = self.post("/api/jobs", json={"video": video, **options})
        assert response.status_code in (200, 202), response.text
        return dict(response.json())

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.get(f"/api/jobs/{job_id}").json())

    def ended(self, job_id: str, seconds: float = PATIENCE) -> dict[str, Any]:
        def check() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["state"] in ("done", "failed", "cancelled") else None

        return dict(eventually(check, seconds))

    def worker_pid(self) -> int:
        """The process id of the one worker, once it is ready."""

        def check() -> int:
            workers = self.get("/healthz").json()["workers"]
            return int(workers[0]["pid"]) if workers and workers[0]["ready"] else 0

        return int(eventually(check))


@contextlib.contextmanager
def service_running(data: Path, **options: Any) -> Iterator[tuple[str, Service]]:
    """The application in a thread of this process; yields its address and its insides."""
    settings = Settings(data=data, **{"model": "spectral", "devices": ("cpu",), "worker_threads": 1, **options})
    with warm_processes():  # the pool of workers keeps what it is given here
        app = create_app(settings)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = Server(app, settings, patience=1)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    try:
        with warm_processes():
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", app.state.service
    finally:
        app.state.service.hub.close()
        app.state.service.live.stop()
        server.should_exit = True
        thread.join(20)
        listening.close()


class Command:
    """`escounts serve` as a process of its own, which can be killed."""

    def __init__(self, data: Path, *options: str) -> None:
        arguments = ["serve", "--port", "0", "--data", str(data), "--model", "spectral", "--device", "cpu", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from escounts.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise AssertionError(f"did not start: {line} {self.process.communicate()[1]}")
        self.address = line.split()[-1]
        eventually(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return get(self.address.split("#")[0] + "healthz").status_code == 200
        return False

    def kill(self) -> None:
        """As `kill -9` does: nothing is said goodbye to."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._close()

    def interrupt(self) -> tuple[int, str]:
        """As Ctrl-C does; the exit code and what was printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out + err

    def _close(self) -> None:
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
