"""Twenty clients at once, and recounts of a one-minute video. Writes a table and JSON to benchmarks/results/.

    python benchmarks/serve.py [--clients 20] [--recounts 30] [--model default]

The service runs as the real command. Every client uploads a video of its own and waits for its count, which is
compared with what the library counts in the same file; another thread opens the page and lists the videos all
the while. Percentiles are of all its requests.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from footage import minute
from report import RESULTS, arguments, markdown, replace_section, write_json

import escounts
from escounts.output.mp4 import write_movie
from escounts.system.arrays import Image

RATE, WIDTH, HEIGHT = 25, 320, 240
HEADERS = {"X-Escounts": "1"}
MEGABYTE = 2**20


@dataclass(frozen=True)
class Load:
    """What happened while all clients counted. Times in seconds, memory in MB (server, worker)."""

    clients: int
    counted: int
    right: int
    wall: float
    page_median: float
    page_p95: float
    page_requests: int
    server_mb: float
    worker_mb: float


@dataclass(frozen=True)
class Recounts:
    """Recounts with an exemplar of a one-minute 720p video: seconds from request to answer."""

    number: int
    first_count: float
    median: float
    p95: float
    in_worker: float


def clip(path: Path, repetitions: int, seconds: float) -> Path:
    """A block that goes up and down; every clip has its own count, colour and length."""
    rng = np.random.default_rng(repetitions)
    wall = np.kron(rng.integers(40, 110, (HEIGHT // 8, WIDTH // 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    colour = rng.integers(120, 255, 3)

    def picture(phase: float) -> Image:
        shown = wall.copy()
        top = int((HEIGHT - 90) * (0.5 + 0.5 * np.cos(2 * np.pi * phase))) + 5
        shown[top : top + 80, 120:200] = colour
        return shown

    pictures = (picture(repetitions * index / (seconds * RATE)) for index in range(round(seconds * RATE)))
    options = {"preset": "ultrafast", "crf": "24"}
    write_movie(path, pictures, size=(WIDTH, HEIGHT), rate=Fraction(RATE), options=options)
    return path


class Server:
    """`escounts serve` on a free port, with its memory watched. log: a file for its complaints."""

    def __init__(self, data: Path, model: str, *, log: Path | None = None) -> None:
        command = [sys.executable, "-c", "from escounts.cli import main; main()", "serve", "--port", "0"]
        with open(log or os.devnull, "a") as complaints:
            self.process = subprocess.Popen(
                [*command, "--data", str(data), "--model", model, "--device", "cpu"],
                stdout=subprocess.PIPE,
                stderr=None if log is None else complaints,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1].rstrip("/")
        while not self._ready():
            time.sleep(0.2)

    def _ready(self) -> bool:
        try:
            return bool(httpx.get(f"{self.address}/healthz").json()["status"] == "ok")
        except httpx.HTTPError:
            return False

    def memory(self) -> tuple[float, float]:
        """Resident MB of the server and of its worker."""
        server = psutil.Process(self.process.pid)
        children = server.children(recursive=True)
        return server.memory_info().rss / MEGABYTE, sum(child.memory_info().rss for child in children) / MEGABYTE

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


class Prober(threading.Thread):
    """Asks for some paths until told to stop; keeps every answer's time and the peak memory. server: the one that is
    there now, since an attack may kill it."""

    def __init__(self, server: Callable[[], Server], paths: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.server, self.paths = server, paths
        self.seconds: list[float] = []
        self.peak = (0.0, 0.0)
        self.done = threading.Event()

    def run(self) -> None:
        with httpx.Client(headers=HEADERS, timeout=60) as client:
            while not self.done.wait(0.05):
                for path in self.paths:
                    began = time.perf_counter()
                    with contextlib.suppress(httpx.HTTPError):
                        client.get(f"{self.server().address}{path}").raise_for_status()
                    self.seconds.append(time.perf_counter() - began)
                with contextlib.suppress(psutil.Error):  # between a kill and the next start there is no process
                    server, worker = self.server().memory()
                    self.peak = max(self.peak[0], server), max(self.peak[1], worker)

    def stop(self) -> None:
        self.done.set()
        self.join(70)


def send(client: httpx.Client, path: Path) -> str:
    answer = client.post(
        "/api/videos",
        params={"name": path.name},
        content=path.read_bytes(),
        headers={"Content-Type": "video/mp4"},
    )
    answer.raise_for_status()
    return str(answer.json()["id"])


def counted(client: httpx.Client, video: str, **options: Any) -> dict[str, Any]:
    """Ask for a count and wait for its end."""
    job = client.post("/api/jobs", json={"video": video, "wait": 30, **options}).raise_for_status().json()
    while job["state"] in ("queued", "running"):
        time.sleep(0.2)
        job = client.get(f"/api/jobs/{job['id']}").raise_for_status().json()
    return dict(job)


def one_client(address: str, path: Path) -> dict[str, Any]:
    with httpx.Client(base_url=address, headers=HEADERS, timeout=600) as client:
        return counted(client, send(client, path))


def measure_load(server: Server, clips: dict[Path, int]) -> Load:
    """All clients at once."""
    prober = Prober(lambda: server, ("/", "/js/app.js", "/api/videos"))
    prober.start()
    began = time.perf_counter()
    with ThreadPoolExecutor(len(clips)) as pool:
        jobs = dict(zip(clips, pool.map(lambda path: one_client(server.address, path), clips), strict=True))
    wall = time.perf_counter() - began
    prober.stop()
    done = [path for path, job in jobs.items() if job["state"] == "done"]
    right = [p for p in done if (jobs[p]["result"]["video"], jobs[p]["count"]) == (p.name, clips[p])]
    page = sorted(prober.seconds)
    return Load(
        clients=len(clips),
        counted=len(done),
        right=len(right),
        wall=wall,
        page_median=statistics.median(page),
        page_p95=page[int(0.95 * (len(page) - 1))],
        page_requests=len(page),
        server_mb=prober.peak[0],
        worker_mb=prober.peak[1],
    )


def measure_recounts(server: Server, video: Path, number: int) -> Recounts:
    """One first count, then recounts, each with another exemplar."""
    with httpx.Client(base_url=server.address, headers=HEADERS, timeout=600) as client:
        sent = send(client, video)
        began = time.perf_counter()
        assert counted(client, sent)["state"] == "done"
        first = time.perf_counter() - began
        seconds, inside = [], []
        for index in range(number):
            start = 2.0 + index % 25 * 2
            began = time.perf_counter()
            job = counted(client, sent, exemplars=[{"start": start, "end": start + 2.0}])
            seconds.append(time.perf_counter() - began)
            assert job["state"] == "done", job["error"]
            inside.append(job["result"]["timings"]["job"])
    ordered = sorted(seconds)
    return Recounts(
        number=number,
        first_count=first,
        median=statistics.median(seconds),
        p95=ordered[int(0.95 * (number - 1))],
        in_worker=statistics.median(inside),
    )


def table(model: str, load: Load, recounts: Recounts) -> str:
    about = (
        f"{os.cpu_count()} cores ({platform.machine()}), model `{model}`, one worker; `python benchmarks/serve.py`."
    )
    page, again = (f"{1000 * a:.0f} / {1000 * b:.0f} ms" for a, b in (
        (load.page_median, load.page_p95), (recounts.median, recounts.p95)))  # fmt: skip
    rows = [
        ("clients that upload and count at once", load.clients),
        ("counted / with the right count of the right video", f"{load.counted} / {load.right}"),
        ("all done after", f"{load.wall:.1f} s"),
        (f"the page meanwhile, {load.page_requests} requests: median / 95th percentile", page),
        ("peak memory: server / worker", f"{load.server_mb:.0f} / {load.worker_mb:.0f} MB"),
        ("first count of a minute of 720p30", f"{recounts.first_count:.1f} s"),
        (f"recount with an exemplar, {recounts.number} times: median / 95th percentile", again),
        ("of that inside the worker, median", f"{1000 * recounts.in_worker:.0f} ms"),
    ]
    return f"## The service\n\n{about}\n\n{markdown(('', ''), rows)}"


def main() -> None:
    parser = arguments(__doc__, model="default")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--recounts", type=int, default=30)
    options = parser.parse_args()
    counter = escounts.load(options.model, device="cpu")
    with tempfile.TemporaryDirectory() as place:
        paths = [clip(Path(place) / f"client{n}.mp4", n + 4, 6 + n * 0.7) for n in range(options.clients)]
        clips = {path: counter.count(path).count for path in paths}
        server = Server(Path(place) / "data", options.model)
        try:
            load = measure_load(server, clips)
            recounts = measure_recounts(server, minute(), options.recounts)
        finally:
            server.stop()
    text = table(counter.model.name, load, recounts)
    print(text)
    replace_section("serve", text)
    figures = {"model": counter.model.name, "load": asdict(load), "recounts": asdict(recounts)}
    write_json(RESULTS / "serve.json", figures)
    if load.right != load.clients:
        sys.exit("something was lost or mixed up")


if __name__ == "__main__":
    main()
