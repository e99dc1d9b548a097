"""Tables of sets, as `pool_labels.csv` and `sets.csv` are."""

from __future__ import annotations

from pathlib import Path

import pytest

from escounts.research.datasets.annotations import Dataset
from escounts.research.datasets.registry import load_dataset

LABELLED = """file,split,motion,count,t_start,t_end,rep_times,alternates,sure,note
a.mp4,val,squat,2,1.0,5.0,1.0-3.0 3.5-5.0,,sure,
b.mp4,train,lunge,1,0.5,2.5,0.5-2.5,sides,sure,
b.mp4,train,jump,2,4.0,6.0,4.0-5.0 5.0-6.0,,likely,another motion
c.mp4,train,none,0,,,,,sure,plank
d.mp4,train,curl,1,0,2,0-2,,sure,
d.mp4,train,curl,1,4,5,4-5,,sure,a second set of it
"""
RANGES = """file,action,count,t_start,t_end,exemplar_start_s,exemplar_end_s
e.mp4,squat,3,2.0,8.0,4.0,6.0
"""


def loaded(tmp_path: Path, text: str) -> Dataset:
    (tmp_path / "table.csv").write_text(text)
    return load_dataset("folder", tmp_path / "table.csv")


def test_a_clip_of_one_motion_is_whole_and_several_motions_are_several_questions(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, LABELLED)
    known = {video.name: video for video in dataset.videos}
    assert list(known) == ["a.mp4", "b.mp4#1", "b.mp4#2", "c.mp4", "d.mp4"] and not dataset.problems
    assert known["a.mp4"].spans == ((1.0, 3.0), (3.5, 5.0)) and known["a.mp4"].duration is None
    assert (known["b.mp4#2"].begin, known["b.mp4#2"].duration) == (4.0, 2.0)
    assert known["b.mp4#2"].spans == ((0.0, 1.0), (1.0, 2.0)) and known["b.mp4#2"].file == "b.mp4"
    assert known["c.mp4"].count == 0 and known["d.mp4"].count == 2
    assert dataset.rows == {"valid": 1, "train": 4}, "val is the validation split"


def test_a_set_without_times_of_repetitions_is_its_range_with_the_marked_one(tmp_path: Path) -> None:
    (video,) = loaded(tmp_path, RANGES).videos
    assert (video.begin, video.duration, video.pseudo) == (2.0, 6.0, True)
    assert video.exemplars == ((2.0, 4.0),) and video.spans == ((0.0, 2.0), (2.0, 4.0), (4.0, 6.0))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a.mp4,val,squat,x,1,5,1-3,,,", "count 'x' is not a whole number"),
        ("a.mp4,val,squat,2,1,5,1-3 2-5,,,", "overlap"),
        ("a.mp4,val,squat,1,1,5,one,,,", "could not convert"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_problem_with_its_reason(tmp_path: Path, row: str, said: str) -> None:
    dataset = loaded(tmp_path, LABELLED.splitlines()[0] + "\n" + row + "\n")
    assert not dataset.videos and said in str(dataset.problems[0]) and dataset.problems[0].unusable
