"""Labels there and back through the formats of other tools, and what those tools really write."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escounts.errors import DataError
from escounts.research.datasets.annotation_formats import (
    FORMATS,
    Format,
    LabelledFile,
    guess_format,
    read_labels,
    write_labels,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/\\"), min_size=1)
ACTIONS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")) | st.sampled_from("=+-@|＝,;'\""), max_size=12
).map(str.strip)


@st.composite
def labelled(draw: st.DrawFn) -> LabelledFile:
    """A video of which no moment is in two repetitions; times in whole milliseconds at 25 frames a second."""
    steps = draw(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), max_size=8))
    spans, now = [], 0
    for gap, length in steps:
        spans.append(((now + gap) / 25, (now + gap + length) / 25))
        now += gap + length
    return LabelledFile(draw(NAMES), tuple(spans), draw(ACTIONS), fps=25.0, duration=(now + 25) / 25)


@pytest.mark.parametrize("name", list(FORMATS))
@given(video=labelled())
def test_there_and_back(name: Format, video: LabelledFile) -> None:
    ((file, text),) = write_labels([video], name).items()
    assert FORMATS[guess_format(file, text)].read is FORMATS[name].read
    (back,) = FORMATS[name].read(text, None, None)
    assert back.file == video.file
    assert [(round(a, 3), round(b, 3)) for a, b in back.spans] == [(round(a, 3), round(b, 3)) for a, b in video.spans]
    if video.spans:
        assert back.action in (video.action or "repetition", video.action)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "elan"])
def test_several_videos_share_a_file(name: Format) -> None:
    videos = [LabelledFile("a.mp4", ((0.0, 1.0),), "squat"), LabelledFile("still.mp4", (), "squat")]
    (text,) = write_labels(videos, name).values()
    assert [(v.file, v.spans) for v in FORMATS[name].read(text, None, None)] == [(v.file, v.spans) for v in videos]


def test_elan_writes_one_file_per_video() -> None:
    names = ["a.mp4", "a.mov", "A.MP4", "sub/a.mp4", "b.mp4"]
    files = write_labels([LabelledFile(name, ((0.0, 1.0),)) for name in names], "elan")
    assert list(files) == ["a.mp4.eaf", "a.mov.eaf", "A.MP4 (2).eaf", "a.mp4 (3).eaf", "b.mp4.eaf"]
    back = [FORMATS["elan"].read(text, None, None)[0].file for text in files.values()]
    assert back == ["a.mp4", "a.mov", "A.MP4", "a.mp4", "b.mp4"]


BORIS_AGGREGATED = (
    "Observation id,Observation date,Description,Media file,Total length,FPS,Start time,Stop time,Duration,"
    "Test status,Subject,Behavior,Behavioral category,Modifiers,Behavior type,Start (s),Stop (s),Duration (s),"
    "Comment start,Comment stop\n"
    "one,2021-12-06 13:26:24,,T:/Videos of us/6008.mp4,1381.010,29.97,2000-01-01T00:00:00,2000-01-01T00:00:00,,,"
    "No focal subject,jump,,,STATE,689.000,690.500,1.500,,\n"
    "one,2021-12-06 13:26:24,,T:/Videos of us/6008.mp4,1381.010,29.97,2000-01-01T00:00:00,2000-01-01T00:00:00,,,"
    "No focal subject,rest,,,STATE,700.000,750.421,50.421,,\n"
)
BORIS_TABULAR_OLD = (
    "Observation id,one\n\nMedia file(s)\nPlayer #1,clip.avi\n\n"
    "Time,Media file path,Total length,FPS,Subject,Behavior,Behavioral category,Comment,Status\n"
    "1.5,C:\\videos\\clip.avi,20.0,25.0,,jump,,,START\n2.5,C:\\videos\\clip.avi,20.0,25.0,,jump,,,STOP\n"
    "2.5,C:\\videos\\clip.avi,20.0,25.0,,jump,,,START\n3.25,C:\\videos\\clip.avi,20.0,25.0,,jump,,,STOP\n"
)
BORIS_POINTS = (
    "Observation id\tObservation type\tSource\tMedia duration (s)\tFPS\tSubject\tBehavior\tBehavior type\tTime\t"
    "Media file name\n"
    + "".join(f"one\tMedia file(s)\tx\t20\t25\t\tjump\tPOINT\t{time}\tv/clip.mp4\n" for time in (2.0, 3.0, 4.5))
)


def test_what_boris_writes(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(BORIS_AGGREGATED)
    with pytest.raises(DataError, match="several of a behaviour: 'jump', 'rest'; say which one"):
        read_labels(path)
    assert read_labels(path, only="jump") == [LabelledFile("6008.mp4", ((689.0, 690.5),), "jump", 29.97, 1381.01)]
    with pytest.raises(DataError, match="no behaviour 'hop'; there are 'jump', 'rest'"):
        read_labels(path, only="hop")
    path.write_text(BORIS_TABULAR_OLD)
    assert read_labels(path)[0].spans == ((1.5, 2.5), (2.5, 3.25))
    path.write_text(BORIS_POINTS)
    assert read_labels(path) == [LabelledFile("clip.mp4", ((0.75, 2.0), (2.0, 3.0), (3.0, 4.5)), "jump", 25.0, 20.0)]
    path.write_text(BORIS_TABULAR_OLD.replace("3.25,C:\\videos\\clip.avi,20.0,25.0,,jump,,,STOP\n", ""))
    with pytest.raises(DataError, match=r"START at 2\.5 s has no STOP"):
        read_labels(path)


EAF = """<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT AUTHOR="" DATE="2017-01-13T13:07:31+01:00" FORMAT="2.8" VERSION="2.8">
  <HEADER MEDIA_FILE="" TIME_UNITS="milliseconds">
    <MEDIA_DESCRIPTOR MEDIA_URL="file:///C:/My%20clips/jump.mp4" MIME_TYPE="video/mp4"/>
  </HEADER>
  <TIME_ORDER><TIME_SLOT TIME_SLOT_ID="ts1" TIME_VALUE="500"/><TIME_SLOT TIME_SLOT_ID="ts2" TIME_VALUE="1750"/>
    <TIME_SLOT TIME_SLOT_ID="ts3"/></TIME_ORDER>
  <TIER LINGUISTIC_TYPE_REF="default-lt" TIER_ID="jumps">
    <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts2">
      <ANNOTATION_VALUE>1</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
  </TIER>
  <TIER LINGUISTIC_TYPE_REF="default-lt" TIER_ID="empty"/>
