"""The process that teaches a model: it opens the labelled videos, which may do to it whatever they do."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from escounts.errors import EscountsError
from escounts.sandbox import confine
from escounts.serve.reports import send_report
from escounts.serve.worker import Source, hide_paths, limit_memory, open_video


@dataclass(frozen=True)
class TrainingTask:
    """Learn from videos with their repetitions in seconds, starting from a model; write the new one to target.

    memory in bytes, max_duration in seconds; scratch: the only folder it may write to, besides that of the target.
    """

    videos: tuple[tuple[Source, tuple[tuple[float, float], ...]], ...]
    target: str
    initial: str
    device: str
    memory: int
    threads: int | None
    max_duration: float
    max_pixels: int
    scratch: str


def run(connection: Connection, task: TrainingTask) -> None:
    """Entry point of the process: reports ("progress", (stage, share)), then ("done", report) or ("failed", why)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(10)  # the page answers first, then counts are made
    confine([Path(task.scratch), Path(task.target).parent])  # what cannot be confined, `escounts doctor` says
    try:
        ending: tuple[str, object] = ("done", _learn(connection, task))
    except Exception as error:
        ending = ("failed", _explain(error, task))
    _report(connection, *ending)


def _report(connection: Connection, kind: str, value: object) -> None:
    try:
        send_report(connection, kind, value)
    except OSError:
        os._exit(0)  # the server is gone


def _learn(connection: Connection, task: TrainingTask) -> dict[str, object]:
    import torch  # noqa: PLC0415 - here alone: the server's process, which imports this module, never needs it

    from escounts.training.own_action import LabelledVideo, learn_action  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the parent process needs none of this

    if task.threads is not None:
        torch.set_num_threads(task.threads)
    if not torch.cuda.is_available():
        limit_memory(task.memory)
    videos = [LabelledVideo(source.id, Path(source.path), len(spans), spans) for source, spans in task.videos]
    sources = {Path(source.path): source for source, _ in task.videos}
    report = learn_action(
        videos,
        Path(task.target),
        initial=task.initial,
        device=task.device,
        open_video=lambda path: open_video(sources[path], max_duration=task.max_duration, max_pixels=task.max_pixels),
        progress=lambda stage, share: _report(connection, "progress", (stage, share)),
    )
    return report.to_dict()


def _explain(error: Exception, task: TrainingTask) -> str:
    """One line for a person, with names instead of paths."""
    text = " ".join(str(error).split())
    for source, _ in task.videos:
        text = text.replace(source.path, source.name).replace(os.path.basename(source.path), source.name)
    if isinstance(error, EscountsError):
        return hide_paths(text)
    if isinstance(error, MemoryError) or "allocate memory" in text:
        return f"learning needs more memory than the {task.memory / 2**30:.1f} GiB it may use; label shorter videos"
    traceback.print_exception(error, file=sys.stderr)
    return hide_paths(f"it could not be learnt: {type(error).__name__}: {text}")
