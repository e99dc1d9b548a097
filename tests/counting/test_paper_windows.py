"""The paper's way of counting: windows in raw frames, K shifts, one encoding, long videos in stretches."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from escounts.counter import Counter
from escounts.counting.maps import stretches
from escounts.counting.paper_windows import PAPER_WINDOWS, RELEASED_WINDOWS, PaperWindowModel, ramp
from escounts.counting.views import TokenFile
from escounts.errors import ExemplarError, ModelError
from escounts.nn.decoder import DecoderConfig
from escounts.nn.encoders.interface import EncoderSpec
from escounts.nn.network import LITE_DECODER, Network, NetworkConfig
from escounts.nn.similarity import SimilarityConfig
from escounts.research.datasets.annotations import VideoAnnotation
from escounts.research.datasets.encoding import encode_video, layout_for
from escounts.research.training.predictions import decode_tokens
from escounts.video.files import Frame, Video

av = pytest.importorskip("av")

SMALL = NetworkConfig(
    "mae-vit-b",
    {"width": 32, "depth": 1, "heads": 2, "size": 32},
    DecoderConfig(in_channels=32, channels=16, heads=2, latent_tokens=4, grid=(2, 2)),
)


def write_video(path: Path, frames: int, *, rate: int = 30, size: tuple[int, int] = (48, 32)) -> Path:
    """A bright bar to and fro, one and a half seconds there and back."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for index in range(frames):
            image = np.zeros((size[1], size[0], 3), np.uint8)
            left = int((size[0] - 8) * (0.5 - 0.5 * math.cos(2 * math.pi * index / 45)))
            image[:, left : left + 8] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    return Video(write_video(tmp_path_factory.mktemp("frames") / "bar.mp4", 300))


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    return Network(SMALL).eval()


