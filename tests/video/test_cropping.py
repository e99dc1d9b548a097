"""A box of the picture: the same pixels as those of the whole picture there, whatever the file is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from movies import Picture, levels, write_movie

from escounts.errors import EscountsError
from escounts.video.files import Video
from escounts.video.nvdec import NvdecVideo


def shaded(width: int = 80, height: int = 48) -> Picture:
    """Every place has a colour of its own, and neighbours differ little."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[..., 0] = np.linspace(0, 240, width)
    picture[..., 1] = np.linspace(0, 240, height)[:, None]
    picture[height // 2 :, width // 2 :, 2] = 200
    return picture


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("kind", [Video, NvdecVideo])
def test_a_box_is_that_part_of_the_upright_picture(tmp_path: Path, rotation: int, kind: type[Video]) -> None:
    stored = np.rot90(shaded(), -rotation // 90)
    path = write_movie(tmp_path / "turned.mp4", [stored] * 5, rotation=rotation)
    whole = next(Video(path).frames()).image
    inside = kind(path).cropped((16, 8, 40, 24))
    image = next(inside.frames()).image
    assert (inside.info.width, inside.info.height, inside.info.region) == (40, 24, (16, 8, 40, 24))
    assert np.abs(image.astype(int) - whole[8:32, 16:56]).max() <= 8
    assert next(inside.frames(size=(20, 12))).image.shape == (12, 20, 3)


@pytest.mark.parametrize(
    ("codec", "pixels"),
    [("ffv1", "yuv420p10le"), ("ffv1", "bgr0"), ("ffv1", "gray"), ("mjpeg", "yuvj420p"), ("ffv1", "bgra")],
)
def test_a_box_in_every_pixel_format(tmp_path: Path, codec: str, pixels: str) -> None:
    path = write_movie(tmp_path / "movie.mkv", [shaded()] * 3, codec=codec, pixel_format=pixels)
    whole = next(Video(path).frames()).image.astype(int)
    image = next(Video(path).cropped("25%,25%,50%,50%").frames()).image
    assert np.abs(image - whole[12:36, 20:60]).max() <= 8


def test_percent_and_pixels_are_the_same_box(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "movie.mp4", levels(3, size=(80, 48)))
    boxes = {Video(path).cropped(box).info.region for box in ("25%,0%,50%,100%", "20,0,40,48", (20, 0, 40, 48.0))}
    assert boxes == {(20, 0, 40, 48)}


def test_a_box_of_a_box_is_one_of_the_picture(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "movie.mp4", levels(3, size=(80, 48)))
    assert Video(path).cropped((0, 0, 20, 20)).cropped((40, 10, 40, 20)).info.region == (40, 10, 40, 20)


@pytest.mark.parametrize("box", ["70,0,20,20", (0, 40, 20, 20), "0,0,8,40", "0%,0%,1%,100%"])
def test_a_box_that_the_picture_has_no_room_for(tmp_path: Path, box: object) -> None:
    path = write_movie(tmp_path / "movie.mp4", levels(3, size=(80, 48)))
    with pytest.raises(EscountsError, match="80x48"):
        Video(path).cropped(box)  # type: ignore[arg-type]
