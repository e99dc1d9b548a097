"""Formats that hold marks on a video's timeline: ELAN's .eaf and Label Studio's JSON.

ELAN: one video with tiers of annotations; those of one tier are the repetitions. Times in milliseconds. A document
type, and with it every entity, is refused, so nothing can be expanded.

Label Studio: tasks whose annotations hold timeline regions of a video, in frames counted from 1.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from escounts.errors import DataError
from escounts.research.datasets.annotation_formats.labels import (
    LabelledFile,
    base_name,
    by_file,
    grouped,
    of_one_action,
)
from escounts.research.datasets.annotations import Span

TIER = "repetitions"
DOCUMENT = {
    "AUTHOR": "escounts",
    "DATE": "1970-01-01T00:00:00+00:00",
    "FORMAT": "3.0",
    "VERSION": "3.0",
    "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
    "xsi:noNamespaceSchemaLocation": "http://www.mpi.nl/tools/elan/EAFv3.0.xsd",
}
LINGUISTIC_TYPE = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": "default-lt", "TIME_ALIGNABLE": "true"}
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def read_elan(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The annotations of one tier. only: the tier. fps is not needed. The action is the value that all of them share,
    else the tier's name."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # XML escapes these everywhere else
        raise DataError("it has a document type or an entity, which an .eaf never has; it is not read")
    try:
        document = ElementTree.fromstring(text)
        slots = {slot.attrib["TIME_SLOT_ID"]: slot.get("TIME_VALUE") for slot in document.iter("TIME_SLOT")}
        times = {name: None if value is None else int(value) for name, value in slots.items()}
        tiers: dict[str, list[ElementTree.Element]] = {}
        for tier in document.iter("TIER"):
            tiers.setdefault(tier.attrib["TIER_ID"], []).extend(tier.iter("ALIGNABLE_ANNOTATION"))
        media = next(filter(None, (_media(found.attrib) for found in document.iter("MEDIA_DESCRIPTOR"))), "")
        marks = [
            LabelledFile(
                media, (_aligned(times, tier, one),), tier, places=(f"annotation {one.get('ANNOTATION_ID', n)}",)
            )
            for tier, annotations in tiers.items()
            for n, one in enumerate(annotations, start=1)
        ]
    except ElementTree.ParseError as error:
        raise DataError(f"not a whole XML file: {error}") from error
    except (KeyError, ValueError) as error:
        raise DataError(f"not an .eaf file of ELAN: {error}") from error
    if not marks or only in tiers:  # a tier without annotations says that there are none
        marks += [LabelledFile(media, (), only or "" if only in tiers else "")]
    (found,) = of_one_action(by_file(marks, only, "tier"), "tier")
    values = {"".join(one.findtext("ANNOTATION_VALUE") or "").strip() for one in tiers.get(found.action, ())}
    shared = next(iter(values)) if len(values) == 1 else ""
    return [replace(found, action=shared or ("" if found.action == TIER else found.action))]


def _media(attributes: Mapping[str, str]) -> str:
    return base_name(unquote(attributes.get("RELATIVE_MEDIA_URL") or attributes.get("MEDIA_URL", "")))


def _aligned(times: Mapping[str, int | None], tier: str, annotation: ElementTree.Element) -> Span:
    start, end = (times.get(annotation.attrib[f"TIME_SLOT_REF{side}"]) for side in (1, 2))
    if start is None or end is None:
        raise DataError(f"tier {tier!r} has an annotation without a time; align it in ELAN first")
    if not 0 <= start < end:
        raise DataError(f"tier {tier!r} has an annotation from {start} to {end} ms")
    return start / 1000, end / 1000


def write_elan(videos: Sequence[LabelledFile]) -> str:
    """One video as an .eaf of format 3.0 with one tier, or one for each of its actions; the action is the value of
    every annotation."""
    if len(grouped(videos)) != 1:
        raise DataError(f"an .eaf holds one video, not {len(grouped(videos))}")
    document = ElementTree.Element("ANNOTATION_DOCUMENT", DOCUMENT)
    header = ElementTree.SubElement(document, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    media = "./" + _xml(base_name(videos[0].file)).replace("%", "%25")  # a URL
    about = {"MEDIA_URL": media, "MIME_TYPE": "video/mp4", "RELATIVE_MEDIA_URL": media}
    ElementTree.SubElement(header, "MEDIA_DESCRIPTOR", about)
    order = ElementTree.SubElement(document, "TIME_ORDER")
    numbers = count(1)
    for video in videos:
        name = TIER if len(videos) == 1 else _xml(video.action) or TIER
        tier = ElementTree.SubElement(document, "TIER", LINGUISTIC_TYPE_REF="default-lt", TIER_ID=name)
        for span, number in zip(video.spans, numbers, strict=False):
            ends = {f"TIME_SLOT_REF{side}": f"ts{2 * number - 2 + side}" for side in (1, 2)}
            for slot, time in zip(ends.values(), span, strict=True):
                value = str(round(time * 1000))
                ElementTree.SubElement(order, "TIME_SLOT", TIME_SLOT_ID=slot, TIME_VALUE=value)
            annotation = ElementTree.SubElement(tier, "ANNOTATION")
            timed = ElementTree.SubElement(
                annotation, "ALIGNABLE_ANNOTATION", {"ANNOTATION_ID": f"a{number}", **ends}
            )
            ElementTree.SubElement(timed, "ANNOTATION_VALUE").text = _xml(video.action or "repetition")
    ElementTree.SubElement(document, "LINGUISTIC_TYPE", LINGUISTIC_TYPE)
    ElementTree.indent(document, "    ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(document, encoding="unicode")}\n'


def _xml(text: str) -> str:
    """The text without characters that no XML may hold."""
    return NOT_XML.sub("", text)


LABEL = "Repetition"
FROM_NAME = "repetitions"
TO_NAME = "video"
MOST_FRAMES = 1e9
USUAL_RATE = 25.0
"""Frames a second where neither the video nor the reader states them."""


def write_label_studio(videos: Sequence[LabelledFile]) -> str:
    """A list of tasks, one per video."""
    return json.dumps([task(group) for group in grouped(videos)], indent=1) + "\n"


def task(videos: Sequence[LabelledFile]) -> dict[str, Any]:
    """One task of a video's actions whose annotation has a timeline region for every repetition; fps is kept in the
    task's data."""
    first = videos[0]
    fps = first.fps or USUAL_RATE
    regions = [
        {
            "id": hashlib.sha256(f"{video.file}:{start:.3f}-{end:.3f}".encode()).hexdigest()[:10],
            "type": "timelinelabels",
            "from_name": FROM_NAME,
            "to_name": TO_NAME,
            "origin": "manual",
            "value": {
                "ranges": [{"start": round(start * fps) + 1, "end": round(end * fps) + 1}],
                "timelinelabels": [video.action or LABEL],
            },
            "meta": {"start_s": round(start, 3), "end_s": round(end, 3)},
        }
        for video in videos
        for start, end in video.spans
    ]
    data = {"video": first.file, "fps": fps, "duration": first.duration}
    return {
        "data": {name: value for name, value in data.items() if value is not None},
        "annotations": [{"result": regions, "was_cancelled": False, "ground_truth": False}],
    }


