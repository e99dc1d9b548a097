"""The ASGI application: the service put together, its events, the page's files, health and metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from escounts.errors import EscountsError, OutputError, one_line
from escounts.output import FORMATS
from escounts.serve import job_api, label_api, live_api, training_api, video_api
from escounts.serve.data_folder import DISK_RESERVE, DataFolder
from escounts.serve.jobs import JobRunner
from escounts.serve.label_api import write_labels_csv
from escounts.serve.live_api import LiveSessions
from escounts.serve.schemas import GUARDED, PROBLEMS, Job, Services, Training, Video
from escounts.serve.security import COOKIE, Guard, GuessLimit, client_address, session_value
from escounts.serve.settings import MEBIBYTE, Settings, hide_paths
from escounts.serve.training_api import Trainings
from escounts.system.atomic_files import remove_partials

log = logging.getLogger(__name__)
HEARTBEAT_SECONDS = 15.0
_STATES = {"queued", "running", "done", "failed", "cancelled"}
BACKLOG = 256
"""Events that a listener may be behind."""
Event = Job | Training
STATIC = Path(__file__).parent / "static"
DESCRIPTION = (
    "Counts repetitions in videos. Upload a video, ask for a count, follow it, ask again with an exemplar. "
    "Requests that change something carry the header `X-Escounts: 1`; with a token, also "
    "`Authorization: Bearer TOKEN`."
)


class Health(BaseModel):
    status: Literal["ok", "starting", "failing"]
    error: str | None = Field(default=None, description="What is wrong: why the queue stands still, or a full disk.")
    disk_free: int = Field(description="Bytes that are free where the data folder is.")
    workers: list[dict[str, Any]]


class EventHub:
    """Publishes from any thread to listeners' asyncio queues; a slow listener loses its oldest events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[Event | None], asyncio.AbstractEventLoop] = {}
        self._closed = False

    def publish(self, event: Event | None) -> None:
        """None: the last one."""
        with self._lock:
            for queue, loop in self._listeners.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_offer, queue, event)

    def close(self) -> None:
        """End every stream, so that the server can stop without waiting for open pages."""
        self._closed = True
        self.publish(None)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def listen(self) -> AsyncIterator[Event | None]:
        """Events as they come; None after a silence, to keep the connection known to be alive."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(BACKLOG)
        with self._lock:
            if self._closed:
                return
            self._listeners[queue] = asyncio.get_running_loop()
        try:
            yield None
            while True:
                coming = asyncio.ensure_future(queue.get())
                try:  # not wait_for: before Python 3.12 it goes on where it is cancelled just as an event comes
                    await asyncio.wait({coming}, timeout=HEARTBEAT_SECONDS)
                finally:
                    silence = coming.cancel()
                event = None if silence else coming.result()
                if event is None and not silence:
                    return
                yield event
        finally:
            with self._lock:
                del self._listeners[queue]


def _offer(queue: asyncio.Queue[Event | None], event: Event | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(event)


class Service:
    """Everything the handlers need; `request.app.state.service`.

    unknown_files: in videos/, which this service did not make, or has no row of; left alone.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = DataFolder(settings)
        self.folder.check()
        self.folder.prepare()
        self.database = self.folder.open_database()
        for folder in (
            settings.data,
            settings.videos,
            settings.renders,
        ):  # an upload, a drawing, a copy of the database
            remove_partials(folder)
        self.unknown_files = self.folder.unknown_files(self.database.videos(limit=-1))
        self.hub = EventHub()
        self.runner = JobRunner(settings, self.database, self.hub.publish, maintain=self.maintain)
        self.trainings = Trainings(self.database, self.hub.publish, settings)
        self.live = LiveSessions(settings)
        self.guesses = GuessLimit(settings.max_guesses)
        self._backed_up = -1

    def delete(self, video: Video) -> None:
        """Delete a video with its jobs, results and labels: files first, which makes room for the other changes."""
        labels = self.database.labels(video.id)
        self.folder.discard(video, labels, [job.id for job in self.database.jobs(video.id, limit=-1)])
        self.runner.forget(video.id)
        self.database.delete_video(video.id)
        if labels:  # labels.csv must not name a file that is gone; the trash has its labels
            try:
                write_labels_csv(self)
            except OutputError as error:
                log.warning("labels.csv still names a deleted video: %s", error)

    def delete_expired(self) -> list[Video]:
        """Delete the videos whose time is over; returns the rows that are gone."""
        gone = self.database.expired(time.time())
        for video in gone:
            self.delete(video)
        return gone

    def maintain(self) -> None:
        """Called now and then: delete what has expired, empty the trash, copy a database that has changed."""
        self.delete_expired()
        self.folder.empty_trash()
        if self.database.changes != self._backed_up and self.database.videos(limit=1):
            self._backed_up = self.database.changes
            try:
                self.database.back_up(self.settings.backup)
            except (sqlite3.Error, OSError, OutputError) as error:  # a full disk: counting goes on without the copy
                log.warning("no copy of the database could be made: %s", error)

    def health(self) -> Health:
        workers = self.runner.workers()
        free = self.folder.free_bytes()
        error = self.runner.trouble
        if error is None and free < DISK_RESERVE:
            error = f"the disk is full: {free / MEBIBYTE:.0f} MiB are free, uploads are refused; delete some videos"
        ready = any(worker["ready"] for worker in workers)
        failing = not workers or error is not None or any(worker["error"] for worker in workers)
        status: Literal["ok", "starting", "failing"] = "failing" if failing else "ok" if ready else "starting"
        return Health(status=status, error=error, disk_free=free, workers=workers)


