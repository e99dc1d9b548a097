"""Clips in memory and what can be done to them: mirrored, at half the rate, backwards, compressed …"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from escounts.system.atomic_files import atomic_file
from escounts.video.decoding import Probe, RawFrame
from escounts.video.files import Video
from escounts.video.in_memory import PicturesInMemory, VideoInMemory

Images = npt.NDArray[np.uint8]

LONGER_SIDE = 320
"""Pixels that a clip is read at: more than any model looks at, few enough to hold a minute of it."""
STILL_SECONDS = 3.0
BOX = "25%,25%,50%,50%"
"""Where `in_a_box` puts the clip."""
PREPARED = Path(__file__).resolve().parents[1] / "build" / "metamorphic"
"""Clips that went through a codec, by a hash of what went in: encoded once for all models."""


@dataclass(frozen=True)
class Pictures:
    """A clip as it is decoded. images: (T, H, W, 3) RGB. times: (T,) seconds, from 0; the last one lasts 1 / fps."""

    images: Images
    times: npt.NDArray[np.float64]
    fps: float

    @property
    def duration(self) -> float:
        """Seconds."""
        return float(self.times[-1]) + 1 / self.fps

    def as_video(self) -> Video:
        """A video that a counter reads like a file."""
        return VideoInMemory.of(_TimedPictures(self))


class _TimedPictures(PicturesInMemory):
    """Pictures at their own times."""

    def __init__(self, clip: Pictures) -> None:
        super().__init__([_frame(clip.images[0])], clip.fps)
        self._clip = clip

    def probe(self) -> Probe:
        return replace(super().probe(), duration=self._clip.duration)

    def frames(self, start: float = 0.0) -> Iterator[RawFrame]:
        for time, image in zip(self._clip.times, self._clip.images, strict=True):
            yield RawFrame(float(time), 1 / self.rate, _frame(image))


def _frame(image: npt.NDArray[np.uint8]) -> av.VideoFrame:
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")


def read(path: Path, *, start: float = 0.0, end: float | None = None) -> Pictures:
    """A file's frames between two seconds, at most LONGER_SIDE pixels wide and high."""
    video = Video(path)
    shrink = min(1.0, LONGER_SIDE / max(video.info.width, video.info.height))
    size = tuple(max(2, 2 * round(side * shrink / 2)) for side in (video.info.width, video.info.height))
    frames = list(video.frames(size=(size[0], size[1]), start=start, end=end))
    times = np.array([frame.time for frame in frames])
    return Pictures(np.stack([frame.image for frame in frames]), times - times[0], video.info.fps)


def mirrored(clip: Pictures) -> Pictures:
    return replace(clip, images=np.ascontiguousarray(clip.images[:, :, ::-1]))


