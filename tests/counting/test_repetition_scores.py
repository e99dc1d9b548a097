"""What speaks for a single repetition: likeness, return, gate, length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from movies import bouncing, write_movie

import escounts
from escounts.counter import Counter
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.repetition_scores import SCORE_FEATURES, SpanEvidence, features, score
from escounts.counting.views import View
from escounts.nn.network import LITE_TINY, Network

COUNT, POINTS, CHANNELS = 6, 8, 12


def evidence(*, unlike: int | None = None, cut: int | None = None, closed: int | None = None) -> SpanEvidence:
    """Six repetitions of one motion in a scene; one of them of another motion, cut off, or with a closed gate."""
    rng = np.random.default_rng(0)
    phase = 2 * np.pi * np.arange(POINTS) / POINTS
    ways = rng.normal(size=(4, CHANNELS))
    motion = np.cos(phase)[:, None] * ways[0] + np.sin(phase)[:, None] * ways[1]
    other = np.cos(2 * phase)[:, None] * ways[2] + phase[:, None] * ways[3]
    looks = 5 + np.stack([other if index == unlike else motion for index in range(COUNT)])
    looks = (looks + 0.1 * rng.normal(size=looks.shape)).astype(np.float32)
    spans = [(index * 2.0, index * 2.0 + (0.7 if index == cut else 2.0)) for index in range(COUNT)]
    gate = np.array([0.2 if index == closed else 0.95 for index in range(COUNT)])
    return SpanEvidence(spans, gate, np.full(COUNT, 0.8), looks)


@pytest.mark.parametrize("kind", ["unlike", "cut", "closed"])
def test_the_odd_one_has_the_lowest_score(kind: str) -> None:
    same = score(evidence())
    assert max(same) - min(same) < 0.1 and min(same) > 0.5
    scores = score(evidence(**{kind: 3}))
    assert int(np.argmin(scores)) == 3 and (1 - scores[3]) > 2 * (1 - min(same))
    assert all(0.0 <= one <= 1.0 for one in scores)


def test_the_marked_repetition_is_one_to_be_like() -> None:
    """Two repetitions that differ: the one that looks as the exemplar does has the higher score."""
    six = evidence(unlike=1)
    two = SpanEvidence(six.spans[:2], six.gate[:2], six.sharpness[:2], six.looks[:2])
    with_mark = SpanEvidence(*two[:4], marked=six.looks[2:3])
    like = SCORE_FEATURES.index("like")
    assert features(with_mark)[0, like] > 0.5 > features(with_mark)[1, like]
    alone = SpanEvidence(six.spans[:1], six.gate[:1], six.sharpness[:1], six.looks[:1])
    assert features(alone)[0].tolist()[like] == 0.0 and features(alone)[0, SCORE_FEATURES.index("alone")] == 1.0


def test_results_of_the_default_form_have_scores_and_others_have_none(tmp_path) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    movie = write_movie(tmp_path / "m.mp4", bouncing(4, 4.0))
    tiny = Counter(MultiRateModel("tiny", Network(LITE_TINY), views=(View(3),), fast_views=()))
    found = tiny.count(movie, assume_repeats=True).repetitions
    assert found and all(one.score is not None and 0 <= one.score <= 1 for one in found)
    assert len({one.score for one in found}) == len(found), "not one number for all"
    marked = tiny.encode(movie).count([(0.5, 1.5)])
    assert all(one.score is not None for one in marked.repetitions)
    assert all(one.score is None for one in escounts.count(movie, model="spectral").repetitions)
