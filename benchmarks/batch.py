"""`escounts batch` under everything that may go wrong: none lost, none twice, the same rows on Ray.

    python benchmarks/batch.py [--videos 1000] [--kills 5] [--engine local|ray] [--model spectral|lite]

Writes short videos (links to a few, so that they are made at once) with a damaged, a huge and an endless one among
them, and counts them. While it runs, counting processes are killed; the driver is killed so many times and started
again. Prints one table. With `--engine ray` on a cluster of a head and two workers of one core each, all on this
machine: killed are, by turns, an actor and a whole worker, which comes back after a while.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import psutil

from escounts.batching.rows import ResultFolder

LIMIT = 20.0
"""Seconds for one video; the endless one reaches it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5, help="of the driver; as many of counting processes")
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--model", default="spectral")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="escounts-batch-") as folder,
        Cluster() if options.engine == "ray" else nullcontext() as cluster,
    ):
        run(options, Path(folder), cluster)


def run(options: argparse.Namespace, folder: Path, cluster: Cluster | None) -> None:
    made = write_videos(folder / "videos", options.videos)
    out, ray = folder / "out", cluster.address if cluster else None
    ordered = command(folder / "videos", out, options.model, ray)
    dice = random.Random(options.kills)
    began = time.monotonic()
    drivers, killed, given_up, seen = 0, 0, 0, Written(out)
    wanted = [round((k + 1) * made / (options.kills + 1)) for k in range(options.kills)]
    while True:
        drivers += 1
        driver = subprocess.Popen(ordered, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stop_at = wanted[drivers - 1] if drivers <= len(wanted) else None
        struck = False
        while driver.poll() is None:
            time.sleep(0.05)
            done = seen.look()
            if not struck and done and dice.random() < 0.05:
                struck = bool(cluster.strike() if cluster else kill_a_counter(driver.pid))
                killed += struck
            if cluster:
                cluster.mend()
            if stop_at is not None and done >= stop_at:
                kill_all(driver.pid)
        if driver.returncode in (0, 1):  # all counted, or some rows are errors
            break
        given_up += driver.returncode > 0
        assert given_up < 5, " ".join(ordered)
    seconds = time.monotonic() - began
    rows = ResultFolder(str(out)).table().to_pylist()
    here = (
        subprocess.run(  # of the same videos, on this machine alone
            command(folder / "videos", folder / "here", options.model), capture_output=True, text=True
        )
        if cluster
        else None
    )
    again = subprocess.run(ordered, capture_output=True, text=True)
    same = ResultFolder(str(out)).table().to_pylist() == rows
    twice = sum(n - 1 for n in Counter(row["video"] for row in rows).values())
    status = Counter(row["status"] for row in rows)
    counts = Counter(row["count"] for row in rows if row["status"] == "counted")
    print(f"| videos | {made} |\n| engine | {options.engine}, `{options.model}` |")
    print(f"| drivers killed (-9) | {drivers - 1 - given_up} |\n| drivers that gave up | {given_up} |")
    what = dict(Counter(cluster.struck)) if cluster else f"{killed} counting processes"
    print(f"| killed besides (-9) | {what} |\n| rows | {len(rows)} ({dict(status)}) |")
    print(f"| lost | {made - len({row['video'] for row in rows})} |\n| twice | {twice} |")
    print(f"| rows that changed after they were first seen | {seen.changed(rows)} of {len(seen.rows)} |")
    print(f"| counts | {dict(counts)} |")
    print(f"| a further run changes nothing | {'yes' if same else 'no'} ({again.stdout.strip().splitlines()[-1:]}) |")
    if here is not None:
        local = ResultFolder(str(folder / "here")).table()
        same = local.drop_columns(["spent"]).equals(ResultFolder(str(out)).table().drop_columns(["spent"]))
        print(f"| equal to the rows of a local run | {'yes' if same else 'no'} |")
    print(f"| seconds | {seconds:.0f} |")
    for row in rows:
        if row["status"] == "error":
            print(f"  {row['error']}")


class Written:
    """Rows as they were when they were first seen on the disk."""

    def __init__(self, out: Path) -> None:
        self.folder = out / "rows"
        self.rows: dict[str, float] = {}

    def look(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            for path in self.folder.glob("*.json"):
                if path.stem not in self.rows:
                    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                        self.rows[path.stem] = json.loads(path.read_text())["spent"]
        return len(self.rows)

    def changed(self, rows: list[dict[str, object]]) -> int:
        """Of the rows that were seen, those that are missing or another one now."""
        now = {row["id"]: row["spent"] for row in rows}
        return sum(now.get(id_) != spent for id_, spent in self.rows.items())


def command(videos: Path, out: Path, model: str, ray: str | None = None) -> list[str]:
    text = [sys.executable, "-m", "escounts", "batch", str(videos), "--out", str(out), "--model", model]
    return [*text, "--jobs", "2", "--limit", str(LIMIT), *(["--ray", ray] if ray else [])]


def kill_a_counter(driver: int) -> int:
    """Kill one of the processes that count; 1 if there was one."""
    return _kill_one(driver, "multiprocessing.spawn")


def _kill_one(above: int, name: str) -> int:
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(above).children(recursive=True):
            if name in " ".join(child.cmdline()):
                child.kill()
                return 1
    return 0


class Cluster:
    """A Ray cluster on this machine: a head without cores, and two workers of one core each."""

    address = "127.0.0.1:6399"
    AWAY = 15.0
    """Seconds until a killed worker is there again."""

    def __init__(self) -> None:
        # Ray from 2.59 on asks for a token; all that this script starts inherits the one made here
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.struck: list[str] = []
        self._lost: dict[int, float] = {}
        port = self.address.split(":")[1]
        self._head = self._node("--head", "--port", port, "--num-cpus", "0", "--include-dashboard", "false")
        time.sleep(10)
        self._workers = [self._worker() for _ in range(2)]
        time.sleep(10)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        for node in (*self._workers, self._head):
            kill_all(node.pid)
            node.wait()

    def strike(self) -> int:
        """Kill an actor or, every second time, a worker with all that it runs; 1 if there was one."""
        if len(self.struck) % 2:
            kill_all(self._workers[0].pid)
            self._lost[0] = time.monotonic()
            self.struck.append("worker")
            return 1
        done = any(_kill_one(worker.pid, "ray::MapWorker") for worker in self._workers)
        self.struck += ["actor"] * done
        return int(done)

    def mend(self) -> None:
        """Start a worker again that was lost a while ago."""
        for index, since in list(self._lost.items()):
            if time.monotonic() - since > self.AWAY:
                del self._lost[index]
                self._workers[index].wait()
                self._workers[index] = self._worker()

    def _worker(self) -> subprocess.Popen[bytes]:
        return self._node("--address", self.address, "--num-cpus", "1")

    def _node(self, *options: str) -> subprocess.Popen[bytes]:
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        local = ["--node-ip-address", "127.0.0.1", "--object-store-memory", "200000000"]
        quiet = subprocess.DEVNULL
        return subprocess.Popen([*start, *local, *options], stdout=quiet, stderr=quiet)


def kill_all(driver: int) -> None:
    """The driver and, as a machine that goes down would, all that it started."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(driver).children(recursive=True)
        psutil.Process(driver).kill()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()


def write_videos(folder: Path, number: int) -> int:
    """So many short videos, three of them out of order; how many there are."""
    folder.mkdir(parents=True)
    store = folder.parent / "made"
    store.mkdir()
    for kind in range(4):
        write_bounces(store / f"{kind}.mp4", 3 + kind)
    for index in range(number - 3):
        os.link(store / f"{index % 4}.mp4", folder / f"{index:05}.mp4")
    (folder / "damaged.mp4").write_bytes((store / "0.mp4").read_bytes()[:700])
    write_bounces(folder / "huge.mp4", 4, size=(7680, 4320), frames=6)
    write_endless(folder / "endless.mp4")
    return number


def write_bounces(path: Path, repetitions: int, *, size: tuple[int, int] = (64, 48), frames: int = 90) -> None:
    width, height = size
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for index in range(frames):
            image = np.full((height, width, 3), 60, np.uint8)
            top = round((height - 14) * (0.5 - 0.5 * np.cos(2 * np.pi * repetitions * index / frames)))
            image[top : top + 12, 20:40] = 230
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def write_endless(path: Path, *, seconds: int = 10_000) -> None:
    """The same second over and over: more than can be counted within the limit."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast", "bf": "0", "g": "30"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        packets = []
        for index in range(30):
            image = np.full((48, 64, 3), 60 + 4 * index, np.uint8)
            packets += stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24"))
        packets += stream.encode()
        second = [(bytes(packet), packet.is_keyframe) for packet in packets]
        for number, (data, key) in enumerate(second * seconds):
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 30), key
            packet.pts = packet.dts = number
            container.mux(packet)


if __name__ == "__main__":
    main()
