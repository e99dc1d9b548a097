"""Jobs from the database to worker processes and back: dispatch, progress, time limits, crashes, cancelling.

One supervising thread owns the workers. Everything that must survive is in the database before anyone hears
of it; progress and the workers' state are only in memory.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from escounts.errors import EscountsError
from escounts.serve.database import Database
from escounts.serve.schemas import Job, chosen
from escounts.serve.settings import Settings, Source, hide_paths
from escounts.serve.worker import CountTask, RenderTask
from escounts.serve.worker_pool import Running, WorkerHandle, WorkerPool, checked_result, resolve
from escounts.system.processes import are_numbers

MAINTENANCE_SECONDS = 600.0
TICK_SECONDS = 0.5
CRASHES_ALLOWED = 1
REPORTS_AT_ONCE = 50

log = logging.getLogger(__name__)


class JobRunner:
    """Runs the queue. `submit`, `cancel` and `render` may be called from any thread.

    publish: called with a job whenever it changes; it may not wait. maintain: called now and then.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        publish: Callable[[Job], None],
        *,
        maintain: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._publish = publish
        self._maintain = maintain
        self._lock = threading.RLock()
        self._news = threading.Event()
        self._pool = WorkerPool(settings, on_message=self._news.set)
        self._renders: list[tuple[RenderTask, Future[str]]] = []
        self._rendering: dict[str, Future[str]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._supervise, name="jobs", daemon=True)
        self._maintained = 0.0
        self.tally: dict[str, float] = {"counts": 0, "count_seconds": 0.0, "recounts": 0, "recount_seconds": 0.0}
        self.tally |= {"worker_crashes": 0, "job_timeouts": 0}
        """Numbers for the metrics page, since the start of the server."""
        self.trouble: str | None = None
        """Why the queue stands still, as long as it does."""

    # what other threads call

    def start(self) -> None:
        """Take up what a killed server left running, and begin."""
        self._database.recover()
        self._thread.start()

    def stop(self) -> None:
        """Stop the workers; what they were counting stays running and is taken up at the next start."""
        with self._lock:
            self._stopping = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(10)
        self._pool.stop()

    def submit(self, job: Job) -> bool:
        """Queue a job that is not in the database yet; False when its video is gone."""
        if not self._database.add_job(job):
            return False
        self._announce(job.id)
        self._news.set()
        return True

    def cancel(self, job_id: str) -> None:
        """End a job that waits or runs; one that has ended stays as it is."""
        with self._lock:
            running = self._pool.running(job_id)
            if running is not None:
                worker, entry = running
                if entry.cancel_at is None:
                    entry.cancel_at = time.monotonic() + self._settings.cancel_seconds
                    worker.send("cancel", job_id)
                return
            job = self._database.job(job_id)
            if job is not None and job.state == "queued":
                self._database.end_job(job_id, "cancelled")
            self._announce(job_id)

    def forget(self, video_id: str) -> None:
        """A video is being deleted: end its jobs and drop its encoding."""
        for job in self._database.jobs(video_id):
            if not job.ended:
                self.cancel(job.id)
        with self._lock:
            for worker in self._pool.workers:
                worker.send("forget", video_id)

    def render(self, task: RenderTask) -> Future[str]:
        """Have a worker write a download; the future gives its path or raises EscountsError, as this does when too
        many wait already."""
        future: Future[str] = Future()
        with self._lock:
            if sum(not waiting.cancelled() for _, waiting in self._renders) >= self._settings.max_queue:
                raise EscountsError(f"{self._settings.max_queue} drawings are waiting already; try again later")
            self._renders.append((task, future))
        self._news.set()
        return future

    def with_progress(self, job: Job) -> Job:
        """The job as it stands: fraction done (0..1), seconds left if known."""
        with self._lock:
            running = self._pool.running(job.id)
            if running is None:
                return job.model_copy(update={"progress": 1.0 if job.state == "done" else 0.0})
            return job.model_copy(update=running[1].view())

    def workers(self) -> list[dict[str, Any]]:
        """The state of each worker, for the health page."""
        with self._lock:
            return [worker.view() for worker in self._pool.workers]

    # the supervising thread

    def _supervise(self) -> None:
        """Round after round. One that goes wrong (a full disk, say) is tried again: the queue must not die of it."""
        while not self._stopping:
            try:
                self._round()
                self.trouble = None
            except Exception as error:
                trouble = hide_paths(f"{type(error).__name__}: {error}")
                if trouble != self.trouble:
                    log.exception("the queue stands still; trying again every %.1f s", TICK_SECONDS)
                self.trouble = trouble
                time.sleep(TICK_SECONDS)

    def _round(self) -> None:
        self._news.clear()
        with self._lock:
            for worker in list(self._pool.workers):
                self._receive(worker)
            self._pool.ensure_running()
            self._watch_clocks()
            self._dispatch()
        self._news.wait(TICK_SECONDS)
        if time.monotonic() - self._maintained > MAINTENANCE_SECONDS or not self._maintained:
            self._maintained = time.monotonic()
            self._maintain()

    def _receive(self, worker: WorkerHandle) -> None:
        """What one worker said since the last round; not more than REPORTS_AT_ONCE, or one could talk for ever. A
        report that the database cannot take now stays the first."""
        try:
            for _ in range(REPORTS_AT_ONCE):
                worker.report = worker.report or worker.process.take()
                if worker.report is None:
                    return
                self._handle(worker, *worker.report)
                worker.report = None
            self._news.set()
        except sqlite3.Error:
            raise
        except (EOFError, OSError):
            self._remove_dead(worker)
        except Exception as error:  # forged: the process is no longer ours, and what it was counting is to blame
            log.warning("%s: %s; it is ended, and so is what it was counting", worker.device, hide_paths(str(error)))
            worker.last_error = f"its report could not be read ({error!r})"
            worker.distrusted = True
            worker.process.kill()
            self._remove_dead(worker)

    def _handle(self, worker: WorkerHandle, kind: str, task_id: str, value: Any) -> None:
        """One report; ValueError where this worker has no reason to send it, or it holds what its kind does not."""
        entry = worker.tasks.get(task_id)
        match kind, value:
            case "ready", str():
                worker.ready, worker.last_error, worker.model = True, None, value
            case "unusable", [str(), bool()] if not worker.ready:
                worker.last_error, worker.unrecoverable = value
            case "cached", list():
                worker.cached = set(map(str, value))
            case "info", [video, dict()] if (
                entry is not None and video in entry.videos and are_numbers(value[1].values())
            ):
                self._database.describe_video(video, **value[1])
            case "progress", [_, _] if entry is not None and are_numbers(value):
                entry.done, entry.total = value
                self._announce(task_id)
            case "done" | "failed" | "cancelled", _ if entry is not None:
                self._end(worker, entry, kind, task_id, value)
            case _:
                raise ValueError(f"a worker sent a report that it had no reason to send ({kind[:20]!r})")

    def _end(self, worker: WorkerHandle, entry: Running, kind: str, task_id: str, value: Any) -> None:
        """A task left its worker: done, failed or cancelled."""
        render = self._rendering.pop(task_id, None)
        if render is not None:
            resolve(render, str(value) if kind == "done" else EscountsError(str(value)))
        elif kind == "done":
            document = checked_result(value)
            self._database.finish_job(task_id, document)
            job = self._database.job(task_id)
            if job is not None and job.unit is not None:
                self._database.say_again(task_id, job.request, chosen(document, job.unit))
            self._measure(entry)
        elif kind == "cancelled" or entry.cancel_at is not None:
            self._database.end_job(task_id, "cancelled")
        else:
            self._database.end_job(task_id, "failed", error=str(value))
        del worker.tasks[task_id]
        worker.report = None  # it is written: whatever fails now, it is not handled again
        self._announce(task_id)

    def _measure(self, entry: Running) -> None:
        kind = "recount" if entry.lane == "fast" else "count"
        self.tally[f"{kind}s"] += 1
        self.tally[f"{kind}_seconds"] += time.monotonic() - entry.began

    def _watch_clocks(self) -> None:
        """A task past its time, or one that does not stop when cancelled, costs its worker."""
        now = time.monotonic()
        for worker in list(self._pool.workers):
            overdue = [t for t in worker.tasks.values() if now > t.deadline or (t.cancel_at and now > t.cancel_at)]
            if not overdue:
                continue
            for entry in overdue:
                entry.overdue = entry.cancel_at is None
                self.tally["job_timeouts"] += int(entry.overdue)
            worker.process.kill()
            self._remove_dead(worker)

    def _remove_dead(self, worker: WorkerHandle) -> None:
        """A worker died: each of its tasks is cancelled, failed, or queued once more."""
        death = worker.process.death()
        stopped_by_us = any(entry.overdue or entry.cancel_at for entry in worker.tasks.values())
        if worker.tasks and not stopped_by_us:
            self.tally["worker_crashes"] += 1
        for task_id, entry in list(worker.tasks.items()):
            if task_id in self._rendering:
                resolve(self._rendering.pop(task_id), EscountsError(death))
                del worker.tasks[task_id]
                continue
            job = self._database.job(task_id)
            if job is None:
                pass
            elif entry.cancel_at is not None:
                self._database.end_job(task_id, "cancelled")
            elif worker.distrusted:
                self._database.end_job(task_id, "failed", error="its worker process sent what is not a report")
            elif entry.overdue:
                limit = self._settings.job_seconds
                self._database.end_job(task_id, "failed", error=f"took longer than the {limit:.0f} s a job may take")
            elif stopped_by_us:
                self._database.requeue(task_id, crashed=False)
            elif job.crashes < CRASHES_ALLOWED:
                self._database.requeue(task_id, crashed=True)
            else:
                self._database.end_job(task_id, "failed", error=f"{death}, twice")
            del worker.tasks[task_id]  # only now: what could not be written is tried again
            self._announce(task_id)
        self._pool.remove_dead(worker)

    def _dispatch(self) -> None:
        """Give waiting work to free lanes: recounts of kept encodings first, then drawings, then counts."""
        if self._pool.unusable is not None:
            self._refuse(self._pool.unusable)
            return
        waiting = []
        for job in self._database.queued() if self._pool.has_room() else ():
            task = self._task(job)
            if task is not None and (worker := self._pool.free("fast", task.encodings)) is not None:
                self._begin(worker, "fast", task)
            elif task is not None:
                waiting.append(task)
        self._renders = [(task, future) for task, future in self._renders if not future.cancelled()]
        while self._renders and (worker := self._pool.free("slow")) is not None:
            drawing, future = self._renders.pop(0)
            self._rendering[drawing.id] = future
            worker.begin("slow", drawing, self._settings.job_seconds)
        for task in waiting:
            worker = self._pool.free("slow")
            if worker is None:
                break
            self._begin(worker, "slow", task)

    def _begin(self, worker: WorkerHandle, lane: Any, task: CountTask) -> None:
        self._database.start_job(task.id)
        worker.begin(lane, task, self._settings.job_seconds)
        self._announce(task.id)

    def _refuse(self, reason: str) -> None:
        for job in self._database.queued():
            self._database.end_job(job.id, "failed", error=f"no worker could be started: {hide_paths(reason)}")
            self._announce(job.id)
        while self._renders:
            resolve(self._renders.pop()[1], EscountsError(f"no worker could be started: {hide_paths(reason)}"))

    def _task(self, job: Job) -> CountTask | None:
        """The job as a worker takes it; a job whose exemplar's video is gone ends here."""
        video = self._database.video(job.video)
        if video is None:
            return None
        exemplars: list[tuple[float, float, Source | None]] = []
        for exemplar in job.exemplars:
            other = exemplar.video if exemplar.video != job.video else None
            row = self._database.video(other) if other else None
            if other and row is None:
                self._database.end_job(job.id, "failed", error="the video of its exemplar has been deleted")
                self._announce(job.id)
                return None
            exemplars.append((exemplar.start, exemplar.end, self._settings.locate(row) if row else None))
        model = job.request.get("model")
        return CountTask(
            id=job.id,
            source=self._settings.locate(video),
            exemplars=tuple(exemplars),
            start=job.start,
            end=job.end,
            region=job.region,
            each=job.each,
            assume_repeats=job.request["assume_repeats"],
            model=model and self._settings.loadable(model),
        )

    def _announce(self, job_id: str) -> None:
        """Tell the listeners. Under the lock: nobody hears of an older state later."""
        with self._lock:
            job = self._database.job(job_id)
            if job is not None:
                self._publish(self.with_progress(job))
