"""Small whole videos of many kinds, to be damaged: one file for each pair of container and codec; an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from movies import bouncing, write_movie

PAIRS: dict[str, dict[str, Any]] = {
    "h264.mp4": {},
    "h264.mkv": {},
    "h264.ts": {},
    "h264.flv": {},
    "h264.h264": {"container_format": "h264"},
    "fragmented.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "hevc.mkv": {"codec": "libx265", "options": {"x265-params": "log-level=none"}},
    "vp8.webm": {"codec": "libvpx"},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "vp9.ivf": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "mpeg4.avi": {"codec": "mpeg4"},
    "mpeg4.mov": {"codec": "mpeg4"},
    "mpeg4.m4v": {"codec": "mpeg4", "container_format": "m4v"},
    "mjpeg.avi": {"codec": "mjpeg", "pixel_format": "yuvj420p"},
    "mpeg2.mpg": {"codec": "mpeg2video", "rate": 25},
    "mpeg2.ts": {"codec": "mpeg2video", "rate": 25},
    "mpeg1.mpg": {"codec": "mpeg1video", "rate": 25},
    "wmv2.wmv": {"codec": "wmv2", "container_format": "asf"},
    "sorenson.flv": {"codec": "flv"},
    "ffv1.mkv": {"codec": "ffv1"},
    "huffyuv.nut": {"codec": "huffyuv", "pixel_format": "yuv422p"},
    "raw.avi": {"codec": "rawvideo"},
    "png.mov": {"codec": "png", "pixel_format": "rgb24"},
    "prores.mov": {"codec": "prores", "pixel_format": "yuv422p10le"},
    "animated.gif": {"codec": "gif", "pixel_format": "rgb8"},
    "animated.apng": {"codec": "apng", "pixel_format": "rgb24", "container_format": "apng"},
}
"""By file name: what write_movie takes."""
IMAGES = "images"


def make_seeds(folder: Path) -> dict[str, bytes]:
    """Every pair's file as bytes, and one image for IMAGES."""
    pictures = bouncing(2, 1.0, rate=12, size=(64, 48))
    seeds = {}
    for name, options in PAIRS.items():
        write_movie(folder / name, pictures, **{"rate": 12, **options})
        seeds[name] = (folder / name).read_bytes()
    image = write_movie(
        folder / "one.png", pictures[:1], codec="png", pixel_format="rgb24", container_format="image2",
        container_options={"update": "1"},
    )  # fmt: skip
    seeds[IMAGES] = image.read_bytes()
    return seeds
