"""The default model's estimation: views, windows, exemplars, ranges. Random weights: arithmetic, not accuracy."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from movies import write_movie

from escounts.counter import Counter
from escounts.counting import multi_rate as seconds
from escounts.counting import views
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.views import BASE_RATE, CHUNK, View, ViewEncoder, WindowStore
from escounts.decision.evidence import Evidence, wants_faster
from escounts.decision.rules import Calibration
from escounts.decision.units import rest_factor
from escounts.errors import ExemplarError, ModelError
from escounts.nn.device import InferencePool
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.network import LITE_TINY, Network
from escounts.system.arrays import Array32
from escounts.video.files import Frame, Video


@pytest.fixture(scope="module")
def model() -> MultiRateModel:
    torch.manual_seed(0)
    looking = replace(LITE_TINY, encoder_options={**LITE_TINY.encoder_options, "look": 8})
    return MultiRateModel("tiny", Network(looking), views=(View(6), View(3), View(1)), fast_views=())


def moving_square(frames: int, period: float = 30.0) -> np.ndarray:
    """(T, 64, 64, 3): a bright square that goes to and fro."""
    images = np.full((frames, 64, 64, 3), 40, np.uint8)
    for t in range(frames):
        x = int(20 + 15 * np.sin(2 * np.pi * t / period))
        images[t, 20:40, x : x + 12] = 220
    return images


def test_views_count_their_cells() -> None:
    assert View(3).rate == 10.0
    assert [View(3, phase).cells(10) for phase in (0, 1, 2)] == [4, 3, 3]
    assert View(6).cells(0) == 0


def test_windows_cover_every_cell_and_the_last_ends_with_the_video(model: MultiRateModel) -> None:
    encoding = model.encode_images(moving_square(400))
    for view, windows in encoding.windows.items():
        cells = view.cells(400)
        covered = np.zeros(cells, bool)
        for window in windows:
            covered[window.start : window.start + window.cells] = True
        assert covered.all()
        assert windows[-1].start + windows[-1].cells == cells
    fast = encoding.windows[View(1)]
    assert [w.start for w in fast] == [0, 64, 128, 192, 256, 272]


def test_a_window_waits_for_no_chunk_that_has_just_begun(model: MultiRateModel) -> None:
    begun: list[tuple[int, int]] = []  # chunks and windows that had been submitted before a window

    class Listed(InferencePool):
        chunks = windows = 0

        def submit(self, work: Any, *args: Any, **options: Any) -> Any:
            if args:
                begun.append((self.chunks, self.windows))
            self.windows, self.chunks = self.windows + bool(args), self.chunks + (not args)
            return super().submit(work, *args, **options)

    network = model.network
    decoder = network.decoder.config
    assert isinstance(network.encoder, LiteEncoder)
    store = WindowStore(decoder.grid, decoder.channels, network.encoder.config.look)
    encoder = ViewEncoder(network, View(1), store, Listed(model.device))
    for image in moving_square(400):
        encoder.push(image)
    needed = [(encoder.length + encoder.length // 2 * window) // CHUNK for _, window in begun]
    assert len(begun) == 5
    assert [chunks for chunks, _ in begun] == [chunks + 1 for chunks in needed]


def test_windows_encoded_together_are_those_encoded_alone(model: MultiRateModel) -> None:
    """As a GPU takes them; a still stretch in the middle has windows without tokens."""
    moved = moving_square(300)
    images = [*moved, *[moved[-1]] * 200, *moving_square(333)]
    decoder = model.network.decoder.config
    network_encoder = model.network.encoder
    assert isinstance(network_encoder, LiteEncoder)
    found = []
    for at_once in (1, 3):
        store = WindowStore(decoder.grid, decoder.channels, network_encoder.config.look)
        encoder = ViewEncoder(model.network, View(1), store, InferencePool(model.device))
        encoder._at_once = at_once
        for image in images:
            encoder.push(image)
        encoder.finish()
        moving = [window for window in encoder.windows if window.offset is not None]
        found.append((encoder.windows, store.read(moving, model.device)))
    (alone, one), (together, other) = found
    assert together == alone and any(window.offset is None for window in alone)
    assert torch.allclose(one.tokens_BTHWC, other.tokens_BTHWC, atol=2e-3)  # kept in half precision
    assert one.similarity_BTC is not None and other.similarity_BTC is not None
    assert torch.allclose(one.similarity_BTC, other.similarity_BTC, atol=2e-3)
    looks = [store.read_looks(window) for window in moving]
    assert {len(cells) for cells in looks} == {window.cells for window in moving}
    assert all(np.isfinite(cells).all() and cells.std() > 0 for cells in looks)


def test_chunk_size_does_not_change_the_density(model: MultiRateModel, monkeypatch: pytest.MonkeyPatch) -> None:
    images = moving_square(300)
    whole = model.encode_images(images).estimate().density.values
    for chunk in (7, 250):
        monkeypatch.setattr(views, "CHUNK", chunk)
        assert np.allclose(whole, model.encode_images(images).estimate().density.values, atol=2e-4)


def test_spilling_to_a_file_changes_nothing(model: MultiRateModel, monkeypatch: pytest.MonkeyPatch) -> None:
    images = moving_square(300)
    kept = model.encode_images(images).estimate().density.values
    monkeypatch.setattr(views, "MEMORY_LIMIT", 1000)
    assert np.array_equal(kept, model.encode_images(images).estimate().density.values)


def test_two_cores_say_what_one_says(model: MultiRateModel) -> None:
    images = moving_square(700)
    before = torch.get_num_threads()
    said = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            encoding = model.encode_images(images)
            exemplars = [encoding.encode_exemplar(1.0, 2.0)]
            said.append([encoding.estimate(given).density.values for given in ((), exemplars)])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*said, strict=True):
        assert np.allclose(one, two, atol=1e-5)


def test_a_view_that_an_exemplar_asked_for_does_not_change_the_count_without_it() -> None:
    torch.manual_seed(0)
    model = MultiRateModel("tiny", Network(LITE_TINY), views=(View(6),), fast_views=(View(1),))
    encoding = MultiRateEncoding(model, lambda _: moving_square(300), start=0.0)
    encoding.encode([View(6)])
    before = encoding.estimate().density.values
    encoding.estimate([encoding.encode_exemplar(1.0, 1.4)])
    assert View(1) in encoding.windows
    assert np.array_equal(before, encoding.estimate().density.values)


def test_density_of_a_range_is_a_cut_of_the_whole(model: MultiRateModel) -> None:
    encoding = model.encode_images(moving_square(200), start=5.0)
    whole = encoding.evidence()
    part = encoding.evidence(first=60, last=150)
    for full, cut in zip(whole, part, strict=True):
        assert np.allclose(full.density[60:150], cut.density, atol=1e-6)
    density = encoding.estimate(start=7.0, end=10.0).density
    assert density.start == pytest.approx(7.0) and len(density.values) == 90


def test_exemplar_chooses_the_rate_that_suits_its_length(model: MultiRateModel) -> None:
    encoding = model.encode_images(moving_square(300))
    short, long = encoding.encode_exemplar(1.0, 1.4), encoding.encode_exemplar(1.0, 4.0)
    assert [v.rate for v in encoding._select_views([short])] == [30.0]
    assert [v.rate for v in encoding._select_views([long])] == [5.0]


def test_exemplar_changes_the_count_and_its_length_counts_only_in_its_own_video(model: MultiRateModel) -> None:
    one = model.encode_images(moving_square(200))
    two = model.encode_images(moving_square(200))
    exemplar = one.encode_exemplar(1.0, 2.0)
    own, other = one.estimate([exemplar]).density.count, two.estimate([exemplar]).density.count
    assert own != one.estimate().density.count
    assert own != other  # the same pixels, but the length of a foreign exemplar is not taken over


def test_exemplar_outside_the_video_is_refused(model: MultiRateModel) -> None:
    encoding = model.encode_images(moving_square(100))
    with pytest.raises(ExemplarError, match="outside"):
        encoding.encode_exemplar(2.0, 9.0)


def test_tokens_that_are_not_numbers_are_answered_by_name(
    model: MultiRateModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    window_tokens: Any = model.network.encoder.window_tokens
    monkeypatch.setattr(model.network.encoder, "window_tokens", lambda x: window_tokens(x) * torch.nan)
    with pytest.raises(ModelError, match=r"tokens hold .* not finite"):
        model.encode_images(moving_square(100))


def test_assuming_repetitions_opens_the_gate(model: MultiRateModel) -> None:
    encoding = model.encode_images(moving_square(200))
    assert encoding.estimate(assume_repeats=True).density.count > encoding.estimate().density.count


def test_a_short_video_is_one_window(model: MultiRateModel) -> None:
    encoding = model.encode_images(moving_square(12))
    assert encoding.end == pytest.approx(12 / BASE_RATE)
    assert len(encoding.estimate().density.values) == 12


def test_the_fast_view_is_encoded_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    lazy = MultiRateModel("tiny", Network(LITE_TINY))
    for wanted, expected in ((True, {6, 3, 1}), (False, {6, 3})):
        monkeypatch.setattr("escounts.counting.multi_rate.wants_faster", lambda *_, answer=wanted: answer)
        encoding = lazy.encode_images(moving_square(120))
        assert {view.divisor for view in encoding.windows} == expected
    encoding.estimate([encoding.encode_exemplar(1.0, 1.4)])  # an exemplar of twelve base frames asks for it
    assert View(1) in encoding.windows


def test_the_fast_view_is_no_faster_than_the_video(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(seconds, "wants_faster", lambda *_: True)
    model = MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=(View(1),))
    images = moving_square(120, period=31.0)
    for held, divisors in ((1, {6, 3, 1}), (2, {6, 3, 2}), (3, {6, 3})):
        encoding = model.encode_images(images[np.arange(120) // held * held])
        assert {view.divisor for view in encoding.windows} == divisors
    encoding = model.encode_images(images[np.arange(120) // 2 * 2])
    encoding.estimate([encoding.encode_exemplar(1.0, 1.4)])
    assert View(1) not in encoding.windows


def test_an_exemplar_that_has_the_video_read_again_reports_and_the_encoding_grows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MultiRateModel("tiny", Network(LITE_TINY), fast_views=(View(1),), views=(View(6), View(3)))
    video = Video(write_movie(tmp_path / "square.mp4", moving_square(150)))
    encoded = Counter(model).encode(video)
    encoded.encoding.windows.pop(View(1), None)  # type: ignore[attr-defined]
    before, told = encoded.nbytes, []
    encoded.count([(1.0, 1.4)], progress=lambda done, total: told.append((done, total)))
    assert [total for _, total in told] == [pytest.approx(5.0)] * 5 and told[-1][0] == pytest.approx(4.0)
    assert encoded.nbytes > before > 0
    told.clear()
    encoded.count([(1.0, 1.4)], progress=lambda done, total: told.append((done, total)))
    assert not told, "it is there now"


@pytest.mark.parametrize(("limit", "readings"), [(seconds.KEPT_IMAGES, 1), (1000, 2)])
def test_a_short_video_is_read_once_for_all_its_views(
    limit: int, readings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(seconds, "wants_faster", lambda *_: True)
    monkeypatch.setattr(seconds, "KEPT_IMAGES", limit)
    video = Video(write_movie(tmp_path / "square.mp4", moving_square(90)))
    begun, reported = [], []

    def frames(**options: Any) -> Iterator[Frame]:
        begun.append(options)
        return Video.frames(video, **options)

    monkeypatch.setattr(video, "frames", frames)
    lazy = MultiRateModel("tiny", Network(LITE_TINY))
    encoding = lazy.encode(video, progress=lambda done, _: reported.append(done))
    assert len(begun) == readings and View(1) in encoding.windows
    assert reported == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    encoding.encode([View(2)])  # whoever asks for more later has it read again: the images are not held so long
    assert len(begun) == readings + 1 and len(reported) == 7


def test_who_assumes_that_it_repeats_is_never_told_that_nothing_does() -> None:
    torch.manual_seed(0)
    strict = MultiRateModel("tiny", Network(LITE_TINY), calibration=Calibration(nothing_below=1.0))
    encoding = strict.encode_images(moving_square(120))
    assert encoding.estimate().density.count == 0
    assert encoding.estimate(assume_repeats=True).density.count > 0


def test_a_reading_that_broke_off_leaves_nothing_behind() -> None:
    torch.manual_seed(0)
    images = moving_square(150)
    reads = iter([images, images[:100], images])

    def read(_: object) -> Iterator[np.ndarray]:
        last = next(reads)
        yield from last
        if len(last) < len(images):
            raise InterruptedError

    encoding = MultiRateEncoding(MultiRateModel("tiny", Network(LITE_TINY)), read, start=0.0)
    encoding.encode([View(3)])
    before = encoding.store.cells
    with pytest.raises(InterruptedError):
        encoding.encode([View(1)])
    assert encoding.store.cells == before and View(1) not in encoding.windows
    encoding.encode([View(1)])
    assert encoding.store.cells > before


def test_slow_sure_motion_needs_no_faster_view() -> None:
    flat: Array32 = np.ones(300, np.float32)
    slow = Evidence(10.0, flat * np.float32(5 / 300), flat * 0.9, flat * 0.9)
    quick = Evidence(10.0, flat * np.float32(30 / 300), flat * 0.9, flat * 0.9)
    unsure = Evidence(10.0, flat * np.float32(5 / 300), flat * 0.5, flat * 0.5)
    assert [wants_faster([e]) for e in (slow, quick, unsure)] == [False, True, True]
    alias = Evidence(5.0, flat * np.float32(5 / 300), flat * 0.93, flat * 0.93)
    assert wants_faster([alias, quick])


def test_a_model_that_speaks_of_the_whole_video_gives_hypotheses() -> None:
    torch.manual_seed(0)
    sides = Calibration(repeats=(5.0, 0.0, 0.0, 0.0), alternates=(4.0, 0.0))
    speaks = MultiRateModel("tiny", Network(LITE_TINY), views=(View(3),), fast_views=(), calibration=sides)
    encoding = speaks.encode_images(moving_square(240))
    decision = encoding.estimate()
    cycles, both = decision.hypotheses[:2]
    assert (cycles.unit, both.unit) == ("cycle", "side") and decision.unit == "cycle"
    total, rest = decision.density.count, rest_factor(decision.density.values)
    assert cycles.count == max(1, round(rest * total)) and both.count == round(2 * total)
    assert decision.confidence <= cycles.p / (cycles.p + both.p)
    with_exemplar = encoding.estimate([encoding.encode_exemplar(1.0, 2.0)])
    assert with_exemplar.hypotheses == () and with_exemplar.unit is None

    speaks.calibration = Calibration(repeats=(-2.0, 0.0, 0.0, 0.0), alternates=(4.0, 0.0))
    nothing = speaks.encode_images(moving_square(240)).estimate()
    assert nothing.density.count == 0 and nothing.count == 0
    assert nothing.hypotheses[0].p > 0.5 and nothing.hypotheses[1].count >= 1


def test_no_repetitions_where_only_the_codec_changes_the_picture(model: MultiRateModel) -> None:
    moving = moving_square(240)
    pulse = np.tile(np.repeat(np.array([0, 9], np.uint8), 8), 15)[:, None, None, None]
    frozen = np.concatenate([moving, moving[-1:].repeat(240, 0) + pulse])
    encoding = model.encode_images(frozen)
    estimate = encoding.estimate()
    after = round((240 / BASE_RATE + 2.0) * BASE_RATE)
    assert estimate.density.values[:240].sum() > 0 and not estimate.density.values[after:].any()
    assert encoding.encode_exemplar(1.0, 2.0).moves and not encoding.encode_exemplar(12.0, 12.5).moves
    marked = encoding.estimate([encoding.encode_exemplar(12.0, 12.5)])
    assert marked.density.values[after:].any(), "who marks a faint repetition sees one"
    assert encoding.estimate(assume_repeats=True).density.values[after:].any()
