"""The ASGI application: the service put together, the page's files, health and metrics."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.types import Scope

from escounts.errors import EscountsError
from escounts.serve import job_api, label_api, video_api
from escounts.serve.data_folder import DataFolder
from escounts.serve.database import Database
from escounts.serve.events import EventHub
from escounts.serve.jobs import JobRunner
from escounts.serve.media import Library, UploadError
from escounts.serve.schemas import Health
from escounts.serve.security import Guard
from escounts.serve.settings import Settings

log = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"
DESCRIPTION = (
    "Counts repetitions in videos. Upload a video, ask for a count, follow it, ask again with an example. "
    "Requests that change something carry the header `X-Escounts: 1`; with a token, also "
    "`Authorization: Bearer TOKEN`."
)


@dataclass
class Service:
    """Everything the handlers need; `request.app.state.service`."""

    settings: Settings
    database: Database
    hub: EventHub
    library: Library
    runner: JobRunner
    unknown_files: list[str]
    """Files in videos/ that this service did not make, or has no row of; left alone."""

    @classmethod
    def build(cls, settings: Settings) -> Service:
        folder = DataFolder(settings)
        folder.check()
        folder.prepare()
        database = folder.open_database()
        folder.set_torn_files_aside()
        library = Library(folder, database)
        hub = EventHub()
        backed_up = -1

        def keep_house() -> None:
            """Called now and then: delete what has expired, copy a database that has changed."""
            nonlocal backed_up
            for video in library.delete_expired():
                runner.forget(video.id)
            if database.changes != backed_up and database.videos(limit=1):
                backed_up = database.changes
                try:
                    database.back_up(settings.backup)
                except (sqlite3.Error, OSError) as error:  # a full disk: counting goes on without the copy
                    log.warning("no copy of the database could be made: %s", error)

        runner = JobRunner(settings, database, hub, locate=library.locate, keep_house=keep_house)
        return cls(settings, database, hub, library, runner, folder.unknown_files(database.videos(limit=-1)))

    def health(self) -> Health:
        workers = self.runner.workers()
        trouble = self.runner.trouble
        ready = any(worker["ready"] for worker in workers) and trouble is None
        failing = not workers or trouble is not None or any(worker["error"] for worker in workers)
        return Health(status="ok" if ready else "failing" if failing else "starting", error=trouble, workers=workers)


class PageFiles(StaticFiles):
    """The page's own files; the browser asks each time whether they changed, so an upgrade shows at once."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response

    def get_path(self, scope: Scope) -> str:
        path = super().get_path(scope)
        return "index.html" if path in (".", "") else path


def create_app(settings: Settings) -> FastAPI:
    """The service. Workers start and stop with the application's lifespan."""
    service = Service.build(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.runner.start()
        yield
        service.hub.close()
        service.runner.stop()
        service.database.close()

    app = FastAPI(
        title="escounts",
        version=version("escounts"),
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(Guard, settings=settings)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(UploadError, _refused)
    app.add_exception_handler(EscountsError, _unacceptable)
    app.include_router(video_api.router)
    app.include_router(job_api.router)
    app.include_router(label_api.router)

    @app.get("/healthz", tags=["service"], response_model=Health)
    def healthz() -> Health:
        """Whether counting works: the state of every worker."""
        return service.health()

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    def metrics() -> PlainTextResponse:
        """Numbers in the Prometheus text format."""
        return PlainTextResponse(_metrics(service), media_type="text/plain; version=0.0.4")

    app.mount("/", PageFiles(directory=STATIC, html=True), name="page")
    return app


def _metrics(service: Service) -> str:
    tally = service.runner.tally
    states = service.database.totals()
    lines = [f'escounts_jobs{{state="{state}"}} {states.get(state, 0)}' for state in sorted(_STATES | set(states))]
    values = {
        "escounts_counts_total": tally.counts,
        "escounts_count_seconds_total": round(tally.count_seconds, 3),
        "escounts_recounts_total": tally.recounts,
        "escounts_recount_seconds_total": round(tally.recount_seconds, 3),
        "escounts_worker_crashes_total": tally.crashes,
        "escounts_job_timeouts_total": tally.timeouts,
        "escounts_workers_ready": sum(worker["ready"] for worker in service.runner.workers()),
        "escounts_listeners": service.hub.listeners,
    }
    return "\n".join([*lines, *(f"{name} {value}" for name, value in values.items())]) + "\n"


_STATES = {"queued", "running", "done", "failed", "cancelled"}


def _invalid(request: Request, error: Exception) -> JSONResponse:
    """422 in one readable line; what was sent is not echoed, it may not even be JSON."""
    assert isinstance(error, RequestValidationError)
    parts = []
    for item in error.errors()[:5]:
        where = ".".join(str(part) for part in item["loc"][1:])
        parts.append(f"{where}: {item['msg']}" if where else str(item["msg"]))
    detail = "; ".join(parts).encode("ascii", "backslashreplace").decode()
    return JSONResponse({"detail": detail[:1000]}, 422)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, UploadError)
    return JSONResponse({"detail": str(error)}, error.status)


def _unacceptable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)