def plain_sequences(network: Network, video: Video, shifts: int) -> list[torch.Tensor]:
    """Every shift's tokens written plainly: all frames in memory, one window at a time."""
    spec = network.encoder.spec
    size = spec.read_size(video.info.width, video.info.height)
    images = [spec.cut(frame.image) for frame in video.frames(size=size, every=spec.every)]
    sequences = []
    for shift in range(shifts):
        first = shift * spec.window_frames // shifts
        cells = []
        for start in range(first, len(images), spec.window_frames):
            window = images[start : start + spec.window_frames]
            real = -(-len(window) * spec.cells // spec.window_frames)
            window = window + window[-1:] * (spec.window_frames - len(window))
            frames = torch.from_numpy(np.stack(window)).permute(0, 3, 1, 2)
            cells.append(network.encoder(network.encoder.normalise(frames)[None])[0, :real])
        sequences.append(torch.cat(cells))
    return sequences


@torch.inference_mode()
def plain_density(network: Network, video: Video, shifts: int) -> np.ndarray:
    """The aligned mean of the shifts' maps, by how many cover a cell."""
    sequences = plain_sequences(network, video, shifts)
    total, cover = np.zeros(len(sequences[0])), np.zeros(len(sequences[0]))
    for shift, tokens_THWC in enumerate(sequences):
        offset = shift * network.encoder.spec.cells // shifts
        values = network.decoder(tokens_THWC[None]).density_BT[0].numpy()
        total[offset : offset + len(values)] += values
        cover[offset : offset + len(values)] += 1
    return total / cover


@pytest.mark.parametrize("shifts", [1, 2, 4])
def test_equals_the_plain_computation(network: Network, video: Video, shifts: int) -> None:
    model = PaperWindowModel("small", network, config=replace(PAPER_WINDOWS, shifts=shifts, batch=3))
    density = model.encode(video).estimate().density
    expected = plain_density(network, video, shifts)
    assert len(density.values) == math.ceil(300 / 8)
    np.testing.assert_allclose(density.values, expected, atol=2e-3 * np.abs(expected).max())
    assert density.step == pytest.approx(8 / 30, rel=1e-6) and density.start == 0.0


def test_every_window_is_encoded_once_and_estimates_encode_nothing(
    network: Network, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    forward = network.encoder.forward
    monkeypatch.setattr(network.encoder, "forward", lambda x: seen.append(len(x)) or forward(x))  # type: ignore[func-returns-value]
    encoding = PaperWindowModel("small", network, config=replace(PAPER_WINDOWS, batch=8)).encode(video)
    windows = sum(len(range(first, 75, 16)) for first in (0, 4, 8, 12))
    assert sum(seen) == windows and max(seen) == 8
    encoding.estimate()
    encoding.estimate(start=1.0, end=4.0)
    assert sum(seen) == windows


def test_only_a_few_windows_of_pixels_are_held(
    network: Network, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows are encoded while frames are read: the reader is never far ahead of what was encoded."""
    read, ahead = [], []
    frames, forward = video.frames, network.encoder.forward
    monkeypatch.setattr(video, "frames", lambda **given: (read.append(1) or frame for frame in frames(**given)))  # type: ignore[func-returns-value]
    monkeypatch.setattr(network.encoder, "forward", lambda x: ahead.append(len(read)) or forward(x))  # type: ignore[func-returns-value]
    PaperWindowModel("small", network, config=PAPER_WINDOWS).encode(video)
    assert len(read) == 75
    assert all(count <= turn * 4 + 16 for turn, count in enumerate(ahead))


def test_a_range_is_a_part_of_the_whole(network: Network, video: Video) -> None:
    encoding = PaperWindowModel("small", network).encode(video)
    whole, part = encoding.estimate().density, encoding.estimate(start=8 / 30 * 5, end=8 / 30 * 20).density
    assert part.start == pytest.approx(8 / 30 * 5)
    np.testing.assert_allclose(part.values, whole.values[5:20], atol=1e-6)


def test_the_density_lies_in_the_seconds_that_were_encoded(network: Network, video: Video) -> None:
    encoding = PaperWindowModel("small", network).encode(video, start=2.0, end=6.0)
    density = encoding.estimate().density
    assert encoding.start == 2.0
    assert encoding.end == pytest.approx(6.0, abs=4 / 30)
    assert density.start == 2.0 and len(density.values) == 15


def test_long_videos_are_decoded_in_stretches_that_cover_them(network: Network, video: Video) -> None:
    long = PaperWindowModel("small", network, config=replace(PAPER_WINDOWS, stretch=16, overlap=6))
    density = long.encode(video).estimate().density
    whole = PaperWindowModel("small", network).encode(video).estimate().density
    assert len(density.values) == len(whole.values) and np.isfinite(density.values).all()
    assert abs(density.count - whole.count) < 0.25 * np.abs(whole.values).sum()


@pytest.mark.parametrize(
    ("cells", "stretch", "overlap"), [(1, 4, 1), (4, 4, 1), (5, 4, 1), (100, 16, 6), (33, 16, 0)]
)
def test_stretches_cover_every_cell_and_overlap(cells: int, stretch: int, overlap: int) -> None:
    parts = stretches(cells, stretch, stretch - overlap)
    covered = np.zeros(cells, int)
    for first, last in parts:
        assert 0 <= first < last <= cells and last - first <= stretch
        covered[first:last] += 1
    assert covered.min() >= 1
    assert all(later[0] <= earlier[1] - overlap for earlier, later in pairwise(parts))
    assert ramp(7).tolist() == [1, 2, 3, 4, 3, 2, 1]


def test_exemplars_change_the_map_and_their_order_does_not_matter(
    network: Network, video: Video, tmp_path: Path
) -> None:
    other = Video(write_video(tmp_path / "other.mp4", 90, rate=15))
    model = PaperWindowModel("small", network)
    encoding = model.encode(video)
    exemplars = [encoding.encode_exemplar(0.0, 1.5), model.encode(other).encode_exemplar(1.0, 4.0)]
    assert exemplars[0].tokens_THWC.shape == (8, 2, 2, 16)
    without, one, two = (encoding.estimate(s).density.values for s in ((), exemplars[:1], exemplars))
    assert np.abs(one - without).max() > 1e-4 and np.abs(two - one).max() > 1e-5
    np.testing.assert_allclose(encoding.estimate(exemplars[::-1]).density.values, two, atol=1e-6)
    with pytest.raises(ExemplarError, match="its end must come after its start"):
        encoding.encode_exemplar(2.0, 2.0)


def test_tokens_that_are_not_numbers_are_answered_by_name(
    network: Network, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = network.encoder.forward
    monkeypatch.setattr(network.encoder, "forward", lambda x: forward(x) * torch.inf)
    with pytest.raises(ModelError, match=r"tokens hold .* not finite"):
        PaperWindowModel("small", network).encode(video)


def test_padding_by_the_mean_colour_differs_only_in_the_last_windows(network: Network, video: Video) -> None:
    grey = PaperWindowModel("small", network, config=replace(RELEASED_WINDOWS, shifts=1)).encode(video)
    last = PaperWindowModel("small", network, config=replace(PAPER_WINDOWS, shifts=1)).encode(video)
    assert grey.sequences[0].cells == last.sequences[0].cells == 38
    a, b = (e.sequences[0].read(0, 38, torch.device("cpu")) for e in (grey, last))
    assert torch.equal(a[:32], b[:32]) and not torch.equal(a[32:], b[32:])


def test_shorter_than_a_window(network: Network, tmp_path: Path) -> None:
    for frames, cells in ((2, 1), (9, 2), (64, 8)):
        short = Video(write_video(tmp_path / f"{frames}.mp4", frames))
        estimate = PaperWindowModel("small", network).encode(short).estimate()
        assert len(estimate.density.values) == cells
        assert 0.0 < estimate.confidence <= 1.0 and estimate.details["calibrated"] == 0.0


def test_agreement_of_the_shifts_is_the_confidence(network: Network, video: Video) -> None:
    estimate = PaperWindowModel("small", network).encode(video).estimate()
    assert estimate.confidence == pytest.approx(1 / (1 + estimate.details["shift_spread"]))
    assert estimate.details["shifts"] == 4
    alone = PaperWindowModel("small", network, config=replace(PAPER_WINDOWS, shifts=1)).encode(video).estimate()
    assert alone.confidence == 0.5


def test_counts_through_the_counter_with_progress(network: Network, video: Video) -> None:
    heard: list[tuple[float, float]] = []
    counter = Counter(PaperWindowModel("small", network))
    result = counter.encode(video, progress=lambda done, whole: heard.append((done, whole))).count()
    assert result.model == "small" and len(result.repetitions) == result.count
    assert heard and all(done <= whole for done, whole in heard)


def test_impossible_settings_are_refused(network: Network) -> None:
    with pytest.raises(ValueError, match="overlap < stretch"):
        replace(PAPER_WINDOWS, stretch=96)
    with pytest.raises(ValueError, match="3 time shifts do not divide the 8 cells"):
        PaperWindowModel("small", network, config=replace(PAPER_WINDOWS, shifts=3))


@pytest.mark.parametrize("limit", [1, 10**9])
def test_tokens_come_back_from_memory_and_from_the_file(limit: int) -> None:
    tokens = torch.randn(11, 2, 3, 4).half()
    file = TokenFile((2, 3, 4), memory_limit=limit)
    for part in tokens.split(4):  # type: ignore[no-untyped-call]
        file.append(part)
    assert file.cells == 11
    assert file.nbytes == (tokens.nbytes if limit > 1 else 0), "what lies in a file takes no memory"
    assert torch.equal(file.read(3, 9, torch.device("cpu")), tokens[3:9].float())
    with pytest.raises(ValueError, match="this file has"):
        file.append(torch.zeros(1, 2, 3, 5))


def test_frames_are_scaled_on_the_short_side_and_cut_in_the_middle() -> None:
    spec = EncoderSpec("x", channels=1, size=32)
    assert spec.read_size(640, 480) == (43, 32) and spec.read_size(480, 640) == (32, 43)
    assert spec.read_size(10_000, 10) == (128, 32)
    image = np.zeros((32, 43, 3), np.uint8)
    image[:, 5:37] = 1
    assert spec.cut(image).shape == (32, 32, 3) and spec.cut(image).all()
    assert replace(spec, fps=10.0).read_size(640, 480) == (32, 32)


class TwoHours:
    """Stands in for a two-hour video at 30 frames a second, without a decoder's cost."""

    info = SimpleNamespace(path=Path("two-hours.mp4"), width=32, height=32, fps=30.0, duration=7200.0)

    def frames(
        self,
        *,
        size: tuple[int, int],
        start: float = 0.0,
        end: float | None = None,
        rate: float | None = None,
        every: int = 1,
    ) -> Any:
        for index in range(0, 7200 * 30, every):
            yield Frame(index / 30, np.full((32, 32, 3), index % 251, np.uint8))


@pytest.mark.release
def test_two_hours_are_encoded_in_bounded_memory() -> None:
    """Two hours in every release check, in small too: less would fit into the bound unbounded; it takes 6 s."""
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    decoder = replace(SMALL.decoder, channels=128, grid=(2, 2))
    config = replace(SMALL, decoder=replace(decoder, window_blocks=1, cross_blocks=1))
    model = PaperWindowModel(
        "small", Network(config).eval(), config=replace(PAPER_WINDOWS, batch=32, stretch=96, overlap=24)
    )
    before, peak = process.memory_info().rss, 0

    def watch(done: float, whole: float) -> None:
        nonlocal peak
        peak = max(peak, process.memory_info().rss - before)

    encoding = model.encode(cast(Video, TwoHours()), progress=watch)
    tokens = sum(sequence.cells for sequence in encoding.sequences) * 2 * 2 * 128 * 2
    assert encoding.sequences[0].cells == 27000 and tokens > 100e6
    assert peak < 250e6
    part = encoding.estimate(start=3600.0, end=3660.0).density
    assert part.start == pytest.approx(3600.0, abs=part.step) and np.isfinite(part.values).all()


@pytest.mark.parametrize("shots", [0, 1])
def test_an_encoder_with_a_rate_counts_as_its_stored_tokens_do(shots: int, video: Video) -> None:
    """A decoder learns from tokens averaged to its grid, with exemplars cut from them; counting shows it the same."""
    torch.manual_seed(0)
    decoder = replace(LITE_DECODER, in_channels=96, channels=16, heads=2, similarity=SimilarityConfig(lags=16))
    network = Network(NetworkConfig("patches", {}, decoder)).eval()
    layout = layout_for(network.encoder.spec, "", pool=decoder.grid)
    marked = VideoAnnotation("bar", "bar.mp4", None, 1, ((1.5, 3.0),), None, None, "test")
    tokens = encode_video(video.path, marked, network.encoder, layout)
    given = [(tokens.exemplars[0], 1.5 / tokens.step)] * shots
    expected = decode_tokens(network.decoder, tokens, layout, given)
    encoding = PaperWindowModel("patches", network).encode(video)
    estimate = encoding.estimate([encoding.encode_exemplar(1.5, 3.0)] * shots)
    assert estimate.density.kind == "rate" and estimate.density.step == tokens.step == 0.1
    np.testing.assert_allclose(estimate.density.values, expected, atol=2e-3)
    assert np.abs(expected).sum() > 0.01
