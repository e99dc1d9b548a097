"""A process that reads damaged videos, one path a line on stdin; one line of JSON comes back for each.

outcome: "read", "refused" (a VideoError of one line) or "traceback" (anything else). A process that dies or falls
silent is the parent's to notice.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from itertools import islice
from pathlib import Path

MEMORY = 3 * 2**30
FRAMES = 4000


def read(path: Path, *, count: bool) -> None:
    """Read the video as models do; count: with the classical model, too."""
    from escounts.counter import Counter
    from escounts.video.files import Video

    video = Video(path, threads=1, max_duration=3600.0)
    for frame in islice(video.frames(size=(16, 16), rate=10), FRAMES):
        assert frame.image.shape == (16, 16, 3)
    if count and video.info.duration < 60:
        from escounts.counting.spectral import Spectral

        Counter(Spectral()).count(video)


def main() -> None:
    from escounts.errors import EscountsError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # FFmpeg's own chatter is not an answer
    for number, line in enumerate(sys.stdin):
        outcome, detail = "read", ""
        try:
            read(Path(line.rstrip("\n")), count=number % 8 == 0)
        except EscountsError as error:
            outcome, detail = "refused", str(error)
            if "\n" in detail:
                outcome = "traceback"
        except Exception:
            outcome, detail = "traceback", traceback.format_exc()
        print(json.dumps({"outcome": outcome, "detail": detail}), file=answers, flush=True)


if __name__ == "__main__":
    main()
