"""The default model: fixed rates in time, so that one motion filmed at 24 and at 60 frames a second is seen alike.

A video is read at the base rate and encoded at slow views first. The fast view costs twice as much as the slow ones
together; it is encoded when they are unsure or see short periods, or when an exemplar asks for it. Its small images
are kept while they are few, and read again where they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from escounts.counting import Progress, part_of
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.views import BASE_RATE, View
from escounts.decision.evidence import wants_faster
from escounts.decision.rules import RULES, Calibration
from escounts.errors import VideoError
from escounts.nn.device import InferencePool, Precision
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.heads import VIDEO_OUTPUTS, RateHeadConfig
from escounts.nn.network import Network
from escounts.system.arrays import Array32, Image

if TYPE_CHECKING:
    from escounts.video.files import Video

SLOW_VIEWS = (View(6), View(3))
FAST_VIEWS = (View(1),)
FRAMES_AT_ONCE = 16
"""Images of which a core makes features in one piece."""
SLOW_SHARE = 0.5
"""Of the time that reading and encoding at all views takes."""
KEPT_IMAGES = 128 * 2**20
"""Bytes of images that are kept between the slow views and the fast one; a longer video (90 s) is read again."""


class MultiRateModel:
    """The neural CountingModel in `seconds` mode.

    views: encoded always. fast_views: encoded where they are wanted, no faster than the video.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "auto",
        calibration: Calibration | None = None,
        views: Sequence[View] = SLOW_VIEWS,
        fast_views: Sequence[View] = FAST_VIEWS,
    ) -> None:
        self.name = name
        self.device, self.precision = torch.device(device), precision
        self.network = network.to(self.device).eval()
        self.network.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.calibration = calibration or Calibration(calibrated=False)
        head = network.decoder.config.head
        self.video_outputs = len(VIDEO_OUTPUTS) if isinstance(head, RateHeadConfig) and head.video_width else 0
        self.unsure_below = self.calibration.unsure_below
        self.views, self.fast_views = tuple(views), tuple(fast_views)

    @property
    def reading(self) -> tuple[int, float]:
        """How it reads videos: side of its square images in pixels, images per second."""
        return self.network.encoder.spec.size, BASE_RATE

    def encode(
        self,
        video: Video,
        *,
        start: float = 0.0,
        end: float | None = None,
        progress: Progress | None = None,
    ) -> MultiRateEncoding:
        """Read the video at the base rate and encode the views that are needed."""
        size = self.network.encoder.spec.size
        whole = (end if end is not None else video.info.duration) - start
        images = FrameCache(
            lambda: (f.image for f in video.frames(size=(size, size), start=start, end=end, rate=BASE_RATE)),
            limit=KEPT_IMAGES,
        )

        def read(report: Progress | None) -> Iterator[Image]:
            for index, image in enumerate(images):
                if report is not None and index % 30 == 0:
                    report(min(index / BASE_RATE, whole), whole)
                yield image

        ranged = start > 0 or (end is not None and end < video.info.duration - RULES.end_slack)
        path = video.info.path
        identity = (path.resolve() if path.exists() else video, video.info.region)  # frames of a program have no file
        encoding = MultiRateEncoding(self, read, start=start, video=identity, ranged=ranged)
        self.encode_views(encoding, progress=progress)
        images.forget()
        if encoding.frames == 0:
            raise VideoError(f"{video.info.path}: no frame between {start:.2f} s and {start + whole:.2f} s")
        if progress is not None:
            progress(whole, whole)
        return encoding

    def encode_images(self, images: Iterable[Image], *, start: float = 0.0) -> MultiRateEncoding:
        """Encode (S, S, 3) RGB images that come at the base rate, the first at `start` seconds."""
        kept = images if isinstance(images, Sequence) or hasattr(images, "__array__") else list(images)
        encoding = MultiRateEncoding(self, lambda _: kept, start=start)
        self.encode_views(encoding)
        return encoding

    @torch.inference_mode()
    def frame_features(self, images: Sequence[Image]) -> Array32:
        """The encoder's first look at each of some images of its size: (T, H, W, C), nothing mixed over time."""
        encoder = self.network.encoder
        assert isinstance(encoder, LiteEncoder)
        parts = range(0, len(images), FRAMES_AT_ONCE)
        with InferencePool(self.device, self.precision) as cores:
            waiting = [
                cores.submit(
                    encoder.image_features,
                    torch.from_numpy(np.stack(images[first : first + FRAMES_AT_ONCE + 1])),
                    min(FRAMES_AT_ONCE, len(images) - first),
                )
                for first in parts
            ]
            found_TCHW = torch.cat([part.result().float().cpu() for part in waiting])
        features: Array32 = found_TCHW.permute(0, 2, 3, 1).numpy()
        return features

    def encode_views(self, encoding: MultiRateEncoding, *, progress: Progress | None = None) -> None:
        """Have an encoding encode, and ask, the views that it needs; those it has are not encoded again."""
        encoding.encode(self.views, part_of(progress, 0.0, SLOW_SHARE))
        if encoding.frames and self.fast_views and wants_faster(encoding.evidence()):
            encoding.encode(encoding.fast_views, part_of(progress, SLOW_SHARE, 1 - SLOW_SHARE))


class FrameCache:
    """Iterates over a video's images as often as it is asked; each time the same ones.

    read: reads the video from its beginning. limit: bytes that are kept; of a video that has more, nothing is.
    An image that comes twice (a video slower than the base rate) is held once and counted twice.
    """

    def __init__(self, read: Callable[[], Iterable[Image]], *, limit: int) -> None:
        self._read, self._limit = read, limit
        self._kept: list[Image] | None = None

    def __iter__(self) -> Iterator[Image]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Image] = []
        room = self._limit
        for image in self._read():
            room -= image.nbytes
            if room >= 0:
                kept.append(image)
            elif kept:
                kept = []
            yield image
        if room >= 0:
            self._kept = kept

    def forget(self) -> None:
        """Nothing is kept any longer, and nothing will be."""
        self._kept, self._limit = None, 0
