"""What a service survives: a crowd, silent and slow clients, dropped streams, forgery, bombs, kills: one table.

    python benchmarks/serve_attacks.py [--model spectral] [--idle 300] [--kills 10] [--out FILE]

The service runs as the real command, on loopback. While each attack lasts (and after it) an honest client uploads and
counts a video of its own; the attack is survived when every honest count is right, the service answers, and its log
has no traceback. Every attack is bounded in requests and in time.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
from report import RESULTS, arguments, markdown, replace_section, write_json
from serve import HEADERS, Prober, Server, clip, counted, send

import escounts

LONGEST = 600.0
"""Seconds after which a count that has not ended is called lost."""


@dataclass(frozen=True)
class Survival:
    """What became of one attack. honest: counts asked for meanwhile and after it; lost: those that went wrong.

    slowest: seconds an honest answer of /healthz took at most. server_mb: peak resident memory of the server.
    """

    attack: str
    cases: int
    answers: dict[str, int]
    honest: int
    lost: int
    slowest: float
    server_mb: float
    seconds: float
    tracebacks: int


def connect(server: Server) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def status_of(connection: socket.socket) -> str:
    """The status a raw connection is answered with; "closed" when it is closed without one."""
    try:
        words = connection.recv(64).split()
    except OSError:
        return "closed"
    return words[1].decode() if len(words) > 1 else "closed"


def idle(server: Server, number: int) -> Iterator[str]:
    """Connections that never ask for anything."""
    held = [connect(server) for _ in range(number)]
    time.sleep(5)
    for connection in held:
        yield status_of(connection)
        connection.close()


@contextlib.contextmanager
def held_open(server: Server, number: int) -> Iterator[None]:
    """So many connections that ask for nothing, each opened anew when the server has closed it."""
    over = threading.Event()

    def hold() -> None:
        held = [connect(server) for _ in range(number)]
        while not over.wait(1.0):
            closed = [each for each in held if select.select([each], [], [], 0)[0]]  # an answer, or the end
            held = [each for each in held if each not in closed] + [connect(server) for _ in closed]
            for each in closed:
                each.close()
        for each in held:
            each.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def slow_uploads(server: Server, number: int) -> Iterator[str]:
    """Uploads that send a few bytes and then hardly any more."""
    head = b"POST /api/videos HTTP/1.1\r\nHost: localhost\r\nX-Escounts: 1\r\nContent-Type: video/mp4\r\n"
    held = [connect(server) for _ in range(number)]
    for connection in held:
        connection.sendall(head + b"Content-Length: 100000000\r\n\r\n" + b"x" * 100)
    for _ in range(3):
        time.sleep(1)
        for connection in held:
            with contextlib.suppress(OSError):
                connection.sendall(b"x")
    for connection in held:
        yield status_of(connection)
        connection.close()


def dropped_streams(server: Server, number: int) -> Iterator[str]:
    """Event streams, and uploads, that are opened and dropped."""
    ask = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    begin = b"POST /api/videos HTTP/1.1\r\nHost: localhost\r\nX-Escounts: 1\r\nContent-Type: video/mp4\r\n"
    for index in range(number):
        with connect(server) as connection:
            stream = index % 2 == 0
            connection.sendall(ask if stream else begin + b"Content-Length: 9000\r\n\r\n" + b"x" * 500)
            yield status_of(connection) if stream else "dropped"


def large_bodies(server: Server, number: int) -> Iterator[str]:
    """JSON of 300 MB, stated or in chunks, nested, and as garbage."""
    for index in range(number):
        path = ("/api/session", "/api/jobs", "/api/media")[index % 3]
        body = (b"[" * 1_000_000 for _ in range(300)) if index % 2 else b"[" * 200_000
        try:
            answer = httpx.post(
                f"{server.address}{path}",
                content=body,
                headers={**HEADERS, "Content-Type": "application/json"},
                timeout=60,
            )
            yield str(answer.status_code)
        except httpx.HTTPError:
            yield "closed"


HOSTILE = (
    b"GET /../../../../etc/passwd HTTP/1.1",
    b"GET /%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
    b"GET /static/..%2f..%2f..%2fescounts.sqlite HTTP/1.1",
    b"GET /api/videos/..%2f..%2fescounts.sqlite HTTP/1.1",
    b"GET /api/videos/'%20OR%201=1-- HTTP/1.1",
    b"GET /" + b"a" * 60_000 + b" HTTP/1.1",
    b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 60_000,
    b"GET / HTTP/9.9",
    b"BREW /api/videos HTTP/1.1",
    b"DELETE /api/videos/0 HTTP/1.1",  # without the header that only a page of ours sends
    b"POST /api/jobs HTTP/1.1\r\nX-Escounts: 1\r\nOrigin: http://elsewhere.example\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /api/jobs HTTP/1.1\r\nX-Escounts: 1\r\nContent-Length: -1",
    b"POST /api/jobs HTTP/1.1\r\nX-Escounts: 1\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    b"POST /api/jobs HTTP/1.1\r\nX-Escounts: 1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0",
    b'POST /api/jobs HTTP/1.1\r\nX-Escounts: 1\r\nContent-Length: 24\r\n\r\n{"video": {"$ne": null}}',
    b'POST /api/jobs HTTP/1.1\r\nX-Escounts: 1\r\nContent-Length: 27\r\n\r\n{"video": "../../../passwd"}',
    b'POST /api/media HTTP/1.1\r\nX-Escounts: 1\r\nContent-Length: 29\r\n\r\n{"path": "../../etc/passwd  "}',
    b"GET /api/events HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
    b"GET /\x00\xff\xfe HTTP/1.1",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # what TLS begins with
)


def hostile_requests(server: Server, number: int) -> Iterator[str]:
    """Paths that leave the folder, forged headers, bodies of the wrong kind, other protocols. A file that is given
    out is "leaked"."""
    for index in range(number):
        line, _, rest = HOSTILE[index % len(HOSTILE)].partition(b"\r\n")
        host = b"evil.example" if index % 3 == 2 else b"localhost"
        head = line + b"\r\nHost: " + host + b"\r\nConnection: close\r\n"
        with connect(server) as connection:
            try:
                connection.sendall(head + rest + b"\r\n\r\n")
                answer = connection.recv(65536)
            except OSError:
                answer = b""
        words = answer.split(maxsplit=2)
        leaked = b"root:" in answer or b"SQLite format" in answer
        yield "leaked" if leaked else words[1].decode(errors="replace") if len(words) > 1 else "closed"


def video_bombs(server: Server, folder: Path) -> Iterator[str]:
    """Small files that claim to be long or large."""
    with httpx.Client(base_url=server.address, headers=HEADERS, timeout=LONGEST) as client:
        for path in bombs(folder):
            video = send(client, path)
            job = counted(client, video)
            yield str(job["state"])
            yield f"preview {client.get(f'/api/videos/{video}/preview').status_code}"


def bombs(folder: Path) -> list[Path]:
    """A clock with gaps, ten hours of one picture, a huge picture, a playlist, half a file, nothing but zeros."""
    black = np.zeros((64, 64, 3), np.uint8)
    gaps = _movie(folder / "gaps.mkv", [(0, black), (1, black), *((n * 500, black) for n in range(1, 40))])
    hours = _movie(folder / "hours.mkv", [(0, black), (1, black), (36_000, black)])
    large = _movie(folder / "large.mp4", [(n, np.zeros((4320, 8192, 3), np.uint8)) for n in range(2)])
    playlist = folder / "list.mp4"
    playlist.write_text("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")
    half = folder / "half.mp4"
    half.write_bytes(large.read_bytes()[: large.stat().st_size // 2])
    zeros = folder / "zeros.mp4"
    zeros.write_bytes(bytes(1_000_000))
    return [gaps, hours, large, playlist, half, zeros]


def _movie(path: Path, frames: list[tuple[int, Any]]) -> Path:
    """Pictures at whole seconds."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=1, options={"preset": "ultrafast"})
        stream.height, stream.width = frames[0][1].shape[:2]
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, 1)
        for second, image in frames:
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = second, Fraction(1, 1)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


