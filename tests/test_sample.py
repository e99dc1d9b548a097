"""The sample that ships is what the command draws, and counting it gives what is true of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import escounts
from escounts.output.text import headline
from escounts.synthetic.generator import SAMPLE_RATE, sample_plan
from escounts.video.files import Video

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_truth_is_the_plan() -> None:
    truth = json.loads((EXAMPLES / "sample.json").read_text())
    plan = sample_plan()
    assert truth["count"] == len(plan.spans) == 8
    for (start, end), span in zip(truth["repetitions"], plan.spans, strict=True):
        assert (start * SAMPLE_RATE, end * SAMPLE_RATE) == pytest.approx(span, abs=0.02)
    assert Video(EXAMPLES / "sample.mp4").info.duration == pytest.approx(truth["duration"], abs=0.05)


def test_repetitions_asked_for() -> None:
    plan = sample_plan(repetitions=3, seed=5)
    assert len(plan.spans) == 3
    assert all(a[1] <= b[0] for a, b in zip(plan.spans, plan.spans[1:], strict=False))
    assert plan.spans[-1][1] < plan.length


@pytest.mark.parametrize("model", ["spectral", "default"])
def test_sample_is_counted(model: str) -> None:
    result = escounts.count(EXAMPLES / "sample.mp4", model=model)
    assert result.count == 8
    truth = json.loads((EXAMPLES / "sample.json").read_text())["repetitions"]
    assert result.repetitions[0].start == pytest.approx(truth[0][0], abs=1.0)
    assert result.repetitions[-1].end == pytest.approx(truth[-1][1], abs=1.0)
    assert result.unsure is (model == "spectral"), "the plainest video is not doubted"


def test_an_example_of_nearly_the_whole_video_is_not_called_sure() -> None:
    encoded = escounts.load("default").encode(EXAMPLES / "sample.mp4")
    whole, part = encoded.count(["0.2-18"]), encoded.count(["1-15"])
    assert whole.unsure and part.unsure and whole.confidence <= 0.5
    assert "mark one repetition only" in headline(whole)
    one = encoded.count(["3.8-5.6"])
    assert (one.count, one.unsure) == (8, False)
