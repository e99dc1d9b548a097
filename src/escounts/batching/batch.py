"""`batch()` finds the videos, skips what is finished, and counts the others: in processes here, or on a Ray cluster.

On Ray, rows of addresses go through Ray Data and are decoded and counted inside a pool of actors. An actor holds one
CountingProcess, so that what a video does (hang, exhaust memory, crash a decoder) ends in an error row and not in the
actor: Ray does not retry an actor's exceptions, and retries a dying actor for ever. Each row is written by the actor
that has it; a killed driver loses none, and a block that Ray runs again skips what is written. An actor on a machine
that does not have the folder hands its rows to the driver, which writes them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escounts.batching.read_ahead import images_folder, read_ahead_workers
from escounts.batching.rows import GATHERED, ResultFolder
from escounts.batching.tasks import CountingProcess, Row, Settings, Task, find_tasks, is_address
from escounts.errors import EscountsError, OutputError
from escounts.models.catalogue import counting_sandbox
from escounts.system.arguments import callback, checked, flag, instance, optional, paths, text, whole
from escounts.system.atomic_files import printable
from escounts.system.extras import install_command
from escounts.system.sandbox import Sandbox
from escounts.system.task_processes import TaskError, Worker, answers

if TYPE_CHECKING:
    import pyarrow as pa

Report = Callable[[int, int, str], None]
"""Called with (videos done, videos in all, the newest one)."""

BLOCK = 8
"""Videos that an actor takes at a time, and that are looked up again where it is lost."""
SHARED = 3600.0
"""Seconds after which a partial file in a folder that several machines write to was left by a killed one."""


@checked(
    videos=paths,
    out=optional(text),
    settings=optional(instance(Settings)),
    jobs=optional(whole),
    readers=optional(whole),
    nvdec=whole,
    ray=optional(text),
    retry_errors=flag,
    sandbox=flag,
    report=callback,
)
def batch(
    videos: Iterable[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    jobs: int | None = None,
    readers: int | None = None,
    nvdec: int = 0,
    ray: str | None = None,
    retry_errors: bool = False,
    sandbox: bool = False,
    report: Report | None = None,
) -> pa.Table:
    """Count videos, folders of videos or addresses of either; the table of their results, one row per video.

    out: folder or address for the results; a video that has a row there is not counted again, unless it, the
    settings or the model's weights changed (or, with retry_errors, the row is an error); the older rows stay there.
    Without it, nothing is kept but the table that is returned. settings: `escounts.batching.tasks.Settings`, the
    default model when None. jobs: processes at a time, one per two cores when None. readers: processes that read
    videos ahead of one that counts (two or three on a GPU), in the place of jobs; as many as cores but one when the
    device is a GPU and neither is given. nvdec: readers beside them that decode on an NVIDIA GPU's video engines, for
    the extra [nvdec]; the other readers are then, unless given, as many as cores are left. Pixels differ a little,
    and so may a count that lies at a half. ray: the address of a Ray cluster ("auto": the one this machine belongs
    to, "local": one of its own), for the extra [ray]. sandbox: confine the processes that open videos, which lie on
    this machine; raises EscountsError where it cannot.

    >>> for row in escounts.batch(["videos/"], out="results/").to_pylist():
    ...     print(row["video"], row["count"], row["error"])
    """
    if ray and find_spec("ray") is None:
        raise EscountsError(f"this needs ray: {install_command('ray')}")
    if out is None:
        with tempfile.TemporaryDirectory(prefix="escounts-") as kept:
            how: dict[str, Any] = {"jobs": jobs, "readers": readers, "nvdec": nvdec, "ray": ray, "sandbox": sandbox}
            return batch(videos, out=kept, settings=settings, report=report, **how)
    if sandbox and (nvdec or ray):
        raise EscountsError(
            "the sandbox holds processes of this machine that decode on its processor: no nvdec, no ray"
        )
    if nvdec and (jobs or ray):
        raise ValueError(f"nvdec={nvdec} are readers on this machine; got jobs={jobs}, ray={ray!r}: leave these out")
    if nvdec:
        from escounts.video.nvdec import missing as nvdec_missing  # noqa: PLC0415 - torch: 2 s that this process does not need

        if reason := nvdec_missing():
            raise EscountsError(f"NVDEC cannot be used: {reason}; or leave nvdec out, and the processor decodes")
    settings = settings or Settings()
    tasks = find_tasks(videos, settings)
    folder = ResultFolder(str(out))
    folder.sweep(older=SHARED if ray else 0.0)
    status = folder.finished()
    if retry_errors:
        errors = {task.id for task in tasks if status.get(task.id) == "error"}
        folder.forget_errors(errors)
        status = {id_: kind for id_, kind in status.items() if id_ not in errors}
    left = [task for task in tasks if task.id not in status]
    engine = (
        ray_rows(left, settings, folder, jobs=jobs, address=ray)
        if ray
        else local_rows(left, settings, folder, jobs, readers, nvdec, sandbox=sandbox)
    )
    for done, row in enumerate(engine, start=len(tasks) - len(left) + 1):
        if report is not None:
            report(done, len(tasks), row["video"])
        if done % GATHERED == 0:
            folder.gather(least=GATHERED)
    table = folder.table(task.id for task in tasks)
    if missing := len(tasks) - len(table):
        raise OutputError(
            f"{out}: {missing} of {len(tasks)} rows are not there: somebody removed them, or counts them again at "
            "this moment; run it again, and only these are counted"
        )
    return table


def local_rows(
    tasks: Sequence[Task],
    settings: Settings,
    folder: ResultFolder,
    jobs: int | None,
    readers: int | None = None,
    nvdec: int = 0,
    *,
    sandbox: bool = False,
) -> Iterator[Row]:
    """Rows as they are written, by `jobs` processes at a time. Closing it ends the processes."""
    cores = os.cpu_count() or 1
    if readers is None and nvdec:  # which needs half a core each, and stands still where it has to wait for one
        readers = max(0, cores - nvdec)
    elif readers is None:
        readers = max(1, cores - 1) if settings.device.startswith("cuda") and jobs is None else 0

    def keep(task: Task, row: Row | TaskError) -> None:
        assert not isinstance(row, TaskError)  # a counting process makes a row of it
        folder.write(row)

    with ExitStack() as stack:
        images = stack.enter_context(images_folder() if readers or nvdec else nullcontext(""))
        confined = stack.enter_context(_confined(tasks, settings, images)) if sandbox and tasks else None
        workers: Sequence[Worker[Task, Row]]
        if (readers or nvdec) and tasks:
            engines, most = min(nvdec, len(tasks)), len(tasks)
            workers = read_ahead_workers(
                settings, min(readers, most), Path(images), engine_readers=engines, sandbox=confined
            )
        else:
            jobs = max(1, min(jobs or cores // 2, len(tasks)))
            threads = max(1, cores // jobs)
            workers = [CountingProcess(settings, threads=threads, sandbox=confined) for _ in range(jobs)]
        for _, row in answers(tasks, workers, keep=keep):
            assert not isinstance(row, TaskError)
            yield row


def _confined(tasks: Sequence[Task], settings: Settings, images: str) -> AbstractContextManager[Sandbox]:
    """What the processes are confined to. images: the folder that readers write to; "" without them."""
    if stored := next((task.video for task in tasks if is_address(task.video)), None):
        raise EscountsError(f"{stored}: a process in the sandbox has no network; copy the videos to this machine")
    videos, writes = [task.video for task in tasks], [images] if images else []
    return counting_sandbox(settings.model, settings.exemplars, readable=videos, writable=writes)


class RayCounter:
    """The actor: a row with an id and a video in, the same with a status out; and what was counted, as JSON, where
    the results' folder is not on this machine."""

    def __init__(self, settings: Settings, out: str, threads: int) -> None:
        shared = is_address(out) or Path(out, "rows").is_dir()  # the driver has made it
        self._folder = ResultFolder(out) if shared else None
        self._process = CountingProcess(settings, threads=threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if self._folder is not None and self._folder.has(row["id"]):
            return {**row, "status": "written before", "counted": ""}
        counted = self._process.ask(Task(row["id"], row["video"]))
        if self._folder is None:
            return {**row, "status": counted["status"], "counted": printable(json.dumps(counted))}
        self._folder.write(counted)
        return {**row, "status": counted["status"], "counted": ""}


def ray_rows(
    tasks: Sequence[Task], settings: Settings, folder: ResultFolder, *, jobs: int | None, address: str
) -> Iterator[Row]:
    """Rows (id, video, status) as they are written. jobs: actors; when None, as `choose_actors` says."""
    import ray.data  # noqa: PLC0415 - the extra [ray]

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
    on_gpu = settings.device.startswith("cuda")
    machines = machines_of(ray.nodes())  # type: ignore[no-untyped-call]
    number, threads = choose_actors(machines, videos=len(tasks), jobs=jobs, on_gpu=on_gpu, cluster=address)
    out = folder.address if is_address(folder.address) else os.path.abspath(folder.address)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    blocks = max(number, -(-len(tasks) // BLOCK))
    dataset = ray.data.from_items(
        [{"id": task.id, "video": task.video} for task in tasks], override_num_blocks=blocks
    )
    counted = dataset.map(
        RayCounter,  # type: ignore[arg-type]  # Ray's types know functions only
        fn_constructor_args=(settings, out, threads),
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=number),
        num_cpus=threads,
        num_gpus=1 if on_gpu else None,
    )
    for row in counted.iter_rows():
        if row["counted"]:
            folder.write(json.loads(row["counted"]))
        yield row


MOST_THREADS = 4
"""Cores of one actor at most: one video makes little use of more."""
SINGLE = 0.8
"""What a core of an actor of one core is worth: a model in memory for each does not pay for one core more."""


Machine = tuple[int, int]
"""Cores and GPUs that one machine of a cluster lends."""


def machines_of(nodes: Iterable[Mapping[str, Any]]) -> list[Machine]:
    """From `ray.nodes()`: those that are alive."""
    alive = [node.get("Resources", {}) for node in nodes if node.get("Alive", False)]
    return [(int(resources.get("CPU", 0)), int(resources.get("GPU", 0))) for resources in alive]


def choose_actors(
    machines: Sequence[Machine], *, videos: int, jobs: int | None, on_gpu: bool, cluster: str
) -> tuple[int, int]:
    """How many actors, each of which finds a machine, and the cores of each. As many as `jobs` asks for, or one per
    GPU, where they fit; otherwise those that use the most cores, of two cores each where that is the same. Raises
    EscountsError where none fits."""

    def room(threads: int) -> int:
        return sum(min(cores // threads, gpus) if on_gpu else cores // threads for cores, gpus in machines)

    wanted = min(jobs or videos, videos)
    choices = [(min(room(threads), wanted), threads) for threads in range(1, MOST_THREADS + 1)]
    if choices[0][0] == 0:
        there = ", ".join(f"{cores} cores and {gpus} GPUs" for cores, gpus in machines) or "none is alive"
        raise EscountsError(
            f"the Ray cluster {cluster!r} has no machine with a core{' and a GPU' if on_gpu else ''} for an actor "
            f"({there}); add one (`ray start`), or leave Ray out and count on this machine"
        )
    if jobs or on_gpu:
        return max(choices)

    def used(number: int, threads: int) -> float:
        return number * threads * (SINGLE if threads == 1 else 1.0)

    return max(choices, key=lambda actors: (used(*actors), actors[1] == 2, actors[1]))