def scaled(clip: Pictures) -> Pictures:
    """Half as wide and high."""
    _, height, width, _ = clip.images.shape
    halves = clip.images[:, : height // 2 * 2, : width // 2 * 2].reshape(-1, height // 2, 2, width // 2, 2, 3)
    return replace(clip, images=np.stack([image.mean((1, 3)) for image in halves]).astype(np.uint8))


def cropped(clip: Pictures) -> Pictures:
    """A tenth less wide and high, around the middle."""
    _, height, width, _ = clip.images.shape
    top, left = height // 20, width // 20
    return replace(clip, images=np.ascontiguousarray(clip.images[:, top : height - top, left : width - left]))


def half_rate(clip: Pictures) -> Pictures:
    """Every second frame, shown twice as long."""
    return Pictures(clip.images[::2], clip.times[::2], clip.fps / 2)


def double_rate(clip: Pictures) -> Pictures:
    """Between two frames their average, as players and televisions do it."""
    following = np.concatenate([clip.images[1:], clip.images[-1:]])
    between = np.stack([(a.astype(np.uint16) + b) // 2 for a, b in zip(clip.images, following, strict=True)])
    images = np.stack([clip.images, between.astype(np.uint8)], axis=1).reshape(-1, *clip.images.shape[1:])
    ends = np.append(clip.times[1:], clip.duration)
    times = np.stack([clip.times, (clip.times + ends) / 2], axis=1).reshape(-1)
    return Pictures(images, times, 2 * clip.fps)


def brighter(clip: Pictures) -> Pictures:
    return _toned(clip, 1.3, 10)


def darker(clip: Pictures) -> Pictures:
    return _toned(clip, 0.6, 0)


def _toned(clip: Pictures, contrast: float, light: float) -> Pictures:
    table = np.clip(np.arange(256) * contrast + light, 0, 255).astype(np.uint8)
    return replace(clip, images=table[clip.images])


def backwards(clip: Pictures) -> Pictures:
    """The last frame first."""
    return Pictures(clip.images[::-1], (clip.times[-1] - clip.times)[::-1], clip.fps)


def twice(clip: Pictures) -> Pictures:
    """The clip and the clip again."""
    return Pictures(np.tile(clip.images, (2, 1, 1, 1)), np.append(clip.times, clip.times + clip.duration), clip.fps)


def faster(clip: Pictures) -> Pictures:
    """Played 1.25 times as fast."""
    return Pictures(clip.images, clip.times / 1.25, clip.fps * 1.25)


def slower(clip: Pictures) -> Pictures:
    """Played at 0.8 of its speed."""
    return Pictures(clip.images, clip.times / 0.8, clip.fps * 0.8)


def in_a_box(clip: Pictures) -> Pictures:
    """In the middle half of a picture twice as wide and high, which moves around it: see BOX."""
    count, height, width, _ = clip.images.shape
    around = np.roll(np.repeat(clip.images[:, ::-1], 2, axis=1).repeat(2, axis=2), count // 3, axis=0)
    top, left = round(height / 2), round(width / 2)
    around[:, top : top + height, left : left + width] = clip.images
    return replace(clip, images=around)


def between_stills(clip: Pictures) -> Pictures:
    """The first frame stands before it, the last one after it, three seconds each."""
    count = round(STILL_SECONDS * clip.fps)
    steps = np.arange(count) / clip.fps
    images = np.concatenate(
        [np.repeat(clip.images[:1], count, 0), clip.images, np.repeat(clip.images[-1:], count, 0)]
    )
    after = count / clip.fps + clip.duration
    return Pictures(images, np.concatenate([steps, clip.times + count / clip.fps, steps + after]), clip.fps)


def re_encoded(clip: Pictures) -> Pictures:
    """As a phone or a web site stores it: H.264, crf 28."""
    return encoded(clip, "libx264", {"crf": "28", "preset": "veryfast"})


def compressed(clip: Pictures) -> Pictures:
    """Until it hurts the eye: H.264, crf 40."""
    return encoded(clip, "libx264", {"crf": "40", "preset": "veryfast"})


def encoded(
    clip: Pictures, codec: str, options: dict[str, str], *, pixel_format: str = "yuv420p", container: str = "matroska"
) -> Pictures:
    """Through a codec and back, at a fixed rate. The file is kept in PREPARED: the next model reads the same one."""
    height, width = (side // 2 * 2 for side in clip.images.shape[1:3])
    digest = hashlib.blake2b(clip.images.data, digest_size=16)
    digest.update(f"{clip.images.shape} {clip.fps} {codec} {sorted(options.items())} {pixel_format}".encode())
    path = PREPARED / f"{digest.hexdigest()}.mkv"
    if not path.is_file():
        PREPARED.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            _encode(clip.images[:, :height, :width], clip.fps, partial, codec, options, pixel_format, container)
    images = [frame.image for frame in Video(path).frames()]
    if len(images) != len(clip.images):
        raise RuntimeError(f"{codec} gave {len(images)} of {len(clip.images)} frames back")
    return replace(clip, images=np.stack(images))


def _encode(
    images: Images, fps: float, path: Path, codec: str, options: dict[str, str], pixel_format: str, container: str
) -> None:
    rate = Fraction(fps).limit_denominator(1001)
    with av.open(str(path), "w", format=container) as writer:
        stream = writer.add_stream(codec, rate=rate, options=options)
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = pixel_format
        for index, image in enumerate(images):
            frame = _frame(image)
            frame.pts, frame.time_base = index, 1 / rate
            writer.mux(stream.encode(frame))
        writer.mux(stream.encode(None))
