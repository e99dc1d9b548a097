"""The copy of a video that browsers play."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from escounts.errors import OutputError
from escounts.serve.previews import LONGEST_SIDE, preview_size, write_preview
from escounts.video.files import Video


def test_the_copy_is_h264(clips: dict[int, Path], tmp_path: Path) -> None:
    target = tmp_path / "copy.mp4"
    write_preview(Video(clips[5]), target)
    with av.open(str(target)) as container:
        assert container.streams.video[0].codec_context.name == "h264"


def test_without_h264_the_copy_is_refused_in_one_line(
    clips: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(av, "codecs_available", av.codecs_available - {"libx264"})
    with pytest.raises(OutputError, match="libx264") as refused:
        write_preview(Video(clips[5]), tmp_path / "copy.mp4")
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [], "nothing is written that a browser would be given in vain"


@pytest.mark.parametrize(
    ("size", "expected"), [((1920, 1080), (640, 360)), ((101, 99), (100, 100)), ((1, 4000), (2, 640))]
)
def test_the_copy_is_small_and_even(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert preview_size(*size) == expected
    assert max(expected) <= LONGEST_SIDE
