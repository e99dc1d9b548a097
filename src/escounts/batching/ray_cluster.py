"""A batch on a Ray cluster: rows of addresses through Ray Data, decoded and counted inside a pool of actors.

An actor holds one CountingProcess, so that what a video does (hang, exhaust memory, crash a decoder) ends in an error
row and not in the actor: Ray does not retry an actor's exceptions, and retries a dying actor for ever. Each row is
written by the actor that has it; a killed driver loses none, and a block that Ray runs again skips what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ray
import ray.data

from escounts.batching.rows import ResultFolder
from escounts.batching.tasks import CountingProcess, Row, Settings, Task
from escounts.errors import EscountsError

BLOCK = 8
"""Videos that an actor takes at a time: so many are looked up again where it is lost."""


class RayCounter:
    """The actor: a row with an id and a video in, the same with a status out."""

    def __init__(self, settings: Settings, out: str, threads: int) -> None:
        self._folder = ResultFolder(out)
        self._process = CountingProcess(settings, threads=threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if not self._folder.has(row["id"]):
            counted = self._process.count(Task(row["id"], row["video"]))
            self._folder.write(counted)
            return {**row, "status": counted["status"]}
        return {**row, "status": "written before"}


def ray_rows(tasks: Sequence[Task], settings: Settings, out: str, *, jobs: int | None, address: str) -> Iterator[Row]:
    """Rows (id, video, status) as they are written. jobs: actors, one for two cores of the cluster when None."""
    if not ray.is_initialized():
        try:
            ray.init(address=None if address == "local" else address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise EscountsError(
                f"the Ray cluster {address!r} cannot be used: {reason}; `local` starts one on this machine"
            ) from error
    if not tasks:
        return
    cores = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    actors = max(1, min(jobs or cores // 2, len(tasks)))
    threads = max(1, min(cores // actors, 4))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    blocks = max(actors, -(-len(tasks) // BLOCK))
    dataset = ray.data.from_items(
        [{"id": task.id, "video": task.video} for task in tasks], override_num_blocks=blocks
    )
    counted = dataset.map(
        RayCounter,  # type: ignore[arg-type]  # Ray's types know functions only
        fn_constructor_args=(settings, out, threads),
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
        num_cpus=threads,
        num_gpus=1 if settings.device.startswith("cuda") else None,
    )
    yield from counted.iter_rows()
