"""Decoding by NVDEC. No GPU is here: another decoder stands for the engine, or the processor decodes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
import pytest
from movies import write_movie

from escounts import nvdec
from escounts.errors import VideoError
from escounts.video import Frame, Video

SIZE = (24, 16)


@pytest.fixture
def movie(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (64, 96, 3), dtype=np.uint8) for _ in range(60)]
    return write_movie(tmp_path / "noise.mp4", pictures, rate=15)


@pytest.fixture
def software_engine(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """FFmpeg's own decoder in the engine's place; the options that were asked for."""
    asked: list[dict[str, str]] = []

    def engine(name: str, options: dict[str, str]) -> Any:
        assert name == "h264_cuvid"
        asked.append(options)
        return av.CodecContext.create("h264", "r")

    monkeypatch.setattr(nvdec, "engine", engine)
    return asked


def frames(path: Path, **options: Any) -> list[Frame]:
    return list(Video(path, **options).frames(size=SIZE, rate=30.0))


def same(one: list[Frame], other: list[Frame]) -> bool:
    assert len(one) == len(other) > 0
    return all(a.time == b.time and np.array_equal(a.image, b.image) for a, b in zip(one, other, strict=True))


def test_the_engine_decodes_and_its_frames_have_the_same_times(
    movie: Path, software_engine: list[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    assert same(frames(movie, nvdec=True), frames(movie))
    assert software_engine == [{"resize": "48x32"}] and not caplog.records
    later = [list(Video(movie, nvdec=by).frames(size=SIZE, start=2.0, end=3.5, rate=30.0)) for by in (True, False)]
    assert same(*later) and len(software_engine) == 2


def test_without_nvdec_the_processor_decodes_and_one_line_says_so(
    movie: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nvdec, "LIBRARIES", ("libnot-here.so",))
    assert same(frames(movie, nvdec=True), frames(movie))
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert str(movie) in line and "libnot-here.so" in line and "decoded by the processor" in line


def test_a_codec_that_the_engine_has_no_decoder_for_is_decoded_by_the_processor(
    tmp_path: Path, software_engine: list[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    path = write_movie(
        tmp_path / "old.avi", [rng.integers(0, 256, (64, 96, 3), dtype=np.uint8) for _ in range(20)], codec="mpeg4"
    )
    assert same(frames(path, nvdec=True), frames(path))
    assert not software_engine and "no decoder for mpeg4" in caplog.text


@pytest.mark.parametrize(("codec", "engine"), [("libsvtav1", "av1_cuvid"), ("libvpx-vp9", "vp9_cuvid")])
def test_a_codec_is_known_by_its_own_name_not_by_that_of_the_decoder_that_reads_it_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, engine: str
) -> None:
    if codec not in av.codecs_available:
        pytest.skip(f"this FFmpeg has no {codec}")
    asked: list[str] = []

    def refusing(name: str, options: dict[str, str]) -> Any:
        asked.append(name)
        raise VideoError("no engine here")

    monkeypatch.setattr(nvdec, "engine", refusing)
    pictures = [np.full((64, 96, 3), level, np.uint8) for level in range(20)]
    path = write_movie(tmp_path / "new.mkv", pictures, codec=codec)
    assert same(frames(path, nvdec=True), frames(path)) and asked == [engine]


def test_where_the_engine_gives_up_midway_no_frame_is_lost_or_comes_twice(
    movie: Path,
    software_engine: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = nvdec._decoded
    given: list[Any] = []

    def failing(decoder: Any, packet: Any, dropped: set[int]) -> Any:
        if len(given) > 20:
            raise av.error.ExternalError(1, "the engine is gone")
        pictures = own(decoder, packet, dropped)
        given.extend(pictures)
        return pictures

    monkeypatch.setattr(nvdec, "_decoded", failing)
    assert same(frames(movie, nvdec=True), frames(movie))
    assert 20 < len(given) < 60 and caplog.text.count("decoded by the processor") == 1


def test_an_engine_that_gives_nothing_is_not_believed(
    movie: Path,
    software_engine: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(nvdec, "_decoded", lambda decoder, packet, dropped: [])
    assert same(frames(movie, nvdec=True), frames(movie)) and "gave no picture" in caplog.text


def test_what_neither_can_read_is_an_error(tmp_path: Path, software_engine: list[dict[str, str]]) -> None:
    path = tmp_path / "text.mp4"
    path.write_bytes(b"this is no video")
    with pytest.raises(VideoError, match=r"text\.mp4"):
        Video(path, nvdec=True)


@pytest.mark.parametrize(
    ("size", "target", "resize"),
    [
        ((1280, 720), (128, 128), "640x360"),
        ((256, 256), (128, 128), "128x128"),
        ((254, 256), (128, 128), None),  # no pixel of the half is the mean of four
        ((256, 252), (128, 128), None),  # the half is smaller than what is wanted
        ((1280, 720), None, None),
    ],
)
def test_the_engine_halves_and_no_more(
    size: tuple[int, int], target: tuple[int, int] | None, resize: str | None
) -> None:
    assert nvdec.resize_option(*size, target) == ({} if resize is None else {"resize": resize})


def test_all_of_its_decoders_are_in_this_ffmpeg_or_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdec, "LIBRARIES", ())
    assert nvdec.missing() == "" or "built without" in nvdec.missing()
    monkeypatch.setattr(nvdec, "DECODERS", {"h264": "no_such_decoder"})
    assert "built without" in nvdec.missing()
