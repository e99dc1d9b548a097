"""Where in the picture something repeats: in one place, or in several, each of which is counted by itself.

What one body does has one rhythm, wherever in the picture its parts are, and whatever they do in it. So each cell of
a coarse grid is compared with itself some time later, at every time and for many lags: the map of these differences
says when the cell returns to an earlier state, and nothing of its phase. Cells of one motion have like maps. A
straight line is looked for that leaves like maps on either side, and unlike ones across; then each side is looked at
in the same way. Where the maps leave a doubt, what is counted on either side decides: one body has one tempo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from escounts.counting import Progress, part_of
from escounts.counting.views import BASE_RATE
from escounts.decision.decide import doubted
from escounts.decision.rules import RULES
from escounts.results import CountResult, DensityMap, Track
from escounts.system.arrays import Array32, Image
from escounts.video.files import Video
from escounts.video.in_memory import held_in_memory
from escounts.video.lag_maps import RATE, SIDE, blocks, lag_maps, windows_of
from escounts.video.regions import Region

GRID = 8
"""Cells of a side: those that the encoder's frame features have."""
NARROWEST = 2
"""Cells of a place's sides at least."""

TRAVELS = "what moves goes across the picture: no box follows it, and all of the picture is counted as one"
"""The reason of a result that was not divided."""
CountOne = Callable[[Video, "Progress | None"], CountResult]
"""Counts one video, or one box of it."""
FrameFeatures = Callable[[Sequence[Image]], Array32]
"""Images (SIDE, SIDE, 3) → features (T, GRID, GRID, C): the model's first look at each."""
Cells = tuple[int, int, int, int]
"""First column and row, and the ones behind the last."""


WHOLE = Region(0.0, 0.0, 100.0, 100.0, percent=True)
"""The place of a video that has no other."""


@dataclass(frozen=True)
class Places:
    """regions: boxes in percent that together are the whole picture, from left to right and from top to bottom.
    travels: what moves goes across it, so that it was not divided. tempo: how many times as long as the other's one
    place's repetitions must be for both to stand; 1 where they clearly differ."""

    regions: tuple[Region, ...] = (WHOLE,)
    travels: bool = False
    tempo: float = 1.0


def find_places(images: Iterable[Image], features: FrameFeatures, *, seconds: float) -> Places:
    """The places of a video.

    Args:
        images: (SIDE, SIDE, 3) RGB, RATE a second.
        features: of the model that counts.
        seconds: how long the video is, about.
    """
    windows = [
        # (difference maps, power of a cell's motion that is its weight) of what the model sees, and of the pixels
        ((lag_maps(features(window)), RULES.place_seen), (lag_maps(blocks(window, GRID)), RULES.place_pixels))
        for window in windows_of(images, seconds)
    ]
    if not windows or _travels(windows):
        return Places(travels=bool(windows))
    gain, found = _divided(windows, (0, 0, GRID, GRID), (RULES.places_beside, RULES.places_above))
    done = list[Cells]() if found else [(0, 0, GRID, GRID)]
    while found:
        box = found.pop()
        _, parts = _divided(windows, box, RULES.places_further)
        found += parts
        if not parts:
            done.append(box)
    done.sort(key=lambda box: (box[1], box[0]) if _above(done) else (box[0], box[1]))
    cell = 100.0 / GRID
    boxes = [
        Region(x * cell, y * cell, (right - x) * cell, (low - y) * cell, percent=True) for x, y, right, low in done
    ]
    doubt = (RULES.places_clear - gain) / (RULES.places_clear - RULES.places_beside) if len(boxes) == 2 else 0.0
    return Places(tuple(boxes), tempo=1.0 + RULES.places_tempo * max(0.0, doubt))


def _above(boxes: Sequence[Cells]) -> bool:
    """Whether all places are as wide as the picture, one above the other."""
    return all(box[2] - box[0] == GRID for box in boxes)


Windows = Sequence[tuple[tuple[Array32, float], ...]]


