"""What the service may do: where it keeps things, whom it listens to, and how much it takes on; and what may be done
by the processes that it starts to open videos."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import escounts
from escounts.errors import EscountsError, VideoError
from escounts.models.catalogue import weight_places
from escounts.system.sandbox import Sandbox

if TYPE_CHECKING:
    from escounts.serve.schemas import Video

MEBIBYTE = 1024 * 1024
GIBIBYTE = 1024 * MEBIBYTE
PATHS = re.compile(r"(?<![\w/:.])/(?:[^\s/'\",;:]+/)*[^\s/'\",;:]+/?")


@dataclass(frozen=True)
class Source:
    """A video as the server knows it: id, the file to open, the name to show."""

    id: str
    path: str
    name: str


@dataclass(frozen=True)
class Settings:
    """One service. Sizes in bytes, times in seconds unless the name says otherwise."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    media_root: Path | None = None
    model: str = "default"
    devices: tuple[str, ...] = ("auto",)
    max_upload: int = 2 * GIBIBYTE
    max_duration: float = 4 * 3600.0
    max_pixels: int = 7680 * 4320
    max_queue: int = 200
    max_body: int = 16 * MEBIBYTE
    max_connections: int = 256
    max_guesses: int = 10
    request_seconds: float = 20.0
    keep_days: float = 7.0
    trash_days: float = 3.0
    job_seconds: float = 1800.0
    max_live: int = 2
    live_seconds: float = 1800.0
    cancel_seconds: float = 3.0
    worker_memory: int = 6 * GIBIBYTE
    cache_memory: int = GIBIBYTE
    cache_videos: int = 64
    worker_threads: int | None = None
    sandbox: bool = True

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def videos(self) -> Path:
        """Folder of uploads; a file is named by its id, never by what the client called it."""
        return self.data / "videos"

    @property
    def renders(self) -> Path:
        """Folder of downloads that had to be drawn: pictures, videos, reports."""
        return self.data / "renders"

    @property
    def database(self) -> Path:
        return self.data / "escounts.sqlite"

    @property
    def backup(self) -> Path:
        """The database as it was some minutes ago, for a rebuild."""
        return self.data / "escounts.backup.sqlite"

    @property
    def trash(self) -> Path:
        """Folder of what was removed, kept for `trash_days`."""
        return self.data / "trash"

    @property
    def models(self) -> Path:
        """Folder of the models that were taught here."""
        return self.data / "models"

    def expiry(self) -> float | None:
        """When an upload of now is deleted; None: never."""
        return time.time() + self.keep_days * 86400 if self.keep_days > 0 else None

    def locate(self, video: Video) -> Source:
        """The file behind a row."""
        folder = self.media_root if video.source == "media" else self.videos
        return Source(video.id, str((folder or self.videos) / video.file), video.name)

    def loadable(self, model: str) -> str:
        """What `load` takes for a model's name: the path of one that was taught here, else the name."""
        path = self.models / f"{model}.safetensors"
        return str(path) if path.is_file() else model

    def of_process(self, device: str, model: str) -> Settings:
        """What a process that opens videos is told: its own device and model, and no secret."""
        return replace(self, devices=(device,), model=model, token=None)

    def confined(self, scratch: Path, videos: Iterable[Path | str], model: str | None = None) -> Sandbox | None:
        """What a process that opens these files, or any in these folders, is confined to; None: to nothing.

        scratch: the only folder it may write to. model: the one that it loads, the service's
        when None; it may read the others of the store, too, and those that were taught here.
        """
        if not self.sandbox:
            return None
        return Sandbox((*map(str, videos), *weight_places(model or self.model), str(self.models)), (str(scratch),))


def open_video(source: Source, settings: Settings) -> Any:
    """The video, if it is one and within the limits of the settings, whatever it is wanted for."""
    video = escounts.Video(source.path, max_duration=settings.max_duration)
    width, height = video.info.width, video.info.height
    if width * height > settings.max_pixels:
        most = f"{settings.max_pixels / 1e6:.1f} megapixels"
        raise VideoError(f"{source.name} is {width} × {height}; this server takes up to {most}. Scale it down first")
    return video


def hide_paths(text: str) -> str:
    """A message for a client: of every path of this machine only the last part is left."""
    return PATHS.sub(lambda match: match[0].rstrip("/").rsplit("/", 1)[-1], text)


def lacks_memory(error: Exception) -> bool:
    """Whether an error says that a process came to the limit of its memory."""
    text = " ".join(str(error).split())
    told = "allocate memory" in text or "start new thread" in text
    return isinstance(error, MemoryError) or (told and not isinstance(error, EscountsError))


def explain(
    error: Exception, settings: Settings, sources: Iterable[Source] = (), *, what: str = "it", fault: str = ""
) -> str:
    """One line for a person, never a traceback: the names of videos instead of their paths.

    what: needs too much memory, where it is that. fault: comes first where the program is to blame.
    """
    text = " ".join(str(error).split())
    for source in sources:
        text = text.replace(source.path, source.name).replace(os.path.basename(source.path), source.name)
    text = hide_paths(text)
    if isinstance(error, EscountsError):
        return text
    if lacks_memory(error):
        limit = f"{settings.worker_memory / GIBIBYTE:.1f} GiB"
        return f"{what} needs more memory than the {limit} it may use"
    traceback.print_exception(error, file=sys.stderr)
    return f"{fault}{type(error).__name__}: {text}"


def settle(settings: Settings) -> None:
    """Keep this process, which has loaded what it needs, to its cores and, without a GPU, to its memory."""
    import torch  # noqa: PLC0415 - 1.5 s of start-up and the memory of it: the server's process needs none of this

    if settings.worker_threads is not None:
        torch.set_num_threads(settings.worker_threads)
    if not torch.cuda.is_available():
        limit_memory(settings.worker_memory)


def limit_memory(extra: int) -> None:
    """Let this process allocate `extra` bytes more than it has now; past that, MemoryError."""
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - POSIX only

    with open("/proc/self/statm") as statm:
        data_pages = int(statm.read().split()[5])
    limit = data_pages * resource.getpagesize() + extra
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
