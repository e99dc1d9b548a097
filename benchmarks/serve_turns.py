"""The service against that of another checkout, by turns in one run: what else is busy on the machine slows both.

    python benchmarks/serve_turns.py --against CHECKOUT/src [--clients 20] [--recounts 20] [--rounds 2]

Both services run at once as the real command. Recounts with an exemplar of one video alternate between them, request
by request; then all clients count at one service and at the other, round by round. Prints and writes a table;
processor time is that of server and worker together.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
from footage import looped, segment
from serve import HEADERS, Server, clip, counted, measure_load, send

RESULTS = Path(__file__).parent / "results" / "serve_turns.md"
NOW, BEFORE = "now", "before"


def recounts(servers: Mapping[str, Server], minute: Path, number: int) -> dict[str, tuple[float, float, float]]:
    """Median seconds from request to answer, median inside the worker, processor seconds of one recount."""
    clients = {name: httpx.Client(base_url=s.address, headers=HEADERS, timeout=600) for name, s in servers.items()}
    videos = {name: send(client, minute) for name, client in clients.items()}
    for name, client in clients.items():
        assert counted(client, videos[name])["state"] == "done"
        counted(client, videos[name], exemplars=[{"start": 1.0, "end": 3.0}])  # a first exemplar may read once more
    began = {name: server.processor_seconds() for name, server in servers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    inside: dict[str, list[float]] = {name: [] for name in servers}
    for index in range(number):
        start = 2.0 + index % 25 * 2
        for name in (NOW, BEFORE) if index % 2 else (BEFORE, NOW):
            asked = time.perf_counter()
            job = counted(clients[name], videos[name], exemplars=[{"start": start, "end": start + 2.0}])
            seconds[name].append(time.perf_counter() - asked)
            inside[name].append(job["result"]["timings"]["job"])
    used = {name: (servers[name].processor_seconds() - began[name]) / number for name in servers}
    return {name: (statistics.median(seconds[name]), statistics.median(inside[name]), used[name]) for name in servers}


def loads(
    servers: Mapping[str, Server], clips: dict[Path, int], rounds: int
) -> dict[str, list[tuple[float, float, float]]]:
    """For each round: seconds until all are counted, the page's median answer, processor seconds."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
    for turn in range(rounds):
        for name in (NOW, BEFORE) if turn % 2 else (BEFORE, NOW):
            began = servers[name].processor_seconds()
            load = measure_load(servers[name], clips)
            assert load.counted == load.clients, "a client was left without its count"
            found[name].append((load.wall, load.page_median, servers[name].processor_seconds() - began))
    return found


def table(told: dict[str, tuple[float, float, float]], load: dict[str, list[tuple[float, float, float]]]) -> str:
    """Both services side by side."""
    rows = [
        ("recount with an exemplar, median, ms", [f"{told[name][0] * 1000:.0f}" for name in (BEFORE, NOW)]),
        ("of that inside the worker, ms", [f"{told[name][1] * 1000:.0f}" for name in (BEFORE, NOW)]),
        ("processor time of a recount, ms", [f"{told[name][2] * 1000:.0f}" for name in (BEFORE, NOW)]),
    ]
    for place, what in enumerate(
        ("all clients counted after, s", "the page meanwhile, median, ms", "processor time, s")
    ):
        scale = 1000 if place == 1 else 1
        cells = [", ".join(f"{row[place] * scale:.1f}" for row in load[name]) for name in (BEFORE, NOW)]
        rows.append((f"{what} (each round)", cells))
    body = "\n".join(f"| {what} | {' | '.join(cells)} |" for what, cells in rows)
    return f"| | before | now |\n|---|---|---|\n{body}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True, help="the src folder of the other checkout")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--recounts", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / "escounts-benchmarks"
    folder.mkdir(exist_ok=True)
    minute = looped(segment(folder / "segment.mp4"), folder / "minute.mp4", 6)
    here = Path(__file__).resolve().parents[1] / "src"
    with tempfile.TemporaryDirectory() as place:
        clips = {clip(Path(place) / f"client{n}.mp4", n + 4, 6 + n * 0.7): n + 4 for n in range(options.clients)}
        servers: dict[str, Server] = {}
        try:
            for name, source in ((BEFORE, options.against.resolve()), (NOW, here)):
                servers[name] = Server(Path(place) / name, "lite", source=source)
            told = recounts(servers, minute, options.recounts)
            load = loads(servers, clips, options.rounds)
        finally:
            for server in servers.values():
                server.stop()
    shown = table(told, load)
    print(shown)
    RESULTS.write_text(
        f"## The service against an earlier one, by turns\n\n{os.cpu_count()} cores, model `lite`, "
        f"{options.recounts} recounts, {options.clients} clients; `python benchmarks/serve_turns.py`.\n\n{shown}"
    )


if __name__ == "__main__":
    main()
