"""ELAN's .eaf: one video with tiers of annotations; those of one tier are the repetitions. Times in milliseconds.

Read by expat event by event: a document type, and with it every entity, is refused, so nothing can be expanded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from escounts.datasets.annotation_formats.labelled_file import LabelError, LabelledFile, base_name, chosen

TIER = "repetitions"
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


class _Reader:
    """Collects time slots, tiers and media of a document."""

    def __init__(self) -> None:
        self.slots: dict[str, int | None] = {}
        self.tiers: dict[str, list[tuple[str, str, list[str]]]] = {}
        self.media = ""
        self._tier = ""
        self._value: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "MEDIA_DESCRIPTOR" and not self.media:
            self.media = base_name(unquote(attributes.get("RELATIVE_MEDIA_URL") or attributes.get("MEDIA_URL", "")))
        elif tag == "TIME_SLOT":
            time = attributes.get("TIME_VALUE")
            self.slots[attributes["TIME_SLOT_ID"]] = None if time is None else int(time)
        elif tag == "TIER":
            self._tier = attributes["TIER_ID"]
            self.tiers.setdefault(self._tier, [])
        elif tag == "ALIGNABLE_ANNOTATION":
            self.tiers[self._tier].append((attributes["TIME_SLOT_REF1"], attributes["TIME_SLOT_REF2"], []))
        elif tag == "ANNOTATION_VALUE" and self.tiers.get(self._tier):
            self._value = self.tiers[self._tier][-1][2]

    def end(self, tag: str) -> None:
        if tag == "ANNOTATION_VALUE":
            self._value = None

    def text(self, text: str) -> None:
        if self._value is not None:
            self._value.append(text)


def read(text: str, only: str | None = None, fps: float | None = None) -> list[LabelledFile]:
    """The annotations of one tier. only: the tier. fps is not needed. The action is the value that all of them share,
    else the tier's name."""
    reader = _parsed(text)
    tier = chosen((name for name, marks in reader.tiers.items() if marks or name in (only, TIER)), only, "tier")
    spans, values = [], set()
    for first, last, value in reader.tiers.get(tier or "", ()):
        start, end = reader.slots.get(first), reader.slots.get(last)
        if start is None or end is None:
            raise LabelError(f"tier {tier!r} has an annotation without a time; align it in ELAN first")
        if not 0 <= start < end:
            raise LabelError(f"tier {tier!r} has an annotation from {start} to {end} ms")
        spans.append((start / 1000, end / 1000))
        values.add("".join(value).strip())
    shared = next(iter(values)) if len(values) == 1 else ""
    action = shared or ("" if tier in (None, TIER) else tier or "")
    return [LabelledFile(reader.media, tuple(sorted(spans)), action)]


def _parsed(text: str) -> _Reader:
    reader = _Reader()
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise LabelError("it has a document type or an entity, which an .eaf never has; it is not read")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise LabelError(f"not a whole XML file: {error}") from error
    except (KeyError, ValueError) as error:
        raise LabelError(f"not an .eaf file of ELAN: {error}") from error
    return reader


def write(videos: Sequence[LabelledFile]) -> str:
    """One video as an .eaf of format 3.0 with one tier; the action is the value of every annotation."""
    if len(videos) != 1:
        raise LabelError(f"an .eaf holds one video, not {len(videos)}")
    (video,) = videos
    slots, marks = [], []
    value = escape(_xml(video.action or "repetition"))
    for index, (start, end) in enumerate(video.spans):
        first, last = f"ts{2 * index + 1}", f"ts{2 * index + 2}"
        for name, time in ((first, start), (last, end)):
            slots.append(f'        <TIME_SLOT TIME_SLOT_ID="{name}" TIME_VALUE="{round(time * 1000)}"/>\n')
        marks.append(
            f'        <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a{index + 1}" TIME_SLOT_REF1="{first}" '
            f'TIME_SLOT_REF2="{last}"><ANNOTATION_VALUE>{value}</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION>'
            "</ANNOTATION>\n"
        )
    media = quoteattr("./" + _xml(base_name(video.file)).replace("%", "%25"))  # a URL
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ANNOTATION_DOCUMENT AUTHOR="escounts" DATE="1970-01-01T00:00:00+00:00" FORMAT="3.0" VERSION="3.0" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="http://www.mpi.nl/tools/elan/EAFv3.0.xsd">\n'
        '    <HEADER MEDIA_FILE="" TIME_UNITS="milliseconds">\n'
        f'        <MEDIA_DESCRIPTOR MEDIA_URL={media} MIME_TYPE="video/mp4" RELATIVE_MEDIA_URL={media}/>\n'
        "    </HEADER>\n"
        f"    <TIME_ORDER>\n{''.join(slots)}    </TIME_ORDER>\n"
        f'    <TIER LINGUISTIC_TYPE_REF="default-lt" TIER_ID="{TIER}">\n{"".join(marks)}    </TIER>\n'
        '    <LINGUISTIC_TYPE GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="default-lt" TIME_ALIGNABLE="true"/>\n'
        "</ANNOTATION_DOCUMENT>\n"
    )


def _xml(text: str) -> str:
    """The text without characters that no XML may hold."""
    return NOT_XML.sub("", text)
