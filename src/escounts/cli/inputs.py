"""From what was typed to videos, and from videos to names of output files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from escounts.decoding import image_files
from escounts.errors import EscountsError, VideoError
from escounts.video import video_files


def videos_among(inputs: Sequence[Path]) -> tuple[list[Path], list[EscountsError]]:
    """Files as they are, folders as the videos in them (or as a folder of images); each video once.

    Returns the videos in the order given, and an error for each input that holds none.
    """
    found: dict[Path, Path] = {}
    failures: list[EscountsError] = []
    for given in inputs:
        try:
            if not given.is_dir():
                inside = [given]
            else:
                inside = [path for path in video_files(given) if not path.name.endswith(".counted.mp4")]
                if not inside:
                    images = len(image_files(given))
                    raise VideoError(f"{given}: no videos in this folder" + (", one image" if images else ""))
            for path in inside:
                found.setdefault(path.resolve(), path)
        except (EscountsError, OSError) as error:
            if isinstance(error, OSError):
                error = VideoError(f"{given}: {(error.strerror or str(error)).lower()}")
            failures.append(error)
    return list(found.values()), failures


def output_names(videos: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Each video with a name for its outputs: its stem, or more of its path where stems are equal."""
    taken: set[str] = set()
    stems = Counter(video.resolve().stem for video in videos)
    for video in videos:
        path = video.resolve()
        choices = [path.name, f"{path.parent.name}-{path.name}"]
        if stems[path.stem] == 1:
            choices.insert(0, path.stem)
        numbered = (f"{path.parent.name}-{path.name}-{number}" for number in count(2))
        name = next(choice for choice in chain(choices, numbered) if choice not in taken)
        taken.add(name)
        yield video, name
