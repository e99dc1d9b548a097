"""From what was typed to videos, and from videos to names of output files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from escounts.decoding import image_files
from escounts.errors import EscountsError, VideoError
from escounts.video import video_files


def videos_among(inputs: Sequence[Path]) -> list[tuple[Path, str]]:
    """Files as they are, folders as the videos in them (or as a folder of images); each video once.

    Returns, in the order given, each video with "" and each input that holds none with the reason.
    """
    found: dict[Path, tuple[Path, str]] = {}
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
                found.setdefault(_real(path), (path, ""))
        except EscountsError as error:
            found.setdefault(given, (given, str(error)))
        except (OSError, ValueError) as error:
            reason = f"{given}: {(getattr(error, 'strerror', None) or str(error)).lower()}"
            found.setdefault(given, (given, reason))
    return list(found.values())


def output_names(videos: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Each video with a name for its outputs: its stem, or more of its path where stems are equal."""
    taken: set[str] = set()
    stems = Counter(_real(video).stem for video in videos)
    for video in videos:
        path = _real(video)
        choices = [path.name, f"{path.parent.name}-{path.name}"]
        if stems[path.stem] == 1:
            choices.insert(0, path.stem)
        numbered = (f"{path.parent.name}-{path.name}-{number}" for number in count(2))
        name = next(choice for choice in chain(choices, numbered) if choice not in taken)
        taken.add(name)
        yield video, name


def _real(path: Path) -> Path:
    """Without links. Path.resolve raises where links go round in a circle; opening the video says so."""
    return Path(os.path.realpath(path))