def read_label_studio(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """An export: one task or a list of them. only: the label that is meant. fps: where a task states none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from error
    return read_tasks(document, only, fps)


def read_tasks(document: object, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The same from JSON values."""
    tasks: list[Any] = document if isinstance(document, list) else [document]
    if not tasks or not all(isinstance(item, dict) for item in tasks):
        raise DataError("expected Label Studio tasks: objects with annotations")
    marks = [mark for item in tasks for mark in _marks(item, fps)]
    found = of_one_action(by_file(marks, only, "label"), "label")
    return [replace(file, action="" if file.action == LABEL else file.action) for file in found]


def _marks(item: dict[str, Any], fps: float | None) -> Iterator[LabelledFile]:
    data = item.get("data")
    data = data if isinstance(data, dict) else {}
    own = _number(data.get("fps"))
    rate = own if own is not None and 1 <= own <= 1000 else fps or USUAL_RATE
    duration = _number(data.get("duration"))
    name = next((value for value in (data.get("video"), item.get("file_upload")) if isinstance(value, str)), "")
    none = LabelledFile(base_name(name), (), fps=rate, duration=duration)
    marks = [
        replace(none, action=_label(region), spans=(span,), places=(f"region {place}",))
        for place, region in enumerate(_regions(item), start=1)
        for mark in (region["value"].get("ranges") if isinstance(region["value"].get("ranges"), list) else [])
        if (span := _span(mark, rate))[1] > span[0]
    ]
    yield from marks or [none]


def _regions(item: dict[str, Any]) -> list[dict[str, Any]]:
    groups = item.get("annotations") or item.get("predictions")
    if not isinstance(groups, list):
        raise DataError("expected a Label Studio task with a list called annotations (or predictions)")
    regions: list[dict[str, Any]] = []
    for group in groups:
        result = group.get("result") if isinstance(group, dict) else None
        if not isinstance(result, list):
            raise DataError("annotations: expected objects with a list called result")
        regions += [
            region
            for region in result
            if isinstance(region, dict)
            and region.get("type") == "timelinelabels"
            and isinstance(region.get("value"), dict)
        ]
    return regions


def _label(region: dict[str, Any]) -> str:
    names = region["value"].get("timelinelabels")
    named = isinstance(names, list) and names and isinstance(names[0], str)
    return names[0].encode("utf-8", "ignore").decode() if named else LABEL


def _span(mark: object, fps: float) -> tuple[float, float]:
    start, end = (_number(mark.get(name)) if isinstance(mark, dict) else None for name in ("start", "end"))
    if start is None or end is None:
        raise DataError("ranges: expected objects with start and end, in frames counted from 1")
    return round(max(start - 1, 0.0) / fps, 3), round(max(end - 1, 0.0) / fps, 3)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MOST_FRAMES:
        return None
    return float(value)