router = APIRouter(tags=["service"])


@router.post("/api/session", status_code=204, dependencies=GUARDED)
def open_session(
    service: Services,
    request: Request,
    token: Annotated[str, Body(embed=True, max_length=500)],
    response: Response,
) -> None:
    """Trade the token for a cookie, so that the page's video element and event stream are let in too."""
    right = service.settings.token
    if right is None:
        return
    refusal = "that is not the token; it was printed when the server started"
    service.guesses.admit(client_address(request), [(token, right)], refusal=refusal)
    response.set_cookie(COOKIE, session_value(right), httponly=True, samesite="strict", path="/")


class Limits(BaseModel):
    """What this server takes, for the page to say before it is asked."""

    model: str
    max_upload: int
    max_duration: float
    keep_days: float
    media_root: bool
    formats: list[str]
    titles: dict[str, str] = Field(description="What a person reads for each format.")
    version: str


@router.get("/api/limits")
def limits(service: Services) -> Limits:
    """What this server takes and which model counts."""
    settings = service.settings
    return Limits(
        model=next((worker["model"] for worker in service.runner.workers() if worker["model"]), settings.model),
        max_upload=settings.max_upload,
        max_duration=settings.max_duration,
        keep_days=settings.keep_days,
        media_root=settings.media_root is not None,
        formats=list(FORMATS),
        titles={name: kind.title for name, kind in FORMATS.items()},
        version=version("escounts"),
    )


@router.get("/healthz")
def healthz(service: Services) -> Health:
    """Whether counting works: the state of every worker."""
    return service.health()


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: Services) -> PlainTextResponse:
    """Numbers in the Prometheus text format."""
    states = service.database.totals()
    lines = [f'escounts_jobs{{state="{state}"}} {states.get(state, 0)}' for state in sorted(_STATES | set(states))]
    values = {
        **{f"escounts_{name}_total": round(value, 3) for name, value in service.runner.tally.items()},
        "escounts_workers_ready": sum(worker["ready"] for worker in service.runner.workers()),
        "escounts_live_counts": service.live.running,
        "escounts_listeners": service.hub.listeners,
    }
    text = "\n".join([*lines, *(f"{name} {value}" for name, value in values.items())]) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The API to read, from its own description; FastAPI's page would load its scripts from elsewhere."""
    return HTMLResponse(api_page(request.app.openapi()))


def create_app(settings: Settings) -> FastAPI:
    """The service. Workers start and stop with the application's lifespan."""
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.trainings.recover()
        service.runner.start()
        yield
        service.hub.close()
        service.live.stop()
        service.trainings.stop()
        service.runner.stop()
        service.database.close()

    app = FastAPI(
        title="escounts",
        version=version("escounts"),
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=PROBLEMS,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(Guard, settings=settings, guesses=service.guesses)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(EscountsError, _unacceptable)
    app.add_exception_handler(sqlite3.Error, _unwritable)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.include_router(router)
    app.include_router(video_api.router)
    app.include_router(job_api.router)
    app.include_router(label_api.router)
    app.include_router(training_api.router)
    app.include_router(live_api.router)

    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    return app


def api_page(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML: each request and each schema, to be opened."""
    requests = [
        (f"{method.upper()} {path}", operation.get("description", ""), operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    schemas = document.get("components", {}).get("schemas", {}).items()
    entries = "".join(
        f"<details><summary><code>{escape(name)}</code> {escape(about.partition(chr(10))[0])}</summary>"
        f"<pre>{escape(json.dumps(content, indent=1, ensure_ascii=False))}</pre></details>"
        for name, about, content in [*requests, *((name, one.get("description", ""), one) for name, one in schemas)]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>escounts API</title>'
        '<link rel="stylesheet" href="/css/api.css"></head><body><main><h1>escounts: the API</h1>'
        f"<p>{escape(document['info'].get('description', ''))}</p>"
        f'<p>For programs: <a href="/api/openapi.json">openapi.json</a>.</p>{entries}</main></body></html>'
    )


def _invalid(request: Request, error: Exception) -> JSONResponse:
    """422 in one readable line; what was sent is not echoed, it may not even be JSON."""
    assert isinstance(error, RequestValidationError)
    parts = []
    for item in error.errors()[:5]:
        where = ".".join(str(part) for part in item["loc"][1:])
        parts.append(f"{where}: {item['msg']}" if where else str(item["msg"]))
    detail = "; ".join(parts).encode("ascii", "backslashreplace").decode()
    return JSONResponse({"detail": detail[:1000]}, 422)


def _unacceptable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": hide_paths(str(error))}, 422)


def _unwritable(request: Request, error: Exception) -> JSONResponse:
    """The database did not take a change."""
    log.error("%s %s: %s", request.method, one_line(request.url.path), error)
    if "full" in str(error):
        return JSONResponse({"detail": "the server's disk is full; delete some videos"}, 507)
    return JSONResponse({"detail": "the server's database cannot be used now; try again"}, 503)


def _gone(request: Request, error: Exception) -> Response:
    """A client that went away in the middle of its request: one line in the log, and nobody to answer."""
    log.warning(
        "%s %s: the client went away before the request was whole", request.method, one_line(request.url.path)
    )
    return Response(status_code=400)