class Storm:
    """Runs attacks against one server and watches what becomes of honest clients."""

    def __init__(self, place: Path, model: str, clips: dict[Path, int]) -> None:
        self.place = place
        self.model = model
        self.clips = clips
        self.log = place / "log.txt"
        self.server = self.start()

    def start(self) -> Server:
        return Server(self.place / "data", self.model, log=self.log)

    def run(self, name: str, attack: Callable[[], Iterator[str]]) -> Survival:
        watcher = Prober(lambda: self.server, ["/healthz"])
        watcher.start()
        before = self.tracebacks()
        began = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            honest = [pool.submit(self.honest, path) for path in list(self.clips)[:6]]
            answers: dict[str, int] = {}
            for answer in attack():
                answers[answer] = answers.get(answer, 0) + 1
            right = [future.result() for future in honest]
        right += [self.honest(path) for path in list(self.clips)[6:8]]
        seconds = time.perf_counter() - began
        watcher.stop()
        return Survival(
            attack=name,
            cases=sum(answers.values()),
            answers=answers,
            honest=len(right),
            lost=right.count(False),
            slowest=max(watcher.seconds),
            server_mb=watcher.peak[0],
            seconds=seconds,
            tracebacks=self.tracebacks() - before,
        )

    def honest(self, path: Path) -> bool:
        """One client's upload and count. One that is cut off comes back, and asks for what it was promised."""
        deadline = time.monotonic() + LONGEST
        video = job = ""
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(httpx.HTTPError),
                httpx.Client(base_url=self.server.address, headers=HEADERS, timeout=60) as client,
            ):
                video = video or send(client, path)
                job = job or str(client.post("/api/jobs", json={"video": video}).raise_for_status().json()["id"])
                now = client.get(f"/api/jobs/{job}").raise_for_status().json()
                if now["state"] not in ("queued", "running"):
                    return bool(now["state"] == "done" and now["count"] == self.clips[path])
            time.sleep(0.3)
        return False

    def crowd(self) -> Iterator[str]:
        """Twenty clients at once."""
        with ThreadPoolExecutor(20) as pool:
            for right in pool.map(self.honest, self.clips):
                yield "right" if right else "wrong"

    def crowd_beside(self, number: int) -> Iterator[str]:
        """Twenty clients at once beside so many connections that ask for nothing."""
        with held_open(self.server, number):
            yield from self.crowd()

    def kills(self, number: int) -> Iterator[str]:
        """kill -9 of the server, and a start, at random moments."""
        dice = random.Random(16)
        for _ in range(number):
            time.sleep(dice.uniform(0.2, 1.5))
            self.server.process.send_signal(signal.SIGKILL)
            self.server.process.wait(30)
            self.server = self.start()
            yield "started"

    def tracebacks(self) -> int:
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")


