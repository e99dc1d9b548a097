"""From what a person calls a source to how it is opened: camera numbers, devices, addresses, files."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import av.error
from av.device import enumerate_input_devices

from escounts.decoding import MAX_PIXELS
from escounts.errors import VideoError

CAMERA_FORMATS = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}
"""What FFmpeg calls the cameras of a system, by `sys.platform`."""


@dataclass(frozen=True)
class StreamSource:
    """A source, and how FFmpeg opens it. live: it goes on by itself, and is opened again where it breaks off."""

    name: str
    path: str
    live: bool
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def opened(self) -> AbstractContextManager[Any]:
        """The container; raises VideoError that says what is there where the source is not."""
        try:
            container: AbstractContextManager[Any] = av.open(
                self.path, format=self.format, options={**self.options, "max_pixels": str(MAX_PIXELS)}
            )
        except (av.error.FFmpegError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if self.format is not None:
                raise VideoError(f"{self.name}: no such camera ({reason}); {_cameras_here(self.format)}") from error
            raise VideoError(f"{self.name}: cannot be opened: {reason}") from error
        return container


def find_source(source: str | os.PathLike[str] | int) -> StreamSource:
    """A camera's number (0) or device, an address (rtsp://…, http://…), or a file."""
    text = str(source)
    if text.isdecimal() and not Path(text).exists():
        return _camera(int(text))
    if text.startswith("/dev/video"):
        return StreamSource(text, text, live=True, format="v4l2")
    if "://" in text:
        options = {"rtsp_transport": "tcp"} if text.startswith(("rtsp://", "rtsps://")) else {}
        return StreamSource(text, text, live=True, options=options)
    return StreamSource(text, text, live=False)


def _camera(number: int) -> StreamSource:
    format_ = CAMERA_FORMATS.get(sys.platform)
    if format_ is None:
        known = ", ".join(CAMERA_FORMATS)
        raise VideoError(f"camera {number}: cameras are known on {known}, not on {sys.platform}; give an address")
    if format_ == "dshow":  # the only one that goes by names
        found = _cameras(format_)
        if number >= len(found):
            raise VideoError(f"camera {number}: no such camera; {_cameras_here(format_)}")
        return StreamSource(f"camera {number}", f"video={found[number][0]}", live=True, format=format_)
    path = f"/dev/video{number}" if format_ == "v4l2" else str(number)
    return StreamSource(f"camera {number}", path, live=True, format=format_)


def _cameras(format_: str) -> list[tuple[str, str]]:
    """(name, description) of each camera that is connected."""
    try:
        devices = enumerate_input_devices(format_)
    except (av.error.FFmpegError, OSError, ValueError):
        return []
    return [(device.name, device.description) for device in devices if "video" in device.media_types]


def _cameras_here(format_: str) -> str:
    found = _cameras(format_)
    if not found:
        return "no camera is connected; a file or an address (rtsp://…, http://…) can be watched instead"
    return "connected: " + ", ".join(f"{name} ({description})" for name, description in found)
