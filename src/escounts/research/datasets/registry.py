"""The datasets by name, and what of them is really on this disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import escounts
from escounts.errors import DataError, VideoError
from escounts.research.datasets import counted, folder, generated, timed
from escounts.research.datasets.annotations import Dataset, Problem, VideoAnnotation


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset that has a name. files: labels and videos under its folder. test: the split its published numbers are
    of. tokens: the dataset whose token store it shares, being another division of the same videos with the same
    repetitions."""

    summary: str
    files: str
    load: Callable[[Path], Dataset]
    test: str = "test"
    tokens: str | None = None


DATASETS: Mapping[str, DatasetEntry] = {
    "repcount": DatasetEntry(
        "RepCount-A, workouts, times of every repetition",
        "annotation/{train,valid,test}.csv, video/SPLIT/NAME.mp4",
        timed.load_repcount,
    ),
    "repcount-open": DatasetEntry(
        "RepCount-A, actions of train and test apart",
        "open_set/{train,valid,test}.csv beside annotation/, the same videos",
        lambda root: timed.load_repcount(root, open_set=True),
        tokens="repcount",
    ),
    "countix": DatasetEntry(
        "Countix, the dataset's own tables in seconds",
        "{train,val,test}.csv, Kinetics clips ID_000017_000027.mp4",
        counted.load_countix,
    ),
    "countix-frames": DatasetEntry(
        "Countix as the paper's authors cut it, in frames",
        "{train,val,test}.csv, segments ID_1.50000_3.23333.mp4",
        lambda root: counted.load_countix(root, form="frames"),
    ),
    "countix-av": DatasetEntry(
        "Countix-AV, the part whose sound repeats too",
        "as countix",
        lambda root: counted.load_countix(root, form="av"),
    ),
    "ucfrep": DatasetEntry(
        "UCFRep, stretches of UCF-101", "{train,val}.csv, UCF-101/CLASS/NAME.avi", timed.load_ucfrep, test="valid"
    ),
    "ovr-ego4d": DatasetEntry(
        "OVR-Ego4D, ten-second egocentric clips",
        "ovr_ego4d_release.json (ovr_ego4d_{train,test}.txt if it states no split), clips VIDEO_SECOND.mp4",
        counted.load_ovr,
    ),
    "ovr-kinetics": DatasetEntry(
        "OVR-Kinetics, ten-second clips",
        "ovr_kinetics_release.json (ovr_kinetics_{train,test}.txt if it states no split), clips VIDEO.mp4 or "
        "VIDEO_000017_000027.mp4",
        lambda root: counted.load_ovr(root, source="kinetics"),
    ),
    "quva": DatasetEntry(
        "QUVA Repetition, 100 videos to test on, ends of repetitions",
        "annotations/NAME.npy, videos/NAME.mp4",
        timed.load_quva,
    ),
    "folder": DatasetEntry(
        "your own videos with a labels.csv",
        "labels.csv with file,count or file,start_s,end_s, and the videos; or such a table itself",
        folder.load_folder,
        test="valid",
    ),
    "synthetic": DatasetEntry(
        "generated repetitions, in the form of RepCount",
        "what `escounts data make synthetic` wrote",
        generated.load_generated,
    ),
}


def load_dataset(name: str, root: Path) -> Dataset:
    """The dataset of that name with its labels under root."""
    entry = dataset_entry(name)
    if not root.exists():
        raise DataError(f"no folder {root}: give the place of {name} with --root")
    return entry.load(root)


def dataset_entry(name: str) -> DatasetEntry:
    """What is known of a dataset; an unknown name lists the known ones."""
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; known are {', '.join(DATASETS)}")
    return DATASETS[name]


def check_files(
    dataset: Dataset, root: Path, *, open_videos: bool = False
) -> tuple[list[VideoAnnotation], list[Problem]]:
    """The videos of a dataset that are missing on disk; with open_videos each is opened, too: unreadable files, and
    labels past their end."""
    missing: list[VideoAnnotation] = []
    problems: list[Problem] = []
    for video in dataset.videos:
        path = dataset.locate(root, video)
        if path is None:
            missing.append(video)
        elif open_videos:
            problems.extend(_file_problems(video, path))
    return missing, problems


def _file_problems(video: VideoAnnotation, path: Path) -> Iterator[Problem]:
    try:
        info = escounts.Video(path).info
    except VideoError as error:
        yield Problem(video.split, video.name, f"cannot be read: {error}", unusable=True)
        return
    length = info.duration - video.begin
    late = [span for span in video.spans if span[1] > length + 0.5]
    if late:
        start, end = late[0]
        what = f"repetition {start:.2f}–{end:.2f} s lies past the end of the video ({length:.2f} s)"
        yield Problem(video.split, video.name, what, unusable=True)
    if video.fps and info.fps and abs(info.fps / video.fps - 1) > 0.02:
        what = f"labels say {video.fps:.2f} frames a second, the file has {info.fps:.2f}"
        yield Problem(video.split, video.name, what)