def table(model: str, survivals: list[Survival]) -> str:
    about = (
        f"{os.cpu_count()} cores ({platform.machine()}), model `{model}`, {time.strftime('%Y-%m-%d')}; "
        "`python benchmarks/serve_attacks.py`. Honest: counts that other clients asked for meanwhile and after it."
    )
    rows = []
    for one in survivals:
        answers = ", ".join(f"{name} × {number}" for name, number in sorted(one.answers.items()))
        cost = (f"{one.slowest:.1f} s", f"{one.server_mb:.0f} MB", f"{one.seconds:.0f} s")
        rows.append([one.attack, one.cases, answers, f"{one.honest} / {one.lost}", *cost, one.tracebacks])
    headers = (
        "attack",
        "cases",
        "answers",
        "honest / lost",
        "slowest answer",
        "server's memory",
        "took",
        "tracebacks",
    )
    return f"## The service under attack\n\n{about}\n\n{markdown(headers, rows)}"


def main() -> None:
    parser = arguments(__doc__, model="spectral")  # what is attacked is the service
    parser.add_argument("--idle", type=int, default=300)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--out", type=Path, help="JSON file of the figures; the docs are then left as they are.")
    options = parser.parse_args()
    counter = escounts.load(options.model, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = [clip(place / f"client{n}.mp4", n + 4, 6 + n * 0.7) for n in range(20)]
        storm = Storm(place, options.model, {path: counter.count(path).count for path in paths})
        try:
            attacks: dict[str, Callable[[], Iterator[str]]] = {
                "20 clients counting": storm.crowd,
                f"20 clients counting beside {options.idle} idle": lambda: storm.crowd_beside(options.idle),
                f"{options.idle} idle connections": lambda: idle(storm.server, options.idle),
                "60 slow uploads": lambda: slow_uploads(storm.server, 60),
                "200 dropped streams": lambda: dropped_streams(storm.server, 200),
                "12 large JSON bodies": lambda: large_bodies(storm.server, 12),
                "200 hostile requests": lambda: hostile_requests(storm.server, 200),
                "6 bombs, counted and previewed": lambda: video_bombs(storm.server, place),
                f"{options.kills} kills and starts": lambda: storm.kills(options.kills),
            }
            survivals = []
            for name, attack in attacks.items():
                survivals.append(storm.run(name, attack))
                print(survivals[-1], flush=True)
        finally:
            storm.server.stop()
    text = table(counter.model.name, survivals)
    print(text)
    if options.out is None:
        replace_section("serve_attacks", text)
    write_json(options.out or RESULTS / "serve_attacks.json", [asdict(one) for one in survivals])
    if any(one.lost or one.tracebacks or {"500", "leaked"} & one.answers.keys() for one in survivals):
        raise SystemExit("something was lost or given away, or was a traceback")


if __name__ == "__main__":
    main()
