"""Each place of a video where something repeats, counted by itself. A video that fits in memory is read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from escounts.counting.places import WHOLE, FrameFeatures, Places, find_places
from escounts.counting.protocols import Progress
from escounts.counting.views import BASE_RATE
from escounts.decision.tracks import together, track_of
from escounts.video.files import Video
from escounts.video.in_memory import held_in_memory
from escounts.video.lag_maps import RATE, SIDE
from escounts.video.regions import Region

if TYPE_CHECKING:
    from escounts.results import CountResult

TRAVELS = "what moves goes across the picture: no box follows it, and all of the picture is counted as one"
"""The reason of a result that was not divided."""
CountOne = Callable[[Video, "Progress | None"], "CountResult"]
"""Counts one video, or one box of it."""


def count_each(
    video: Video,
    count: CountOne,
    features: FrameFeatures,
    *,
    start: float,
    end: float | None,
    progress: Progress | None = None,
) -> CountResult:
    """The result of a video with a track for each place. Places of which one has no repetitions are one place."""
    held = held_in_memory(video, BASE_RATE, start, end)
    read = video if held is None else held
    images = (frame.image for frame in read.frames(size=(SIDE, SIDE), start=start, end=end, rate=RATE))
    places = find_places(images, features, seconds=(video.info.duration if end is None else end) - start)
    if len(places.regions) > 1:
        boxes = [_box(video, place) for place in places.regions]
        parts = [
            read.cropped(place if held is not None else box) for place, box in zip(places.regions, boxes, strict=True)
        ]
        found = [count(part, _share(progress, index, len(parts))) for index, part in enumerate(parts)]
        if all(result.count for result in found):
            return replace(together(found, [str(box) for box in boxes]), region=_looked_at(video))
    result = count(video if held is None else held, progress)
    return _as_one(replace(result, region=_looked_at(video)), str(_box(video, WHOLE)), places)


def _as_one(result: CountResult, region: str, places: Places) -> CountResult:
    if places.travels:
        result = replace(result, unsure=True, reasons=(*result.reasons, TRAVELS))
    return replace(result, tracks=(track_of(result, region),) if result.count else ())


def _looked_at(video: Video) -> str | None:
    return None if video.info.region is None else str(Region(*video.info.region))


def _box(video: Video, place: Region) -> Region:
    """A place of what is looked at of a video, in pixels of its picture."""
    left, top, _, _ = video.info.region or (0, 0, 0, 0)
    x, y, width, height = place.box(video.info.width, video.info.height)
    return Region(left + x, top + y, width, height)


def _share(progress: Progress | None, index: int, of: int) -> Progress | None:
    """The progress of one of several equal parts."""
    if progress is None:
        return None
    return lambda done, total: progress((index * total + done) / of, total)
