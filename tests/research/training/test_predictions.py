"""Predictions: K shifts averaged by coverage, exemplars from the right videos, one row per video on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stores import LAYOUT, STEP, store, video

from escounts.errors import DataError
from escounts.nn.decoder import PAPER, Decoder
from escounts.research.evaluation.evaluate import choose_exemplars, evaluate_model
from escounts.research.evaluation.models import EvalSpec, TokenModel, TokenSource
from escounts.research.evaluation.report import (
    by_action,
    by_count,
    by_duration,
    by_repetition_length,
    group_report,
    metric_report,
    score,
)
from escounts.research.training.batches import TokenCache
from escounts.research.training.predictions import (
    Prediction,
    decode_tokens,
    decode_videos,
    decoded_together,
    load_predictions,
    predict,
    save_predictions,
)
from escounts.research.training.token_run import build_head
from paper.rivals import RepNetConfig, TransRACConfig

SMALL = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=1, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(SMALL).eval()


def row(**changes: object) -> Prediction:
    base = Prediction("toy", "test", "v", "a", 4, 4.2, 10.0, 2.0, 0.0, 1.0, (0.5, 3.7), ((0.0, 2.0),))
    return replace(base, **changes)  # type: ignore[arg-type]


def test_shifted_maps_are_averaged_by_how_many_cover_a_cell(tmp_path: Path, decoder: Decoder) -> None:
    made, _ = store(tmp_path, [video("v", cells=20)])
    sequences = made.load("v").sequences
    maps = []
    for offset in LAYOUT.offsets[:3]:
        with torch.no_grad():
            density = decoder(sequences[offset][None].float()).density_BT[0].numpy()
        maps.append(np.concatenate([np.full(offset, np.nan), density]))
    expected = np.nanmean(np.stack(maps), 0)
    tokens = made.load("v")
    np.testing.assert_allclose(decode_tokens(decoder, tokens, LAYOUT, shifts=3), expected, atol=1e-5)
    by_window = decode_tokens(decoder, tokens, LAYOUT, shifts=1, by_window=True)
    with torch.no_grad():
        first = decoder(sequences[0][None, :8].float()).density_BT[0].numpy()
    np.testing.assert_allclose(by_window[:8], first, atol=1e-5)


@pytest.mark.parametrize("by_window", [False, True])
@pytest.mark.parametrize(
    "rival",
    [
        None,
        RepNetConfig(in_channels=8, channels=16, heads=2, window=8, periods=4),
        TransRACConfig(in_channels=8, channels=16, heads=2, frames=8),
    ],
)
def test_videos_decoded_together_are_decoded_as_alone(
    tmp_path: Path, decoder: Decoder, rival: RepNetConfig | TransRACConfig | None, by_window: bool
) -> None:
    head = decoder if rival is None else build_head(rival).eval()
    videos = [video(f"t{k}", count=2 + k % 4, cells=20 + 4 * (k % 3), split="test") for k in range(7)]
    kept, dataset = store(tmp_path, videos)
    tokens = [kept.load(one.name) for one in videos]
    together = decode_videos(head, tokens, LAYOUT, shifts=3, by_window=by_window)
    for tokened, values in zip(tokens, together, strict=True):
        alone = decode_tokens(head, tokened, LAYOUT, shifts=3, by_window=by_window)
        np.testing.assert_allclose(values, alone, atol=2e-6)
    model = TokenModel(
        "m", head, TokenSource(dataset, LAYOUT, store=kept), identity={}, by_window=by_window, coming=videos
    )
    for one, known in zip(videos, together, strict=True):
        assert model.open(one)(EvalSpec(shifts=3), []).predicted == pytest.approx(float(known.sum()), abs=1e-5)
        again = model.open(one)(EvalSpec(shifts=1), []).density
        np.testing.assert_allclose(
            again, decode_tokens(head, kept.load(one.name), LAYOUT, shifts=1, by_window=by_window), atol=2e-6
        )


def test_a_damaged_video_costs_none_that_is_decoded_with_it(tmp_path: Path, decoder: Decoder) -> None:
    videos = [video(f"t{k}", split="test") for k in range(3)]
    kept, dataset = store(tmp_path, videos)
    damaged = kept.path / "videos" / kept.entries["t1"].file
    damaged.write_bytes(damaged.read_bytes()[:100])
    model = TokenModel("m", decoder, TokenSource(dataset, LAYOUT, store=kept), identity={}, coming=videos)
    found = evaluate_model(model, dataset, [EvalSpec()], out=tmp_path / "out", split="test")
    assert [row.name for row in found[0].rows] == ["t0", "t2"] and list(found[0].coverage.missing) == ["t1"]


def test_groups_decoded_together_are_bounded_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos = [video(f"t{k}", cells=20 + 4 * (k % 3)) for k in range(9)]
    kept, _ = store(tmp_path, videos)
    absent = video("absent")
    monkeypatch.setattr("escounts.research.training.predictions.VIDEOS_AT_ONCE", 4)
    groups = list(decoded_together([absent, *videos], kept))
    assert [len(group) for group in groups] == [4, 4, 1] and [v for group in groups for v in group] == videos
    monkeypatch.setattr("escounts.research.training.predictions.BYTES_AT_ONCE", 1)
    assert [len(group) for group in decoded_together(videos, kept)] == [1] * 9


def test_tokens_read_ahead_are_those_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos = [video(f"t{k}", cells=20 + 4 * (k % 3)) for k in range(5)]
    kept, _ = store(tmp_path, videos)
    monkeypatch.setattr("escounts.research.training.batches.ONE_COPY", 2 * kept.entries["t0"].bytes)
    ahead, one_by_one = (TokenCache(kept, torch.device("cpu")) for _ in range(2))
    ahead.preload(one.name for one in videos)
    read = ahead.bytes
    for one in videos:
        for offset in LAYOUT.offsets:
            assert torch.equal(ahead.sequence(one.name, offset), one_by_one.sequence(one.name, offset))
        shots, others = ahead.exemplar(one.name, 1), one_by_one.exemplar(one.name, 1)
        assert torch.equal(shots[0], others[0]) and shots[1] == others[1]
    assert ahead.bytes == read > one_by_one.bytes  # nothing was read again


def test_exemplars_come_from_where_they_should() -> None:
    train = [video(f"t{k}", action="ab"[k % 2], count=3, cells=20 + k) for k in range(4)]
    test = [video("e0", split="test", action="a", count=3), video("none", split="test", action="c", count=0)]
    offered = {annotation.name: annotation.count for annotation in (*train, *test)}
    same = choose_exemplars(test, train, offered, shots=2, kind="same")
    assert [name for name, _ in same["e0"]] == ["e0"] * 2
    assert len({index for _, index in same["e0"]}) == 2, "two different repetitions"
    other = choose_exemplars(test, train, offered, shots=3, kind="other")
    assert len(other["e0"]) == 3
    assert all(name in ("t0", "t2") for name, _ in other["e0"]), "others of its action"
    assert same["none"] == other["none"] == []
    assert choose_exemplars(test, train, offered, shots=3, kind="other") == other, "always the same ones"


def test_a_prediction_is_the_sum_of_its_map(tmp_path: Path, decoder: Decoder) -> None:
    test = [video("e0", split="test", count=3)]
    made, _ = store(tmp_path, [video("t0"), *test])
    zero = predict(decoder, made, test)[0]
    assert (zero.shots, zero.exemplars, zero.step) == (0, "none", STEP)
    assert zero.predicted == pytest.approx(sum(zero.density), abs=1e-4)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_survive_the_disk(tmp_path: Path, suffix: str) -> None:
    rows = [
        row(released_truth=3.5),
        row(name="=1+1.mp4", action="-squat"),
        row(name='with, comma and "quotes"', action="", count=0, spans=(), pseudo=True, shots=2),
        row(name="an hour.mp4", density=(0.012345,) * 36_000),  # one cell of 350 kB
    ]
    save_predictions(tmp_path / f"p.{suffix}", rows)
    assert load_predictions(tmp_path / f"p.{suffix}") == rows
    if suffix == "csv":
        assert "'=1+1.mp4,'-squat," in (tmp_path / "p.csv").read_text(), "not a formula for a spreadsheet"


def test_files_that_are_no_predictions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="make them with escounts evaluate"):
        load_predictions(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="does not hold predictions"):
        load_predictions(tmp_path / "other.csv")


def test_groups_cover_every_video_once() -> None:
    rng = np.random.default_rng(0)
    rows = [
        row(
            name=str(k), count=int(rng.integers(0, 40)), predicted=float(rng.uniform(0, 40)), action="ab"[k % 2],
            duration=float(rng.uniform(8, 68)), repetition_length=float(rng.uniform(0.3, 5)),
        )
        for k in range(200)
    ]  # fmt: skip
    for groups in (by_count(rows), by_duration(rows), by_repetition_length(rows), by_action(rows)):
        assert sum(group.videos for group in groups) == 200
    sizes = [group.videos for group in by_count(rows)]
    assert len(sizes) == 5
    assert max(sizes) < 2 * min(sizes)
    by_edge = by_repetition_length([row(repetition_length=value) for value in (0.5, 0.96, 0.97, 3.1)])
    assert [group.videos for group in by_edge] == [2, 1, 0, 0, 1]
    assert [group.name.split()[0] for group in by_edge] == ["XS", "S", "M", "L", "XL"]
    whole = score("all", rows)
    parts = by_action(rows)
    assert whole.obo == pytest.approx(sum(g.obo * g.videos for g in parts) / 200)


def test_a_group_of_nothing_but_zeros_has_no_relative_error() -> None:
    group = score("none repeat", [row(count=0, predicted=0.3), row(count=0, predicted=2.0)])
    assert np.isnan(group.mae)
    assert group.obz == 0.5
    assert np.isnan(score("empty", []).rmse)


def test_a_rate_map_has_a_peak_for_each_repetition() -> None:
    even = row(kind="rate", density=(0.25,) * 12, step=0.5, spans=((0.0, 2.0), (2.0, 4.0), (4.0, 6.0)))
    peaks = even.peak_map()
    assert peaks.kind == "peaks"
    assert peaks.count == pytest.approx(3.0)
    assert np.argsort(peaks.values)[-3:].tolist() != [9, 10, 11], "spread over time"
    assert row().peak_map().values.tolist() == row().density_map().values.tolist()


def test_reports_state_intervals_and_what_is_left_out() -> None:
    text = metric_report([row(), row(count=0, predicted=0.1)])
    assert "1 with count 0 left out" in text
    assert "MAE as the released code has it" in text
    assert "localisation" in text
    assert "localisation" not in metric_report([row(pseudo=True)])
    assert "by length of a repetition" in group_report([row(), row(count=9, predicted=9.0)])
