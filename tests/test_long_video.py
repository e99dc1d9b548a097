"""Release suite: memory does not grow with a video's length or size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from movies import bouncing, write_movie
from release_figures import share_of

MEASURE = """
import json, re, sys
import escounts
result = escounts.count(sys.argv[1], model="spectral")
# Not ru_maxrss: that also remembers the process this one was forked from.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps([result.count, peak]))
"""


def counted(video: Path) -> tuple[int, float]:
    """Count and peak memory in MB of a process of its own."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(video)], capture_output=True, text=True, check=True)
    count, peak = json.loads(done.stdout)
    return count, peak


@pytest.mark.release
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    pictures = bouncing(6, 6.0)
    short = write_movie(tmp_path / "short.mp4", pictures * 5)
    times = 5 + share_of(95)
    long = write_movie(tmp_path / "long.mp4", (picture for _ in range(times) for picture in pictures))
    (few, little), (many, much) = counted(short), counted(long)
    assert few == pytest.approx(30, abs=1) and many == pytest.approx(6 * times, rel=0.02, abs=1)
    assert much < little + 60, "ten minutes of thumbnails are 5 MB"


@pytest.mark.release
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_of_large_pictures_is_the_decoders(tmp_path: Path) -> None:
    """Never smaller than this: it is the pictures' size that is tried, four seconds of them."""
    large = write_movie(tmp_path / "large.mp4", bouncing(4, 4.0, rate=15, size=(3840, 2160)), rate=15)
    count, peak = counted(large)
    assert count == 4 and peak < 700
