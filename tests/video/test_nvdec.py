"""Decoding by NVDEC. No GPU is here: FFmpeg's decoder stands for the engine, torch on the processor for the GPU."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from movies import write_movie

from escounts.errors import VideoError
from escounts.video import nvdec
from escounts.video.files import Frame, Video
from escounts.video.nvdec import NvdecVideo

SIZE = (24, 16)
NEAR = 1.0
"""Levels of 255 that the mean of all pixels may differ by"""


class SoftwareDecoder:
    """What CudaDecoder does with packets in Annex B, by FFmpeg; begins anew after the end of a stream."""

    device = "cpu"
    made: list[SoftwareDecoder]

    def __init__(self, codec: str) -> None:
        self.codec, self.given = codec, 0
        self._context: Any = None
        SoftwareDecoder.made.append(self)

    def working(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def decode(self, packet: Any | None) -> Iterator[tuple[int, torch.Tensor]]:
        if self._context is None:
            self._context = av.CodecContext.create("libdav1d" if self.codec == "av1" else self.codec, "r")
        own = None
        if packet is not None:  # bytes and time alone: the engine is told nothing else
            own = av.Packet(ctypes.string_at(packet.buffer_ptr, packet.buffer_size))
            own.pts = packet.pts
        for frame in self._context.decode(own):
            self.given += 1
            yield frame.pts, torch.from_numpy(frame.reformat(format="nv12").to_ndarray())
        if packet is None:
            self._context = None


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[SoftwareDecoder]:
    """The decoders that were made."""
    SoftwareDecoder.made = []
    monkeypatch.setattr(nvdec, "CudaDecoder", SoftwareDecoder)
    monkeypatch.setattr(nvdec, "missing", str)
    monkeypatch.setattr(nvdec, "_idle", [])
    return SoftwareDecoder.made


def patches(count: int, width: int = 96, height: int = 64) -> list[Any]:
    """Coloured patches with a little grain that change from picture to picture."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(40, 200, (count, height // 16, width // 16, 3))
    return list(
        (coarse.repeat(16, 1).repeat(16, 2) + rng.integers(0, 20, (count, height, width, 1))).astype(np.uint8)
    )


@pytest.fixture
def movie(tmp_path: Path) -> Path:
    return write_movie(tmp_path / "patches.mp4", patches(60), rate=15, options={"bf": "2"})


def frames(video: Video, **options: Any) -> list[Frame]:
    return list(video.frames(size=SIZE, rate=30.0, **options))


def near(one: list[Frame], other: list[Frame]) -> bool:
    """The same times, and pixels that differ by no more than the roundings of two scalers."""
    assert [frame.time for frame in one] == [frame.time for frame in other] and one
    apart = np.mean([np.abs(a.image.astype(int) - b.image).mean() for a, b in zip(one, other, strict=True)])
    return bool(apart < NEAR)


def same(one: list[Frame], other: list[Frame]) -> bool:
    assert len(one) == len(other) > 0
    return all(a.time == b.time and np.array_equal(a.image, b.image) for a, b in zip(one, other, strict=True))


def test_the_engine_decodes_and_its_frames_have_the_same_times(
    movie: Path, engines: list[SoftwareDecoder], caplog: pytest.LogCaptureFixture
) -> None:
    assert near(frames(NvdecVideo(movie)), frames(Video(movie)))
    part = {"start": 2.0, "end": 3.5}
    assert near(frames(NvdecVideo(movie), **part), frames(Video(movie), **part))
    every = [list(opened.frames(size=SIZE, every=7)) for opened in (NvdecVideo(movie), Video(movie))]
    assert near(*every) and not caplog.records


def test_one_decoder_serves_one_video_after_another(
    tmp_path: Path, movie: Path, engines: list[SoftwareDecoder]
) -> None:
    other = write_movie(tmp_path / "other.mp4", patches(40)[::-1], rate=15)
    wide = write_movie(tmp_path / "wide.mp4", patches(20, width=128))
    for path in (movie, other, movie):
        assert near(frames(NvdecVideo(path)), frames(Video(path)))
    assert [engine.given for engine in engines] == [160]
    assert near(frames(NvdecVideo(wide)), frames(Video(wide))) and len(engines) == 2  # other sizes want others
    assert near(frames(NvdecVideo(movie)), frames(Video(movie))) and len(engines) == 2
    assert len(nvdec._idle) == nvdec.KEPT


@pytest.mark.parametrize("count", [2, nvdec.BATCH - 1, nvdec.BATCH, 2 * nvdec.BATCH])
def test_however_many_pictures_there_are(
    tmp_path: Path, engines: list[SoftwareDecoder], caplog: pytest.LogCaptureFixture, count: int
) -> None:
    path = write_movie(tmp_path / "some.mp4", patches(count))
    assert near(frames(NvdecVideo(path)), frames(Video(path))) and not caplog.records


@pytest.mark.parametrize("codec", ["libx265", "libvpx-vp9", "libsvtav1"])
def test_other_codecs(
    tmp_path: Path, engines: list[SoftwareDecoder], caplog: pytest.LogCaptureFixture, codec: str
) -> None:
    """A codec is known by its own name, not by that of the decoder that reads it here."""
    if codec not in av.codecs_available:
        pytest.skip(f"this FFmpeg has no {codec}")
    path = write_movie(tmp_path / "new.mkv", patches(20), codec=codec)
    assert near(frames(NvdecVideo(path)), frames(Video(path)))
    assert [engine.given for engine in engines] == [20] and not caplog.records


def test_a_turned_video_comes_upright(tmp_path: Path, engines: list[SoftwareDecoder]) -> None:
    path = write_movie(tmp_path / "turned.mp4", patches(20), rotation=90)
    assert near(frames(NvdecVideo(path)), frames(Video(path))) and engines[0].given == 20


