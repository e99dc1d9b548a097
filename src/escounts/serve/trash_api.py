"""What was deleted, over HTTP: the videos that are still in the trash, and back with them."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from escounts.serve.data_folder import TRASH_ENTRY, UPLOAD
from escounts.serve.database import VideoRow
from escounts.serve.media import write_labels_csv
from escounts.serve.schemas import GUARDED, PROBLEMS, USUAL_PROBLEMS, Services, Video, VideoId, present_video
from escounts.serve.settings import Settings

router = APIRouter(prefix="/api/trash", tags=["videos"], responses=USUAL_PROBLEMS)
CONFLICT: dict[int | str, dict[str, Any]] = {409: PROBLEMS[409]}


class DeletedVideo(BaseModel):
    """A video in the trash. deleted: seconds since 1970; labelled_count: repetitions of its labels, or null."""

    id: str
    name: str
    deleted: float
    labelled_count: int | None


@router.get("")
def deleted_videos(service: Services) -> list[DeletedVideo]:
    """The videos that can be restored, the last deleted first."""
    return [
        DeletedVideo(
            id=video.id,
            name=video.name,
            deleted=float(entry.name.partition("-")[0]),
            labelled_count=len(labels[0]["spans"]) if labels else None,
        )
        for entry, video, labels in _entries(service.settings)
    ]


@router.post("/{video_id}/restore", status_code=201, dependencies=GUARDED, responses=CONFLICT)
def restore(service: Services, video_id: VideoId) -> Video:
    """Take a video and its labels out of the trash. Its counts are gone: POST /api/jobs counts it again."""
    found = next((found for found in _entries(service.settings) if found[1].id == video_id), None)
    if found is None:
        raise HTTPException(404, "this video is no longer in the trash")
    entry, video, labels = found
    if service.database.video(video_id) is not None:
        raise HTTPException(409, f"{video.name} is among the videos already")
    keep = service.settings.keep_days
    expires = time.time() + keep * 86400 if video.expires is not None and keep > 0 else None
    row = replace(video, expires=expires)
    if video.source != "media":
        shutil.move(entry / video.file, service.settings.videos / video.file)
    service.database.add_video(row)
    for label in labels:
        service.database.save_labels(video_id, label["action"], [(start, end) for start, end in label["spans"]])
    shutil.rmtree(entry, ignore_errors=True)
    if labels:
        write_labels_csv(service)
    return present_video(service, row)


def _entries(settings: Settings) -> list[tuple[Path, VideoRow, list[dict[str, Any]]]]:
    """Folder, row and labels of every video in the trash whose record and file are there, the newest first."""
    found = []
    for entry in sorted(settings.trash.iterdir(), reverse=True) if settings.trash.is_dir() else []:
        if not TRASH_ENTRY.fullmatch(entry.name):
            continue
        try:
            record = json.loads((entry / "record.json").read_text(encoding="utf-8"))
            video, labels = VideoRow(**record["video"]), list(record["labels"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # torn files, a database, or what somebody else put there
        media = video.source == "media" and settings.media_root is not None
        kept = media and (Path(str(settings.media_root)) / video.file).is_file()
        if kept or (UPLOAD.fullmatch(video.file) and (entry / video.file).is_file()):
            found.append((entry, video, labels))
    return found
