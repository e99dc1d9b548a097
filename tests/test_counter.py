"""Counting through the public interface: encode once, count many."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from movies import bouncing, noise, write_movie

import escounts
from escounts.counter import REFERENCES, Counter
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import View
from escounts.errors import EscountsError, ExemplarError, ModelError, VideoError
from escounts.nn.decoder import ExemplarKeysValues
from escounts.nn.network import LITE_TINY, Network
from escounts.results import ExemplarSpan

SECONDS = 12.0
REPETITIONS = 8


@pytest.fixture(scope="module")
def counter() -> Counter:
    return escounts.load("spectral")


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("counter") / "eight.mp4"
    return write_movie(path, bouncing(REPETITIONS, SECONDS, still_before=3.0, still_after=2.0))


def test_count_times_and_confidence(eight: Path) -> None:
    result = escounts.count(eight, model="spectral")
    assert result.count == REPETITIONS == len(result.repetitions)
    assert result.raw_count == pytest.approx(REPETITIONS, abs=0.5)
    assert result.repetitions[0].start == pytest.approx(3.0, abs=0.8)
    assert result.repetitions[-1].end == pytest.approx(15.0, abs=0.8)
    lengths = [repetition.end - repetition.start for repetition in result.repetitions]
    assert lengths == pytest.approx([SECONDS / REPETITIONS] * REPETITIONS, rel=0.2)
    assert result.confidence > 0.4 and result.confidence_kind == "agreement" and result.unsure
    assert result.model == "spectral" and result.duration == pytest.approx(17.0, abs=0.05)
    assert set(result.timings) == {"encode", "count", "total"} and result.timings["total"] > 0


def test_nothing_repeats(tmp_path: Path, counter: Counter) -> None:
    still = write_movie(tmp_path / "still.mp4", bouncing(0, 4.0))
    wandering = write_movie(tmp_path / "wandering.mp4", noise(6.0))
    assert counter.count(still).count == 0
    result = counter.count(wandering)
    assert result.count == 0 and result.repetitions == () and result.confidence < 0.6
    assert counter.count(wandering, assume_repeats=True).raw_count > 0


def test_encode_once_count_many(eight: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = counter.encode(eight)
    monkeypatch.setattr("escounts.video.files.Video.frames", None)  # from here on nothing may be decoded
    whole = encoded.count()
    assert np.array_equal(encoded.count().density.values, whole.density.values)
    for exemplar in [(3.0, 4.5), "3-4.5", "0:03.0-0:04.5", ExemplarSpan(3.0, 4.5), (encoded, 3.0, 4.5)]:
        result = encoded.count([exemplar])
        assert result.count == REPETITIONS
        assert result.exemplars == (ExemplarSpan(3.0, 4.5),)
    assert encoded.count([(3.0, 4.5), (6.0, 7.5)]).count == REPETITIONS
    half = encoded.count(start=3.0, end=9.0)
    assert half.count == REPETITIONS // 2 and half.range == (3.0, 9.0)


def test_an_exemplar_sets_the_unit(eight: Path, counter: Counter) -> None:
    """Two bounces marked as one repetition: half as many are counted."""
    encoded = counter.encode(eight)
    assert encoded.count([(3.0, 6.0)]).count == REPETITIONS // 2


def test_exemplar_from_another_video_is_encoded_once(
    eight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_movie(tmp_path / "other.mp4", bouncing(4, 6.0))
    counter = escounts.load("spectral")
    encoded = counter.encode(eight)
    calls = []
    encode = type(counter.model).encode
    monkeypatch.setattr(type(counter.model), "encode", lambda *a, **k: calls.append(1) or encode(*a, **k))  # type: ignore[func-returns-value]
    for _ in range(3):
        result = encoded.count([f"{other}@1.5-3.0"])
        assert result.count == REPETITIONS and result.exemplars[0].video == str(other)
    assert len(calls) == 1


def test_only_the_exemplars_used_last_are_remembered(eight: Path) -> None:
    counter = escounts.load("spectral")
    spans = [(3.0 + i / 10, 4.5 + i / 10) for i in range(REFERENCES + 1)]
    kept = [counter.reference(eight, *span) for span in spans[:-1]]
    assert counter.reference(eight, *spans[0]) is kept[0]
    counter.reference(eight, *spans[-1])  # one too many: the second, unused for longest, goes
    assert counter.reference(eight, *spans[0]) is kept[0]
    assert counter.reference(eight, *spans[1]) is not kept[1]


def test_exemplar_outside_the_counted_stretch(eight: Path, counter: Counter) -> None:
    result = counter.count(eight, exemplars=["3.0-4.5"], start=9.0, end=15.0)
    assert result.count == REPETITIONS // 2 and result.range == pytest.approx((9.0, 15.0), abs=0.05)


def test_the_length_of_an_exemplar_counts_in_its_own_file_and_nowhere_else(
    eight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it lies outside the encoded stretch, and so comes from an encoding of its own."""
    torch.manual_seed(0)
    model = MultiRateModel("tiny", Network(LITE_TINY), views=(View(3),), fast_views=())
    lengths: list[float] = []
    decoder = model.network.decoder
    encode_exemplars = decoder.encode_exemplars

    def spy(*exemplars: torch.Tensor, cells_BS: torch.Tensor | None = None) -> ExemplarKeysValues:
        lengths.extend([] if cells_BS is None else cells_BS.flatten().tolist())
        return encode_exemplars(*exemplars, cells_BS=cells_BS)

    monkeypatch.setattr(decoder, "encode_exemplars", spy)
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(eight.read_bytes())
    encoded = Counter(model).encode(eight, start=12.0)
    encoded.count(["12-13.5"])
    encoded.count(["3-4.5"])
    encoded.count([f"{copy}@3-4.5"])
    assert lengths == pytest.approx([15.0, 15.0, 0.0])  # cells at ten a second