def test_what_an_edit_list_leaves_out_is_left_out(tmp_path: Path, engines: list[SoftwareDecoder]) -> None:
    """Packets before time 0 are for the decoder alone; the picture shown first is not the file's first."""
    whole = write_movie(tmp_path / "whole.mp4", patches(40), rate=20, options={"g": "40", "bf": "2"})
    trimmed = tmp_path / "trimmed.mp4"
    options = {"avoid_negative_ts": "disabled", "use_editlist": "1"}
    with av.open(str(whole)) as source, av.open(str(trimmed), "w", options=options) as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.pts is not None and packet.dts is not None:
                assert packet.time_base is not None
                second = int(Fraction(1) / packet.time_base)
                packet.stream, packet.pts, packet.dts = copied, packet.pts - second, packet.dts - second
                target.mux(packet)
    assert near(frames(NvdecVideo(trimmed)), frames(Video(trimmed)))
    assert engines[0].given == 40 and len(list(NvdecVideo(trimmed).frames(size=SIZE))) == 20


def test_pictures_of_uneven_times_keep_them(tmp_path: Path, engines: list[SoftwareDecoder]) -> None:
    times = [5 + index / 15 + (index % 3) * 0.013 for index in range(40)]
    path = write_movie(tmp_path / "uneven.mkv", patches(40), times=times)
    one, other = ([frame.time for frame in opened.frames(size=SIZE)] for opened in (NvdecVideo(path), Video(path)))
    assert one == other and engines[0].given == 40


def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec, "find_spec", lambda name: None)


def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec, "find_spec", lambda name: object())
    monkeypatch.setattr(nvdec, "LIBRARIES", ("libnot-here.so",))


@pytest.mark.parametrize(
    ("lacking", "told"), [(no_library, "PyNvVideoCodec is not installed: pip install"), (no_driver, "libnot-here.so")]
)
def test_without_nvdec_the_processor_decodes_and_one_line_says_so(
    movie: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lacking: Callable[[pytest.MonkeyPatch], None],
    told: str,
) -> None:
    lacking(monkeypatch)
    assert same(frames(NvdecVideo(movie)), frames(Video(movie)))
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert str(movie) in line and told in line and "decoded by the processor" in line


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("old.avi", {"codec": "mpeg4"}, "no decoder for mpeg4"),
        ("deep.mp4", {"pixel_format": "yuv420p10le"}, "yuv420p10le"),
        ("full.mp4", {"pixel_format": "yuv444p"}, "yuv444p"),
        ("lines.mp4", {"options": {"x264-params": "interlaced=1"}}, "interlaced"),
        ("raw.h264", {"container_format": "h264"}, "no times"),
    ],
)
def test_what_the_engine_does_not_take_is_decoded_by_the_processor(
    tmp_path: Path,
    engines: list[SoftwareDecoder],
    caplog: pytest.LogCaptureFixture,
    name: str,
    options: dict[str, Any],
    told: str,
) -> None:
    path = write_movie(tmp_path / name, patches(20), **options)
    assert same(frames(NvdecVideo(path)), frames(Video(path)))
    assert not engines and told in caplog.text and caplog.text.count("decoded by the processor") == 1


def test_where_the_engine_gives_up_midway_no_frame_is_lost_or_comes_twice(
    movie: Path, engines: list[SoftwareDecoder], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = SoftwareDecoder.decode

    def failing(self: SoftwareDecoder, packet: Any | None) -> Iterator[tuple[int, torch.Tensor]]:
        if self.given > 20:
            raise RuntimeError("the engine is gone\nand says more of it")
        yield from own(self, packet)

    monkeypatch.setattr(SoftwareDecoder, "decode", failing)
    found = frames(NvdecVideo(movie))
    assert near(found, frames(Video(movie))) and not nvdec._idle  # and that engine is not used again
    assert same(found[40:], frames(Video(movie))[40:])  # 16 of 60 frames at 15 a second were the engine's
    assert (
        caplog.text.count("NVDEC does not take it (RuntimeError: the engine is gone): decoded by the processor") == 1
    )


def test_a_video_that_is_left_midway_does_not_disturb_the_next(movie: Path, engines: list[SoftwareDecoder]) -> None:
    begun = NvdecVideo(movie).frames(size=SIZE)
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert near(frames(NvdecVideo(movie)), frames(Video(movie))) and len(engines) == 2


def test_an_engine_that_gives_nothing_is_not_believed(
    movie: Path, engines: list[SoftwareDecoder], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SoftwareDecoder, "decode", lambda self, packet: iter(()))
    assert same(frames(NvdecVideo(movie)), frames(Video(movie))) and "gave no picture" in caplog.text


def test_pictures_of_another_size_are_not_believed(
    movie: Path, engines: list[SoftwareDecoder], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SoftwareDecoder, "decode", lambda self, packet: iter([(0, torch.zeros(1, 1))]))
    assert same(frames(NvdecVideo(movie)), frames(Video(movie))) and "pictures of another size" in caplog.text


def test_what_neither_can_read_is_an_error(tmp_path: Path, engines: list[SoftwareDecoder]) -> None:
    path = tmp_path / "text.mp4"
    path.write_bytes(b"this is no video")
    with pytest.raises(VideoError, match=r"text\.mp4"):
        NvdecVideo(path)


def test_a_folder_of_images_is_read_as_ever(tmp_path: Path, engines: list[SoftwareDecoder]) -> None:
    for index, picture in enumerate(patches(3)):
        image = av.VideoFrame.from_ndarray(picture, format="rgb24")
        image.save(str(tmp_path / f"{index}.png"))
    assert same(frames(NvdecVideo(tmp_path)), frames(Video(tmp_path))) and not engines
