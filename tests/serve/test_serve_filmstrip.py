"""The small pictures of a video: where in time they are from, and how they come over HTTP."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from movies import write_movie
from PIL import Image
from serving import Client

from escounts.errors import VideoError
from escounts.serve import previews
from escounts.serve.previews import STRIP_HEIGHT, STRIP_PICTURES, write_filmstrip, write_thumbnail
from escounts.video.files import Video


@pytest.fixture(scope="module")
def brightening(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds from black to white, 96 x 64."""
    images = [np.full((64, 96, 3), round(255 * index / 149), np.uint8) for index in range(150)]
    return write_movie(tmp_path_factory.mktemp("film") / "brightening.mp4", images, rate=25)


@pytest.mark.parametrize("seeks_above", [120.0, 0.0])
def test_each_picture_is_from_the_middle_of_its_part(
    brightening: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeks_above: float
) -> None:
    monkeypatch.setattr(previews, "SEEK_SECONDS", seeks_above)
    write_filmstrip(Video(brightening), tmp_path / "strip.jpg")
    strip = np.asarray(Image.open(tmp_path / "strip.jpg").convert("L"), dtype=float)
    assert strip.shape == (STRIP_HEIGHT, STRIP_PICTURES * 90)
    shown = strip.reshape(STRIP_HEIGHT, STRIP_PICTURES, 90).mean(axis=(0, 2)) / 255
    expected = (np.arange(STRIP_PICTURES) + 0.5) / STRIP_PICTURES
    assert np.abs(shown - expected).max() < 0.04


def test_the_thumbnail_is_from_the_middle(brightening: Path, tmp_path: Path) -> None:
    write_thumbnail(Video(brightening), tmp_path / "one.jpg")
    image = Image.open(tmp_path / "one.jpg")
    assert image.size == (144, 96)
    assert abs(float(np.asarray(image.convert("L"), dtype=float).mean()) / 255 - 0.5) < 0.04


def test_a_file_that_is_not_a_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.mp4").write_text("Dear video,")
    with pytest.raises(VideoError):
        write_filmstrip(Video(tmp_path / "letter.mp4"), tmp_path / "strip.jpg")
    assert not (tmp_path / "strip.jpg").exists()


@pytest.mark.parametrize("kind", ["thumbnail", "filmstrip"])
def test_they_come_over_http_and_go_with_the_video(client: Client, clips: dict[int, Path], kind: str) -> None:
    video = client.send_video(clips[5])["id"]
    first = client.get(f"/api/videos/{video}/{kind}")
    assert first.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(first.content)).height >= STRIP_HEIGHT
    assert client.get(f"/api/videos/{video}/{kind}").content == first.content
    client.delete(f"/api/videos/{video}")
    assert client.get(f"/api/videos/{video}/{kind}").status_code == 404


def test_what_cannot_be_drawn_says_so(client: Client, tmp_path: Path) -> None:
    (tmp_path / "letter.mp4").write_text("Dear video,")
    video = client.send_video(tmp_path / "letter.mp4")["id"]
    answer = client.get(f"/api/videos/{video}/thumbnail")
    assert answer.status_code == 503
    assert "no thumbnail could be made" in answer.json()["detail"]
