"""Maps, metrics, shift averages and losses of the released code, reproduced under their own names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from escounts.counting.maps import Stitcher
from escounts.nn.heads import HeadOutput
from escounts.research import metrics
from escounts.research.training.objective import RELEASED_OBJECTIVE, Target, loss_terms
from paper.released import released_density_map, stitch

FACTS = json.loads((Path(__file__).parents[1] / "golden" / "official_density.json").read_text())


def name_of(case: dict[str, Any]) -> str:
    return f"{case['case']}-{case['loader']}-{case['split']}-{case['sigma']}-{case.get('segment_id', 0)}"


@pytest.mark.parametrize("case", FACTS["density_cases"], ids=name_of)
def test_released_map(case: dict[str, Any]) -> None:
    ours = released_density_map(
        [tuple(span) for span in case["repetitions"]],
        frames=case["num_frames"],
        frames_per_cell=case["frames_per_cell"],
        sigma=case["sigma"],
        skip_cells=2 * case.get("segment_id", 0),
        most_cells=150 if case["split"] == "train" else None,
    )
    np.testing.assert_allclose(ours, case["map_float64"], atol=1e-12, rtol=0)
    if "map_float16" in case:
        np.testing.assert_array_equal(ours.astype(np.float16), np.array(case["map_float16"], np.float16))


def check_metrics(expected: dict[str, Any], truths: list[float], predictions: list[float]) -> None:
    assert metrics.rounded_counts(predictions).tolist() == [v["prediction"] for v in expected["per_video"]]
    assert metrics.released_mae(truths, predictions) == pytest.approx(expected["MAE"], abs=1e-6)
    assert metrics.obo(truths, predictions) == pytest.approx(expected["OBO"], abs=1e-6)
    assert metrics.obz(truths, predictions) == pytest.approx(expected["OBZ"], abs=1e-6)
    assert metrics.rmse(truths, predictions) == pytest.approx(expected["RMSE"], abs=1e-6)


def test_released_metrics() -> None:
    facts = FACTS["metrics"]
    truths, predictions = facts["truths"], facts["raw_predictions"]
    check_metrics(facts["all_together"], truths, predictions)
    for truth, prediction, expected in zip(truths, predictions, facts["each_alone"], strict=True):
        check_metrics(expected, [truth], [prediction])


def test_two_sequence_average() -> None:
    facts = FACTS["two_sequence_average"]
    stitcher = Stitcher(len(facts["first"]))
    stitcher.add(facts["first"], 0)
    stitcher.add(facts["second"], 4)
    combined = stitch(facts["first"], facts["second"])
    np.testing.assert_allclose(combined, facts["combined"], rtol=1e-6)
    # Averaged by coverage, as we do, the start that only one sequence covers counts in full.
    np.testing.assert_allclose(stitcher.result()[:4], facts["first"][:4])
    equal = stitch(facts["first"], facts["equal_length_second"])
    for map_, expected in ((combined, facts["result"]), (equal, facts["equal_length_result"])):
        check_metrics(expected, [4.0], [map_.sum() / 100])


@pytest.mark.parametrize("case", FACTS["losses"], ids=lambda case: case["name"])
def test_released_losses(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.tensor([case["mask"]], dtype=torch.bool)
    monkeypatch.setattr(torch, "rand_like", lambda values: mask.float())  # 0 is dropped, 1 is kept
    # The released loss rounds the true map to half precision before it scales it.
    truth = torch.tensor([case["density_times_100_as_half"]]) / 100
    target = Target(truth, torch.tensor([case["truth_count"]]))
    losses = loss_terms(RELEASED_OBJECTIVE, HeadOutput(torch.tensor([case["prediction"]]) / 100), target)
    assert losses["map"].item() == pytest.approx(case["masked_mse"], rel=1e-5)
    assert losses["count"].item() == pytest.approx(case["count_term"], rel=1e-5)
    assert losses["loss"].item() == pytest.approx(case["total"], rel=1e-5)
