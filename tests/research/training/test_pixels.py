"""Training from pixels: exemplars set the unit, batches are a function of the step, a smoke run learns."""

from typing import Any

import numpy as np
import pytest
import torch

from escounts.nn.network import LITE_TINY, Network
from escounts.research.training.pixels import (
    Exemplars,
    PixelConfig,
    PixelTask,
    choose_exemplars,
    show_twice,
    video_truths,
)
from escounts.synthetic import GeneratedBatch, Generator, GeneratorConfig

CODE_ONLY = GeneratorConfig(clips=0.0, motion=0.0, procedural=1.0)


def batch_of(spans: list[Any], side_spans: list[Any], sibling: list[int]) -> GeneratedBatch:
    return GeneratedBatch(
        frames_BTCHW=torch.zeros(len(spans), 64, 3, 8, 8, dtype=torch.uint8),
        spans=spans,
        side_spans=side_spans,
        alternates=[bool(sides) for sides in side_spans],
        actions=["a"] * len(spans),
        sibling_B=torch.tensor(sibling),
        kinds=["test"] * len(spans),
    )


def test_one_side_as_exemplar_asks_for_sides() -> None:
    full, sides = [(0.0, 20.0), (20.0, 40.0)], [(0.0, 10.0), (10.0, 20.0), (20.0, 30.0), (30.0, 40.0)]
    batch = batch_of([full], [sides], [-1])
    config = PixelConfig(side=1.0, border_jitter=0.0, border_jitter_cells=0.0)
    chosen, units = choose_exemplars(batch, 64, config, np.random.default_rng(0), shots=1)
    assert units == [sides] and chosen.cells_BS[0, 0] == 10.0
    _, zero_shot = choose_exemplars(batch, 64, config, np.random.default_rng(0), shots=0)
    assert zero_shot == [full]


def test_only_what_is_known_of_the_sides_is_learnt() -> None:
    twice, once = [(0.0, 20.0), (20.0, 40.0)], [(0.0, 20.0)]
    batch = batch_of([twice, twice, twice, once], [[(0.0, 10.0)], [], [], []], [-1] * 4)
    batch.alternates = [True, False, None, True]
    told = np.array(video_truths(batch, 64))[:, 0]
    np.testing.assert_array_equal(told, [1.0, 0.0, np.nan, np.nan])  # one repetition does not show two sides