</ANNOTATION_DOCUMENT>
"""


def test_what_elan_writes(tmp_path: Path) -> None:
    path = tmp_path / "jump.eaf"
    path.write_text(EAF)
    assert read_labels(path) == [LabelledFile("jump.mp4", ((0.5, 1.75),), "1")]
    path.write_text(EAF.replace('TIME_SLOT_REF2="ts2"', 'TIME_SLOT_REF2="ts3"'))
    with pytest.raises(DataError, match="without a time; align it in ELAN"):
        read_labels(path)
    again = EAF.replace('TIER_ID="empty"/>', 'TIER_ID="jumps"/>')
    path.write_text(again)
    assert read_labels(path) == [LabelledFile("jump.mp4", ((0.5, 1.75),), "1")], "two tiers of one name are one"


BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]>'


@pytest.mark.parametrize(
    "text",
    [
        EAF.replace("<ANNOTATION_DOCUMENT", f"{BOMB}<ANNOTATION_DOCUMENT", 1),
        EAF.replace("<ANNOTATION_DOCUMENT", '<!DOCTYPE a SYSTEM "file:///etc/passwd"><ANNOTATION_DOCUMENT', 1),
        EAF[:300],
        EAF.replace('"500"', '"soon"'),
        EAF.replace('TIER_ID="jumps"', ""),
    ],
)
def test_no_entity_is_expanded_and_no_torn_file_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.eaf"
    path.write_text(text)
    with pytest.raises(DataError, match=r"bad\.eaf: (it has a document type|not a)"):
        read_labels(path)


def test_points_become_repetitions_that_end_there() -> None:
    head = "Media file,Behavior,Behavior type,Time\n"
    text = head + "".join(f"a.mp4,jump,POINT,{time}\n" for time in (3, 1, 2))
    (found,) = FORMATS["boris-tabular"].read(text, None, None)
    assert found.spans == ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0))
    assert found.places == ("line 3", "line 4", "line 2")


def test_a_broken_line_of_a_csv_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("file,start_s,end_s\na.mp4,0,1\na.mp4,2,1\n")
    with pytest.raises(DataError, match="line 3: end 1 s is not after start 2 s"):
        read_labels(path)


@pytest.mark.parametrize("name", ["boris", "boris-tabular"])
def test_boris_cells_are_not_formulas_and_read_back(name: Format) -> None:
    (text,) = write_labels([LabelledFile("=1+1.mp4", ((0.0, 1.0),), "@cmd")], name).values()
    assert not [cell for row in csv.reader(io.StringIO(text)) for cell in row if cell.startswith(("=", "@"))]
    (back,) = FORMATS[name].read(text, None, None)
    assert (back.file, back.action) == ("=1+1.mp4", "@cmd")


@pytest.mark.parametrize("name", ["csv", "boris", "boris-tabular"])
def test_a_table_may_end_its_lines_in_any_way_and_holds_no_endless_cell(name: Format) -> None:
    """Text that a page sends has the line ends of whoever wrote it."""
    (text,) = write_labels([LabelledFile("a.mp4", ((0.5, 1.0), (1.0, 2.0)), "jump")], name).values()
    read = FORMATS[name].read
    assert read(text.replace("\n", "\r"), None, None) == read(text, None, None) != []
    with pytest.raises(DataError, match=r"^line \d+: field larger"):
        read(text.replace("a.mp4", "a" * 200_000), None, None)