@pytest.mark.parametrize(
    "exemplar", [(4.0, 4.0), (5.0, 4.0), (16.0, 18.0), (-1.0, 2.0), "nonsense", 3.0, "x.mp4@1-2"]
)
def test_wrong_exemplars(eight: Path, counter: Counter, exemplar: object) -> None:
    with pytest.raises((ExemplarError, VideoError)):
        counter.count(eight, exemplars=[exemplar])


def test_ranges_outside_the_video(eight: Path, counter: Counter) -> None:
    with pytest.raises(VideoError, match="lasts 17"):
        counter.count(eight, start=20.0)
    with pytest.raises(VideoError, match="0 <= start < end"):
        counter.count(eight, start=5.0, end=4.0)
    with pytest.raises(VideoError, match="nothing between"):
        counter.encode(eight, start=2.0, end=6.0).count(start=8.0)


def test_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"'spektral'; known: default, .*spectral"):
        escounts.load("spektral")


def test_progress_runs_to_the_end(eight: Path, counter: Counter) -> None:
    seen: list[tuple[float, float]] = []
    counter.encode(eight, progress=lambda done, total: seen.append((done, total)))
    done = [pair[0] for pair in seen]
    assert done == sorted(done) and done[-1] > 0.8 * seen[-1][1] and seen[-1][1] == pytest.approx(17.0, abs=0.1)


def test_public_names() -> None:
    for name in escounts.__all__:
        if name == "batch" and find_spec("pyarrow") is None:  # the package alone, as the release check installs it
            with pytest.raises(EscountsError, match=r"this needs pyarrow: pip install"):
                getattr(escounts, name)
        else:
            assert getattr(escounts, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        escounts.nothing  # noqa: B018


def test_all_dev_clips_are_counted(shared: Path, counter: Counter) -> None:
    """Three clips of each kind here; benchmarks/real_clips.py counts them all."""
    clips = sorted((shared / "clips" / "dev").glob("*.mp4"))
    assert clips
    for clip in clips[::12]:
        assert counter.count(clip).count >= 0