def test_a_set_that_is_shown_twice_counts_twice() -> None:
    frames = torch.arange(4 * 8).view(4, 8, 1, 1, 1).to(torch.uint8)
    density = torch.tensor([[0.5] * 4 + [0.0] * 4] * 3 + [[0.25] * 4 + [0.0] * 4])
    period = density.clone()
    # Row 1 has an exemplar, taken from row 2; row 3 holds a single repetition.
    exemplars = Exemplars(
        torch.tensor([[0], [2], [2], [3]]),
        torch.zeros(4, 1, 16).long(),
        torch.zeros(4, 1),
        torch.tensor([0, 1, 0, 0]),
    )
    show_twice(frames, exemplars, (density, period), 1.0, np.random.default_rng(0))
    assert density.sum(1).tolist() == [4.0, 2.0, 2.0, 1.0]
    assert torch.equal(period, density)
    assert frames.flatten(1)[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert frames.flatten(1)[1].tolist() == list(range(8, 16))


def test_borders_are_marked_with_the_error_that_is_asked_for() -> None:
    batch = batch_of([[(20.0, 24.0)]] * 400, [[]] * 400, [-1] * 400)
    config = PixelConfig(border_jitter=0.0, border_jitter_cells=0.5)
    chosen, _ = choose_exemplars(batch, 64, config, np.random.default_rng(0), shots=1)
    lengths = chosen.cells_BS[:, 0].numpy()
    assert abs(lengths.mean() - 4.0) < 0.15 and 0.55 < lengths.std() < 0.85 and lengths.min() >= 1.0


def test_exemplar_of_the_sibling_has_no_length() -> None:
    batch = batch_of([[(0.0, 10.0)], [(5.0, 30.0)]], [[], []], [1, 0])
    config = PixelConfig(other=1.0, border_jitter=0.0, border_jitter_cells=0.0)
    chosen, _ = choose_exemplars(batch, 64, config, np.random.default_rng(0), shots=1)
    assert chosen.source_BS[:, 0].tolist() == [1, 0]
    assert chosen.cells_BS[:, 0].tolist() == [0.0, 0.0]
    assert chosen.cell_BSE[0, 0].min() >= 5 and chosen.cell_BSE[0, 0].max() < 30


def test_video_without_a_whole_repetition_falls_back_to_zero_shot() -> None:
    batch = batch_of([[(-5.0, 6.0)], []], [[], []], [-1, -1])
    chosen, units = choose_exemplars(batch, 64, PixelConfig(), np.random.default_rng(0), shots=2)
    assert chosen.shots_B.tolist() == [0, 0] and units == [[(-5.0, 6.0)], []]


@pytest.fixture(scope="module")
def task() -> PixelTask:
    generator = Generator(CODE_ONLY, seed=3)
    config = PixelConfig(lengths=(24, 32), validation_batches=1, validation_length=32)
    return PixelTask(generator, Generator(CODE_ONLY, seed=4), batch_size=4, size=64, config=config)


def test_batches_are_a_function_of_the_step(task: PixelTask) -> None:
    one, again, next_one = task.batch(5, 0, 1), task.batch(5, 0, 1), task.batch(6, 0, 1)
    assert torch.equal(one.frames_BTCHW, again.frames_BTCHW)
    assert torch.equal(one.exemplars.cell_BSE, again.exemplars.cell_BSE)
    assert one.frames_BTCHW.shape != next_one.frames_BTCHW.shape or not torch.equal(
        one.frames_BTCHW, next_one.frames_BTCHW
    )


def test_frames_of_a_step_stay_about_the_same(task: PixelTask) -> None:
    sizes = {task._request(step, 0, 1)[1:] for step in range(20)}
    assert sizes == {(4, 32), (5, 24)}


def test_target_sums_to_the_part_of_repetitions_inside(task: PixelTask) -> None:
    batch = task.batch(1, 0, 1)
    assert torch.allclose(batch.target.density_BT.sum(1), batch.target.count_B, atol=1e-4)
    assert (batch.target.density_BT >= 0).all()


def test_forward_gives_gradients_to_encoder_latent_and_length(task: PixelTask) -> None:
    torch.manual_seed(0)
    network = Network(LITE_TINY)
    output, _ = task.forward(network, task.batch(0, 0, 1))
    assert output.video_logits_BTK is not None
    (output.density_BT.sum() + output.video_logits_BTK.sum()).backward()  # type: ignore[no-untyped-call]
    silent = [name for name, p in network.named_parameters() if p.grad is None]
    assert silent == []


def test_validation_reports_both_ways_of_asking(task: PixelTask) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        figures = task.validate(Network(LITE_TINY).eval())
    assert {"mae", "mae_0", "mae_1", "obo_0", "obo_1"} <= set(figures)


def test_an_exemplar_of_one_motion_counts_that_motion() -> None:
    spans = [(0.0, 10.0), (10.0, 20.0), (30.0, 60.0)]
    batch = batch_of([spans], [[]], [-1])
    batch.parts = [(0, 0, 1)]
    counted = [
        choose_exemplars(batch, 64, PixelConfig(), np.random.default_rng(seed), shots=1)[1][0] for seed in range(20)
    ]
    assert {len(units) for units in counted} == {1, 2}
    assert choose_exemplars(batch, 64, PixelConfig(), np.random.default_rng(0), shots=0)[1] == [spans]


def test_processes_draw_what_a_thread_draws() -> None:
    generator = Generator(CODE_ONLY, seed=1)
    config = PixelConfig(lengths=(16, 32))
    apart, here = (
        PixelTask(generator, generator, batch_size=2, config=config, size=32, renderers=number) for number in (1, 0)
    )
    for step in range(4):
        for one, other in zip(apart.batch(step, 0, 1).tensors(), here.batch(step, 0, 1).tensors(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
