"""What the service may do: where it keeps things, whom it listens to, and how much it takes on."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

MEBIBYTE = 1024 * 1024
GIBIBYTE = 1024 * MEBIBYTE


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
