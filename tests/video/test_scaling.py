"""Scaling with torch against the processor's scaler."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import torch
from movies import write_movie

from escounts.system.arrays import Image
from escounts.video.files import FrameConverter
from escounts.video.nvdec import PictureKind, area_scaler, weights

BT601, BT709, UNSPECIFIED, LIMITED, FULL = 5, 1, 2, 1, 2


def picture(kind: PictureKind, seed: int = 1) -> av.VideoFrame:
    """Soft waves of brightness and colour with grain."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: kind.height, : kind.width]
    rgb = np.stack([128 + 90 * np.sin(rows / (9 + 4 * c) + c) * np.cos(columns / (11 - 2 * c)) for c in range(3)], -1)
    rgb = np.clip(rgb + rng.normal(0, 6, (kind.height, kind.width, 1)), 0, 255).astype(np.uint8)
    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=kind.format)
    frame.colorspace, frame.color_range = kind.colorspace, kind.color_range
    return frame


def by_torch(frame: av.VideoFrame, kind: PictureKind, size: tuple[int, int]) -> Image:
    luma, *chroma = (
        np.frombuffer(bytes(plane), np.uint8).reshape(plane.height, -1)[:, : plane.width] for plane in frame.planes
    )
    pairs = np.stack(chroma, axis=-1).reshape(kind.height // 2, kind.width)
    nv12 = torch.from_numpy(np.concatenate([luma, pairs]))
    return area_scaler(kind, size, "cpu")(torch.stack([nv12, nv12.flip(0)]))[0].numpy()


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (PictureKind(1280, 720, "yuv420p", UNSPECIFIED, 0, False), (128, 128)),
        (PictureKind(640, 360, "yuv420p", BT709, LIMITED, False), (128, 128)),
        (PictureKind(362, 250, "yuvj420p", BT601, FULL, False), (128, 128)),
        (
            PictureKind(320, 240, "yuv420p", UNSPECIFIED, 0, False),
            (128, 128),
        ),  # fewer rows of colour than of the image
        (PictureKind(640, 360, "yuv420p", BT709, FULL, False), (85, 47)),
        (PictureKind(96, 64, "yuv420p", BT601, LIMITED, False), (24, 16)),
        (PictureKind(96, 64, "yuv420p", BT601, LIMITED, False), (128, 128)),
    ],
)
def test_images_are_the_processors_but_for_roundings(kind: PictureKind, size: tuple[int, int]) -> None:
    frame = picture(kind)
    apart = by_torch(frame, kind, size).astype(int) - FrameConverter(size, 0)(frame)
    assert np.abs(apart).mean() < 1.2 and np.percentile(np.abs(apart), 99) <= 5
    assert np.abs(apart.mean(axis=(0, 1))).max() < 0.3  # to no side


def test_colours_that_are_said_to_be_other_ones_come_out_so() -> None:
    """The matrix is the stream's, not one for all."""
    kinds = [PictureKind(320, 240, "yuv420p", space, LIMITED, False) for space in (BT601, BT709)]
    one, other = (by_torch(picture(kind), kind, (64, 64)).astype(int) for kind in kinds)
    assert np.abs(one - other).mean() > 3


def test_where_colour_is_sampled_is_minded(tmp_path: Path) -> None:
    """H.264 says that it is at the left, and the processor minds it."""
    stripes = np.zeros((64, 96, 3), np.uint8)
    stripes[:, :, 0], stripes[:, 8::16, 2] = 100, 200
    stripes[:, 9::16, 2] = stripes[:, 10::16, 2] = stripes[:, 11::16, 2] = 200
    with av.open(str(write_movie(tmp_path / "stripes.mp4", [stripes] * 2))) as container:
        frame = next(container.decode(video=0))
    kinds = [PictureKind(96, 64, "yuv420p", UNSPECIFIED, 0, left) for left in (True, False)]
    wanted = FrameConverter((24, 16), 0)(frame)
    left, middle = (np.abs(by_torch(frame, kind, (24, 16)).astype(int) - wanted).mean() for kind in kinds)
    assert left < 1.5 < 3 < middle


@pytest.mark.parametrize(("source", "target"), [(720, 128), (7, 7), (5, 2), (3, 8)])
def test_weights_are_shares(source: int, target: int) -> None:
    shares = weights(source, target)
    assert shares.shape == (target, source) and np.allclose(shares.sum(1), 1) and shares.min() >= 0
    if target <= source:
        assert np.allclose(shares.sum(0), target / source)  # every pixel counts as much as every other
