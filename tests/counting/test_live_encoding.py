"""A video that goes on: at any moment estimated as if it had ended there, in memory that does not grow."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from escounts.counting.live import LiveEncoding
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.views import View
from escounts.nn.network import LITE_TINY, Network


@pytest.fixture(scope="module", params=["all views", "a fast view where wanted"])
def model(request: pytest.FixtureRequest) -> MultiRateModel:
    torch.manual_seed(0)
    if request.param == "all views":
        return MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3), View(1)), fast_views=())
    return MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=(View(1),))


def moving_square(frames: int, period: float = 30.0) -> Iterator[np.ndarray]:
    """A bright square that goes to and fro."""
    for t in range(frames):
        image = np.full((64, 64, 3), 40, np.uint8)
        x = int(20 + 15 * np.sin(2 * np.pi * t / period))
        image[20:40, x : x + 12] = 220
        yield image


def test_at_every_moment_the_estimate_is_that_of_the_video_so_far(model: MultiRateModel) -> None:
    images = list(moving_square(420))
    with LiveEncoding(model, start=5.0) as live:
        for number, image in enumerate(images, start=1):
            live.push(image)
            if number in (7, 100, 131, 290, 420):
                now = live.update().density
                whole = model.encode_images(images[:number], start=5.0).estimate().density
                assert now.start == whole.start and len(now.values) == number
                np.testing.assert_allclose(now.values, whole.values, atol=2e-4)


def test_in_bf16_too_the_estimate_is_that_of_the_video_so_far() -> None:
    torch.manual_seed(0)
    model = MultiRateModel("tiny", Network(LITE_TINY), precision="bf16", views=(View(6),), fast_views=())
    images = list(moving_square(120))
    with LiveEncoding(model) as live:
        for image in images:
            live.push(image)
        now = live.update().density
    whole = model.encode_images(images).estimate().density
    np.testing.assert_allclose(now.values, whole.values, atol=2e-4)


def test_an_exemplar_of_the_newest_seconds_counts_as_in_the_whole_video(model: MultiRateModel) -> None:
    images = list(moving_square(300))
    whole = model.encode_images(images)
    expected = whole.estimate([whole.encode_exemplar(2.0, 3.0)]).density
    with LiveEncoding(model) as live:
        for image in images:
            live.push(image)
        live.update()
        exemplar = live.encode_exemplar(2.0, 3.0)
        estimate = live.update([exemplar]).density
        again = live.update([exemplar]).density
    np.testing.assert_allclose(estimate.values, expected.values, atol=2e-4)
    np.testing.assert_array_equal(again.values, estimate.values)


def test_what_is_forgotten_takes_no_memory(model: MultiRateModel) -> None:
    kept, decoded = [], []
    with LiveEncoding(model) as live:
        for _ in range(6):
            for image in moving_square(300):
                live.push(image)
            live.update()
            if live.end - live.start > 20.0:
                live.forget(10.0)
            kept.append(len(live.store.kept))
            decoded.append(len(live._decoded))
        assert live.start == 40.0 and live.frames == 600
        assert len(live.update().density.values) == 600
    assert max(kept[3:]) <= kept[2] + 1 and max(decoded[3:]) <= decoded[2] + 3


def test_a_frame_that_stands_still_is_encoded_once(model: MultiRateModel, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = model.network.encoder
    seen: list[int] = []
    features: Any = encoder.image_features
    monkeypatch.setattr(
        encoder,
        "image_features",
        lambda images, count: seen.append(count) or features(images, count),  # type: ignore[func-returns-value]
    )
    moving = list(moving_square(12))
    images = [*moving[:4], *[moving[4]] * 40, *moving[5:]]
    with LiveEncoding(model) as live:
        for image in images:
            live.push(image)
        still = live.update().density
    assert sum(seen) < 40
    whole = model.encode_images(images).estimate().density
    np.testing.assert_allclose(still.values, whole.values, atol=2e-4)


def test_nothing_is_made_of_a_picture_that_stands_still(model: MultiRateModel) -> None:
    picture = next(moving_square(1))
    with LiveEncoding(model) as live:
        for _ in range(300):
            live.push(picture)
        assert live.update().density.count == 0 and live.nbytes < 50_000


def test_a_still_beginning_does_not_cost_the_fast_view() -> None:
    torch.manual_seed(0)
    fast = MultiRateModel("tiny", Network(LITE_TINY), views=(View(6), View(3)), fast_views=(View(1),))
    moving = list(moving_square(120))
    for images, expected in (
        ([moving[0]] * 90 + moving, View(1)),
        (moving, View(1)),
        ([moving[n // 2 * 2] for n in range(120)], View(2)),
    ):
        with LiveEncoding(fast) as live:
            for number, image in enumerate(images):
                live.push(image)
                if number % 15 == 14:
                    live.update()
            assert live.fast_views == [expected]
