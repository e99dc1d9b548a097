"""The real label files load with the paper's row counts; every oddity is named, none is dropped in silence."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from escounts.errors import DataError
from escounts.research.datasets import counted, folder, timed
from escounts.research.datasets.annotations import Dataset, Problem, VideoAnnotation, assemble, checked
from escounts.research.datasets.registry import check_files, load_dataset
from escounts.research.datasets.stores import load_labels, save_labels


@pytest.fixture(scope="module")
def labels(shared: Path) -> Path:
    return shared / "annotations"


ROWS = {
    # dataset: rows in the files, and rows that can be used
    "repcount": ({"train": 758, "valid": 131, "test": 152}, {"train": 757, "valid": 131, "test": 152}),
    "repcount-open": ({"train": 646, "valid": 128, "test": 250}, {"train": 646, "valid": 128, "test": 250}),
    "countix": ({"train": 4503, "valid": 1433, "test": 2640}, {"train": 4501, "valid": 1427, "test": 2636}),
    "countix-frames": (
        {"train": 4277, "valid": 1406, "test": 2453},
        {"train": 4209, "valid": 1382, "test": 2440},
    ),
    "countix-av": ({"train": 989, "valid": 311, "test": 561}, {"train": 987, "valid": 311, "test": 561}),
    "ucfrep": ({"train": 421, "valid": 105}, {"train": 421, "valid": 105}),
}


@pytest.mark.parametrize("name", ROWS)
def test_real_labels_load_with_the_published_row_counts(labels: Path, name: str) -> None:
    dataset = load_dataset(name, labels)
    rows, usable = ROWS[name]
    assert dict(dataset.rows) == rows
    assert {split: len(dataset.split(split)) for split in dataset.splits} == usable
    left_out = sum(problem.unusable for problem in dataset.problems)
    assert left_out == sum(rows.values()) - sum(usable.values()), "every row left out has a named problem"


def test_repcount_oddities_are_named_and_counts_kept(labels: Path) -> None:
    dataset = load_dataset("repcount", labels)
    named = {problem.name: problem.what for problem in dataset.problems}
    assert set(named) == {"stu6_44.mp4", "stu6_5.mp4", "stu4_3.mp4", "test118.mp4", "stu4_5.mp4"}
    short = dataset.find("test118.mp4")
    assert short.count == 6
    assert len(short.spans) == 5
    pointlike = dataset.find("stu4_5.mp4")
    assert pointlike.count == len(pointlike.spans) == 51
    assert len(pointlike.exemplars) == 41
    assert [video.name for video in dataset.videos if video.count == 0 and video.split == "test"] == ["train143.mp4"]


def test_aliases_are_one_class(labels: Path) -> None:
    dataset = load_dataset("repcount", labels)
    assert not {"squant", "pullups", "pushups", "jumpjacks", "benchpressing", "frontraise"} & set(dataset.actions)
    assert dataset.actions["squat"] == 80 + 21 + 12 + 4 + 13 + 5


def test_frames_become_seconds_at_each_videos_own_rate(labels: Path) -> None:
    slow = load_dataset("repcount", labels).find("train951.mp4")
    assert slow.fps is not None
    assert slow.spans[0] == pytest.approx((6 / slow.fps, 72 / slow.fps))
    joined = load_dataset("repcount-open", labels).find("train951.mp4")
    assert joined.spans == slow.spans, "the open-set tables have no frame rate; it is joined by name"
    trimmed = load_dataset("ucfrep", labels).find("UCF-101/JumpRope/v_JumpRope_g22_c04.avi")
    assert trimmed.spans[0] == pytest.approx((0.0, 15 / 25)), "labels count from the file's start, spans from ours"
    assert trimmed.begin == pytest.approx(2 / 25)
    assert trimmed.duration == pytest.approx(223 / 25)
    assert trimmed.action == "JumpRope"


def test_countix_is_divided_evenly_and_keyed_by_id_and_start(labels: Path) -> None:
    dataset = load_dataset("countix", labels)
    names = [video.name for video in dataset.videos]
    assert len(names) == len(set(names))
    video = dataset.find("ADtYZmfgeSM_102.00000")
    assert video.pseudo
    assert video.count == len(video.spans) == 10
    assert video.file == "ADtYZmfgeSM_000102_000112.mp4"
    assert video.spans[-1][1] == pytest.approx(3.770437)
    framed = load_dataset("countix-frames", labels).find("ADtYZmfgeSM_0.00000_3.77044.mp4")
    assert framed.action == video.action == "battle rope training", "the frames form takes its classes from beside"
    assert framed.footage == video.footage


def test_every_usable_span_lies_in_its_video(labels: Path) -> None:
    for name in ROWS:
        for video in load_dataset(name, labels).videos:
            for start, end in video.spans:
                assert 0 <= start <= end, f"{name}: {video.name}"
                assert video.duration is None or end <= video.duration + 0.1, f"{name}: {video.name}"


def write_labels(root: Path, text: str) -> Path:
    (root / "labels.csv").write_text(text)
    return root


def test_own_folder_with_times(tmp_path: Path) -> None:
    text = "file,start_s,end_s,class\na.mp4,0.5,1.5,squat\na.mp4,1.5,2.4,squat\nb.mp4,,,squat\nc.mp4,3,4,squat\n"
    dataset = folder.load_folder(write_labels(tmp_path, text))
    first = dataset.find("a.mp4")
    assert first.spans == ((0.5, 1.5), (1.5, 2.4))
    assert first.count == 2
    assert dataset.find("b.mp4").count == 0, "a video with no repetitions is kept"
    assert len(dataset.split("valid")) == 1, "one is held out"


def test_own_folder_with_counts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "video_seconds", lambda path: 8.0)
    (tmp_path / "a.mp4").touch()
    dataset = folder.load_folder(write_labels(tmp_path, "file,count\na.mp4,4\n"))
    assert dataset.find("a.mp4").spans == ((0, 2), (2, 4), (4, 6), (6, 8))
    assert dataset.find("a.mp4").pseudo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,start_s,end_s\na.mp4,2,1\n", "end 1 s is not after start 2 s"),
        ("file,start_s,end_s\na.mp4,two,3\n", "are not numbers"),
        ("file,count\na.mp4,2.5\n", "is not a whole number"),
        ("file,count\ngone.mp4,2\n", "no such video"),
        ("file,count\na.mp4,2\na.mp4,3\n", "appears 2 times"),
    ],
)
def test_bad_rows_of_an_own_folder_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(folder, "video_seconds", lambda path: 5.0)
    (tmp_path / "a.mp4").touch()
    dataset = folder.load_folder(write_labels(tmp_path, text))
    assert any(said in problem.what for problem in dataset.problems), dataset.problems
    assert all(problem.name in ("a.mp4", "gone.mp4") for problem in dataset.problems)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,when\na.mp4,3\n", "needs columns"),
        ("file,count\n", "no rows"),
        ("x\n1\n", "no column file"),
    ],
)
def test_unusable_label_tables_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        folder.load_folder(write_labels(tmp_path, text))


def test_ovr_stretches_become_pseudo_labels(tmp_path: Path) -> None:
    entries = [
        {
            "video_id": "abc",
            "timestamp_sec": 12.5,
            "split": "test",
            "ovr_annotations": [{"start_time": 1.0, "end_time": 4.0, "count": 3, "description": "Cutting onions"}],
        },
        {"video_id": "def", "timestamp_sec": 1, "ovr_annotations": [{"start_time": 5, "end_time": 2, "count": 3}]},
        {"ovr_annotations": []},
    ]
    (tmp_path / "ovr_ego4d_release.json").write_text(json.dumps(entries))
    dataset = counted.load_ovr(tmp_path)
    video = dataset.find("abc_12.500")
    assert video.spans == ((1, 2), (2, 3), (3, 4))
    assert video.action == "cutting onions"
    assert {problem.name for problem in dataset.problems} == {"def_1.000", "entry 2", "split lists"}


def test_a_table_of_counts_may_state_lengths_sets_and_one_marked_repetition(tmp_path: Path) -> None:
    (tmp_path / "dev.csv").write_text(
        "file,set,count,duration_s,exemplar_start_s,exemplar_end_s\ndev/a.mp4,rope,4,8.0,2.5,4.25\nb.mp4,rope,2,3.0,,\n"
    )
    dataset = folder.load_folder(tmp_path / "dev.csv")  # no video is opened: there is none
    first, second = dataset.split("all")
    assert (first.action, first.count, first.duration, first.exemplars) == ("rope", 4, 8.0, ((2.5, 4.25),))
    assert second.exemplars == ((0.0, 1.5), (1.5, 3.0))
    save_labels(tmp_path, dataset)
    assert load_labels(tmp_path, "folder").videos == dataset.videos


def test_ovr_splits_are_stated_by_the_stretches(tmp_path: Path) -> None:
    stretch = {"start_time": 0.5, "end_time": 9.5, "count": 6, "description": "Jumping", "duration": 10.0}
    entries = [
        {"video_id": "abc", "ovr_annotations": [{**stretch, "split": "train"}]},
        {"video_id": "def", "ovr_annotations": [{**stretch, "split": "val"}, {**stretch, "split": "val"}]},
    ]
    (tmp_path / "ovr_kinetics_release.json").write_text(json.dumps(entries))
    dataset = counted.load_ovr(tmp_path, source="kinetics")
    assert dataset.rows == {"train": 1, "valid": 1}
    assert [(video.name, video.file) for video in dataset.split("valid")] == [
        ("def", "def.mp4"),
        ("def#2", "def.mp4"),
    ]


def test_kinetics_clips_of_ovr_may_carry_their_seconds(tmp_path: Path) -> None:
    """As the public downloads name them, and as Countix has them; a clip that comes later is found, too."""
    stretch = {"start_time": 0.5, "end_time": 9.5, "count": 6, "split": "test"}
    entries = [{"video_id": name, "ovr_annotations": [stretch]} for name in ("a_b", "-cd", "gone")]
    (tmp_path / "ovr_kinetics_release.json").write_text(json.dumps(entries))
    (tmp_path / "test").mkdir()
    for name in ("test/a_b_000017_000027.mp4", "-cd.mp4", "-cd_000001_000011.mp4"):
        (tmp_path / name).touch()
    dataset = counted.load_ovr(tmp_path, source="kinetics")
    places = [dataset.locate(tmp_path, video) for video in dataset.split("test")]
    assert places == [tmp_path / "test/a_b_000017_000027.mp4", tmp_path / "-cd.mp4", None]
    save_labels(tmp_path, dataset)
    assert load_labels(tmp_path, dataset.name) == dataset
    (tmp_path / "gone_000017_000027.mp4").touch()
    os.utime(tmp_path, ns=(0, 0))
    assert dataset.locate(tmp_path, dataset.find("gone")) == tmp_path / "gone_000017_000027.mp4"


def test_quva_as_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "video_fps", lambda path: 29.0)
    (tmp_path / "annotations").mkdir()
    np.save(tmp_path / "annotations" / "000_rope_beach.npy", np.array([13, 26, 40]))
    (tmp_path / "annotations" / "._000_rope_beach.npy").write_bytes(b"\0\5\x16\7")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "000_rope_beach.mp4").touch()
    dataset = timed.load_quva(tmp_path)
    (video,) = dataset.split("test")
    assert not dataset.problems and (video.name, video.action, video.count) == ("000_rope_beach", "rope_beach", 3)
    assert video.spans == ((0.0, 13 / 29), (13 / 29, 26 / 29), (26 / 29, 40 / 29))
    assert dataset.locate(tmp_path, video) == tmp_path / "videos" / "000_rope_beach.mp4"


def test_ovr_takes_lists_or_says_which_are_missing(tmp_path: Path) -> None:
    stretch = [{"start_time": 1.0, "end_time": 4.0, "count": 3, "description": "stirring"}]
    entries = [{"video_id": name, "timestamp_sec": 5, "ovr_annotations": stretch} for name in ("abc", "def")]
    (tmp_path / "ovr_ego4d_release.json").write_text(json.dumps(entries))
    with pytest.raises(DataError, match=r"put ovr_ego4d_train.txt and ovr_ego4d_test.txt, one video_id in a line"):
        counted.load_ovr(tmp_path).split("test")
    assert len(counted.load_ovr(tmp_path).split("all")) == 2
    (tmp_path / "ovr_ego4d_train.txt").write_text("abc\n")
    (tmp_path / "ovr_ego4d_test.txt").write_text("def_5.000\n")
    dataset = counted.load_ovr(tmp_path)
    assert [video.name for video in dataset.split("test")] == ["def_5.000"]
    assert dataset.rows == {"train": 1, "test": 1}


def test_problems_of_spans() -> None:
    base = VideoAnnotation("v", "v", None, 2, ((0.0, 1.0), (3.0, 2.0)), 30.0, 2.5, "train")
    found = checked(base)
    assert found.spans == ((0.0, 1.0),)
    assert any("ends before it starts" in what for what in found.problems)
    late = checked(VideoAnnotation("v", "v", None, 1, ((2.0, 4.0),), 30.0, 2.5, "train"))
    assert any("past the end of the video (2.50 s)" in what for what in late.problems)


def test_duplicate_names_keep_the_first(tmp_path: Path) -> None:
    one = VideoAnnotation("v", "v", None, 2, (), None, None, "train")
    two = VideoAnnotation("v", "v", None, 3, (), None, None, "test")
    dataset = assemble("d", [one, two], {"train": 1, "test": 1})
    assert [video.count for video in dataset.videos] == [2]
    assert any("appears twice (count 2 kept, 3 left)" in problem.what for problem in dataset.problems)


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(DataError, match="known are repcount"):
        load_dataset("repcout", Path("."))
    empty = Dataset("d", (), {"train": 0})
    with pytest.raises(DataError, match="it has train"):
        empty.split("test")


def test_missing_files_are_named(tmp_path: Path) -> None:
    video = VideoAnnotation("a", "a.mp4", None, 0, (), None, None, "train")
    dataset = assemble("d", [video], {"train": 1})
    assert [v.name for v in check_files(dataset, tmp_path)[0]] == ["a"]
    (tmp_path / "a.mp4").write_bytes(b"not a video")
    _, problems = check_files(dataset, tmp_path, open_videos=True)
    assert [type(p) for p in problems] == [Problem]
    assert "cannot be read" in problems[0].what


def test_ovr_oddities_are_one_line_each_and_the_rest_goes_on(tmp_path: Path) -> None:
    stretch = {"start_time": 1, "end_time": 4, "count": 3}
    odd: list[Any] = [
        "text",
        {**stretch, "count": math.inf},
        {**stretch, "count": 1e6},
        {**stretch, "end_time": math.inf},
    ]
    entries = [
        {"video_id": "odd", "split": "train", "ovr_annotations": [*odd, stretch]},
        {"video_id": "late", "split": "train", "timestamp_sec": "noon", "ovr_annotations": [stretch]},
        {"video_id": "flat", "split": "train", "ovr_annotations": "none"},
        {"video_id": "good", "split": "train", "timestamp_sec": 5, "ovr_annotations": [stretch]},
    ]
    (tmp_path / "ovr_ego4d_release.json").write_text(json.dumps(entries))
    dataset = counted.load_ovr(tmp_path)
    assert [video.name for video in dataset.videos] == ["odd#5", "good_5.000"]
    unusable = [problem.name for problem in dataset.problems if problem.unusable]
    assert unusable == ["odd", "odd#2", "odd#3", "odd#4", "late", "flat"]