def _travels(windows: Windows) -> bool:
    """Whether what moves at first is elsewhere at last: of the pixels, from left to right. By how far they change,
    and not by its square: else of two people the livelier one is all that moves, and gone when it rests."""
    moves_KT = np.concatenate([maps[1][0][..., 0].mean(0) for maps in windows], axis=1)
    third = max(1, moves_KT.shape[1] // 3)
    first, last = (
        part / max(float(part.sum()), 1e-9)
        for part in (np.sqrt(moves_KT[:, :third].sum(1)), np.sqrt(moves_KT[:, -third:].sum(1)))
    )
    return bool(np.minimum(first, last).sum() < RULES.places_together)


def _divided(windows: Windows, box: Cells, least: tuple[float, float]) -> tuple[float, list[Cells]]:
    """The two halves of a box between which the rhythm changes most, and by how much; none where it is one.

    least: by how much it must, from left to right and from above to below.
    """
    x, y, right, low = box
    margin, best, halves = 0.0, 0.0, list[Cells]()
    for axis, wanted in zip((1, 0), least, strict=True):
        gains = sum(_gains(windows, box, axis, source) for source in range(2))
        for index, gain in enumerate(np.asarray(gains)[NARROWEST - 1 : 1 - NARROWEST], start=NARROWEST):
            if gain - wanted > margin:
                margin, best = float(gain - wanted), float(gain)
                cut = (x + index, low) if axis == 1 else (right, y + index)
                rest = (x + index, y) if axis == 1 else (x, y + index)
                halves = [(x, y, *cut), (*rest, right, low)]
    return best, halves


def _inside(maps: Array32, box: Cells) -> Array32:
    x, y, right, low = box
    return maps[y:low, x:right]


def _gains(windows: Windows, box: Cells, axis: int, source: int) -> Array32:
    """For every line across a box, how much liker its columns' (axis 1; rows': 0) maps are on either side than all
    are to one another: 0 (a line changes nothing) to 1. A side with little of the weight counts as much as the
    other: a narrow place has little."""
    count = _inside(windows[0][source][0], box).shape[axis]
    alike, motion = np.zeros((count, count)), np.zeros(count)
    for window in windows:
        lines_KTL = _inside(window[source][0], box).sum(1 - axis)
        mean_KT1 = lines_KTL.mean(2, keepdims=True)
        maps_KN = ((lines_KTL - mean_KT1) / np.sqrt(mean_KT1 + 1e-3)).reshape(len(lines_KTL), -1)
        alike += maps_KN @ maps_KN.T
        motion += mean_KT1.mean((1, 2))
    size = np.sqrt(np.diagonal(alike) + 1e-9)
    weight = motion ** windows[0][source][1]
    weight = weight / max(float(weight.sum()), 1e-9)
    common = alike / size / size[:, None] * weight * weight[:, None]

    def likeness(first: int, last: int) -> float:
        part = slice(first, last)
        return float(common[part, part].sum() / max(float(weight[part].sum()), 1e-9))

    before = np.cumsum(weight)[:-1]
    even = 2.0 * np.sqrt(np.maximum(before * (1.0 - before), 1e-7))
    gains = [likeness(0, k) + likeness(k, count) - likeness(0, count) for k in range(1, count)]
    return np.asarray(np.array(gains) / even, np.float32)


def count_each(
    video: Video,
    count: CountOne,
    features: FrameFeatures,
    *,
    start: float,
    end: float | None,
    progress: Progress | None = None,
) -> CountResult:
    """The result of a video with a track for each place. Places of which one has no repetitions, or that hardly
    differ and have one tempo, are one place."""
    held = held_in_memory(video, BASE_RATE, start, end)
    read = video if held is None else held
    images = (frame.image for frame in read.frames(size=(SIDE, SIDE), start=start, end=end, rate=RATE))
    places = find_places(images, features, seconds=(video.info.duration if end is None else end) - start)
    if len(places.regions) > 1:
        boxes = [_box(video, place) for place in places.regions]
        parts = [
            read.cropped(place if held is not None else box) for place, box in zip(places.regions, boxes, strict=True)
        ]
        found = _counted(parts, count, progress)
        if found and _apart(found, places.tempo):
            return replace(_together(found, [str(box) for box in boxes]), region=_looked_at(video))
    result = count(video if held is None else held, progress)
    return _as_one(replace(result, region=_looked_at(video)), str(_box(video, WHOLE)), travels=places.travels)


def _counted(parts: Sequence[Video], count: CountOne, progress: Progress | None) -> list[CountResult]:
    """The result of each part; none at all where one has no repetitions, after which no other is counted."""
    found, share = list[CountResult](), 1 / len(parts)
    for index, part in enumerate(parts):
        found.append(count(part, part_of(progress, index * share, share)))
        if not found[-1].count:
            return []
    return found


def _apart(results: Sequence[CountResult], tempo: float) -> bool:
    """Whether a repetition of one place takes so many times as long as one of another."""
    usual = [float(np.median([one.end - one.start for one in result.repetitions])) for result in results]
    return max(usual) >= tempo * min(usual)


def _as_one(result: CountResult, region: str, *, travels: bool) -> CountResult:
    if travels:
        most = doubted(result.confidence, result.unsure_below)
        result = replace(result, confidence=most, unsure=True, reasons=(*result.reasons, TRAVELS))
    return replace(result, tracks=(_track(result, region),) if result.count else ())


def _track(result: CountResult, region: str) -> Track:
    return Track(region, result.count, result.unit, result.confidence, result.unsure, result.repetitions)


def _together(results: Sequence[CountResult], regions: Sequence[str]) -> CountResult:
    """Results of several places of one video as one: the sum, as sure as the least sure of them.

    The unit stays open where places have different ones, and no other count is offered: each track stands by itself.
    """
    first = results[0]
    found = sorted((one for result in results for one in result.repetitions), key=lambda one: one.end)
    units = {result.unit for result in results if result.count}
    reasons = (f"place {number}: {reason}" for number, one in enumerate(results, 1) for reason in one.reasons)
    return replace(
        first,
        count=len(found),
        raw_count=sum(result.raw_count for result in results),
        repetitions=tuple(found),
        density=_sum([result.density for result in results]),
        confidence=min(result.confidence for result in results),
        unsure=any(result.unsure for result in results),
        reasons=tuple(reasons),
        unit=units.pop() if len(units) == 1 else None,
        hypotheses=(),
        details={},
        sets=(),
        tracks=tuple(_track(result, region) for result, region in zip(results, regions, strict=True)),
    )


def _sum(maps: Sequence[DensityMap]) -> DensityMap:
    """All places' repetitions per cell; a map that ends earlier has none there."""
    total = np.zeros(max(len(one.values) for one in maps), np.float32)
    for one in maps:
        total[: len(one.values)] += one.values
    return replace(maps[0], values=total)


def _looked_at(video: Video) -> str | None:
    return None if video.info.region is None else str(Region(*video.info.region))


def _box(video: Video, place: Region) -> Region:
    """A place of what is looked at of a video, in pixels of its picture."""
    left, top, _, _ = video.info.region or (0, 0, 0, 0)
    x, y, width, height = place.box(video.info.width, video.info.height)
    return Region(left + x, top + y, width, height)
