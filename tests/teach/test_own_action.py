"""A model taught an own action: what it learns is tested on videos it did not learn from, or it is not kept."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from movies import bouncing, write_movie

import escounts
from escounts.counting.multi_rate import MultiRateModel
from escounts.decision.rules import Calibration
from escounts.errors import DataError, ModelError
from escounts.models import store
from escounts.models.catalogue import own_model_path
from escounts.nn.heads import RateHead, RateHeadConfig
from escounts.teach import Score, own_action
from escounts.teach.head_tuning import FeatureEncoding, HeadRows, in_other_unit, tuned_heads
from escounts.teach.own_action import ActionReport, LabelledVideo, learn_action, learn_folder
from escounts.video.files import Video

COUNTS = (4, 5, 6)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> list[LabelledVideo]:
    """Bouncing blocks whose labels count each half: the unit is not the model's."""
    folder = tmp_path_factory.mktemp("bouncing")
    videos = []
    for count in COUNTS:
        seconds = count * 0.9
        path = write_movie(folder / f"bounce{count}.mp4", bouncing(count, seconds))
        edges = [seconds * half / (2 * count) for half in range(2 * count + 1)]
        videos.append(LabelledVideo(path.name, path, 2 * count, tuple(pairwise(edges))))
    return videos


@pytest.fixture(scope="module")
def taught(sides: list[LabelledVideo], tmp_path_factory: pytest.TempPathFactory) -> tuple[ActionReport, list[str]]:
    stages: list[str] = []
    out = tmp_path_factory.mktemp("models") / "halves.safetensors"
    report = learn_action(sides, out, device="cpu", progress=lambda stage, share: stages.append(stage))
    return report, stages


def test_labels_may_change_the_unit(taught: tuple[ActionReport, list[str]], sides: list[LabelledVideo]) -> None:
    report, stages = taught
    assert [video.before for video in report.videos] == list(COUNTS), "the default model counts cycles"
    assert report.helped and report.before.right == 0
    assert [video.fitted for video in report.videos] == [video.count for video in sides]
    assert report.after.error < 0.5 * report.before.error, "also on videos left out"
    assert list(dict.fromkeys(stages)) == ["encoding", "checking", "training"]


def test_a_head_in_the_unit_of_the_labels_is_tried(sides: list[LabelledVideo]) -> None:
    """Learning alone finds the way in easy cases; the labels' unit is a start of its own where it fits at once."""
    model, head = own_action._rate_model("default", "cpu")
    cycles = LabelledVideo(sides[0].name, sides[0].path, sides[0].count // 2, _pairs(sides[0]))
    for video, units in ((sides[0], {1.0, 2.0}), (cycles, {1.0})):
        encoded = own_action._EncodedLabels(model, [video], Video, _silent)
        assert set(encoded.starts(head, encoded.rows(head))) == units


def test_a_video_that_is_left_out_is_not_learnt_from(
    sides: list[LabelledVideo], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, head = own_action._rate_model("default", "cpu")
    both, second = (own_action._EncodedLabels(model, given, Video, _silent) for given in (sides[:2], sides[1:2]))
    losses = [float(rows.loss(head, model.calibration)) for rows in (both.rows(head, 0), second.rows(head))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert float(both.rows(head).loss(head, model.calibration)) != pytest.approx(losses[0], rel=1e-6)
    left_out: list[int | None] = []
    rows = both.rows

    def remembered(head: RateHead, without: int | None = None) -> HeadRows:
        left_out.append(without)
        return rows(head, without)

    monkeypatch.setattr(both, "rows", remembered)
    monkeypatch.setattr(own_action, "STEPS", 0)
    counts = own_action._leave_one_out(both, head, _silent)
    assert [index for index in left_out if index is not None] == [0, 1], "each video once"
    assert {len(counted) for counted in counts.values()} == {2}


def _silent(stage: str, share: float) -> None:
    """Progress that nobody follows."""


def test_the_kept_model_counts_as_the_report_says_and_is_never_sure(
    taught: tuple[ActionReport, list[str]], sides: list[LabelledVideo]
) -> None:
    report, _ = taught
    assert report.path is not None
    counter = escounts.load(str(report.path), device="cpu")
    for video, outcome in zip(sides, report.videos, strict=True):
        result = counter.count(video.path)
        assert result.count == outcome.fitted
        assert result.confidence_kind == "agreement" and result.unsure


def test_what_is_counted_right_already_is_left_alone(sides: list[LabelledVideo], tmp_path: Path) -> None:
    right = [LabelledVideo(v.name, v.path, v.count // 2, _pairs(v)) for v in sides]
    report = learn_action(right, tmp_path / "same.safetensors", device="cpu")
    assert not report.helped and "right already" in report.message
    assert report.path is None and not (tmp_path / "same.safetensors").exists()


def _pairs(video: LabelledVideo) -> tuple[tuple[float, float], ...]:
    return tuple((a, b) for (a, _), (_, b) in zip(video.spans[::2], video.spans[1::2], strict=True))


def test_what_does_not_help_is_not_kept(
    sides: list[LabelledVideo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_action, "UNITS", (3.0, 5.0))  # no unit that fits …
    monkeypatch.setattr(own_action, "STEPS", 0)  # … and nothing learnt
    report = learn_action(sides, tmp_path / "worse.safetensors", device="cpu")
    assert not report.helped and "did not help" in report.message
    assert not (tmp_path / "worse.safetensors").exists()


def test_a_little_less_error_on_videos_left_out_is_chance() -> None:
    """Four videos of several actions: 0.34 became 0.26 on those left out, and on others 0.30 became 0.44."""
    labelled = [LabelledVideo(f"{n}.mp4", Path(f"{n}.mp4"), 10, ()) for n in range(4)]
    report = own_action._report(labelled, [10, 5, 5, 6], [10, 6, 6, 8], [10, 10, 10, 10])
    assert not report.helped and "did not help beyond chance" in report.message
    assert own_action._report(labelled, [10, 5, 5, 6], [10, 8, 8, 8], [10, 10, 10, 10]).helped


def test_two_videos_are_too_few(sides: list[LabelledVideo], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 labelled videos; label at least 3"):
        learn_action(sides[:2], tmp_path / "few.safetensors", device="cpu")


def test_kept_features_count_as_the_video_does(sides: list[LabelledVideo]) -> None:
    model = escounts.load("lite", device="cpu").model
    assert isinstance(model, MultiRateModel)
    encoding = model.encode(Video(sides[0].path))
    kept = FeatureEncoding.of(encoding)
    assert kept.estimate().density.count == pytest.approx(encoding.estimate().density.count, abs=1e-3)


def test_a_head_in_another_unit_says_half_the_period() -> None:
    head = RateHead(RateHeadConfig(), 4)
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias[1:] = -((torch.arange(40) - 25.0) ** 2)  # one period, 25 classes up
    seen = torch.zeros(1, 1, 1, 1, 4)
    rates = [in_other_unit(head, factor)(seen).rate_BT.item() for factor in (0.5, 1.0, 2.0)]
    assert rates[1] / rates[0] == pytest.approx(2.0, rel=0.02)
    assert rates[2] / rates[1] == pytest.approx(2.0, rel=0.02)


def test_checkpoints_begin_untrained_and_lower_the_loss() -> None:
    head = RateHead(RateHeadConfig(), 4)
    rows = HeadRows(
        features_NC=torch.randn(8, 4, generator=torch.Generator().manual_seed(0)),
        inside_N=torch.ones(8),
        period_NP=torch.eye(40)[[10] * 8],
        counted_N=torch.ones(8),
        weight_N=torch.full((8,), 1 / 8),
        window_N=torch.zeros(8, dtype=torch.long),
        truth_W=torch.tensor([1.0]),
        weight_W=torch.tensor([1.0]),
    )
    losses = []
    for step, tuned in tuned_heads(head, rows, Calibration(), steps=10, every=4):
        losses.append((step, rows.loss(tuned, Calibration()).item()))
    assert [step for step, _ in losses] == [0, 4, 8, 10]
    assert losses[-1][1] < 0.95 * losses[0][1]
    assert rows.loss(head, Calibration()).item() == losses[0][1], "the head that is given stays as it is"


def test_scores() -> None:
    score = Score.of([4, 9, 0], [4, 8, 0])
    assert (score.right, score.within_one) == (2, 3)
    assert score.error == pytest.approx(1 / 24)


def test_names_that_are_taken_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path))
    assert own_model_path("my-squats") == store.stored_path("my-squats")
    for name in ("lite", "default", "escounts-mae-vit-b"):
        with pytest.raises(ModelError, match="choose another name"):
            own_model_path(name)
    with pytest.raises(ModelError, match="cannot name weights"):
        own_model_path("../lite")


def test_the_checkpoint_that_knows_its_videos_is_taken_and_ties_go_to_the_later_one() -> None:
    left_out = {
        (1.0, 0): [4, 4],  # as before
        (1.0, 4): [8, 7],  # the least error, but wrong on what it learnt from
        (2.0, 4): [8, 6],
        (1.0, 8): [8, 6],  # the same error, later
        (2.0, 12): [9, 10],
    }
    learnt = {key: [8, 8] for key in left_out} | {(1.0, 4): [8, 4], (1.0, 0): [4, 4]}
    assert own_action._best(left_out, learnt, before=[4, 4], labelled=[8, 8]) == (1.0, 8)


@pytest.mark.parametrize("labels", [None, "other.csv"])
def test_only_the_named_class_of_a_table_is_learnt(tmp_path: Path, labels: str | None) -> None:
    rows = "".join(f"{name}{i}.mp4,0.5,1.5,{name}\n" for name in ("squat", "jump") for i in range(2))
    (tmp_path / (labels or "labels.csv")).write_text(f"file,start_s,end_s,class\n{rows}")
    for name in ("squat0", "squat1", "jump0", "jump1"):
        (tmp_path / f"{name}.mp4").touch()
    table = tmp_path / labels if labels else None
    videos, _ = own_action._labelled_videos(tmp_path, table, "squat")
    assert [video.name for video in videos] == ["squat0.mp4", "squat1.mp4"]
    with pytest.raises(DataError, match="2 labelled videos"):
        learn_folder(tmp_path, tmp_path / "x.safetensors", labels=table, only="squat")
    with pytest.raises(DataError, match="there is no class 'run'; there are 'jump', 'squat'"):
        learn_folder(tmp_path, tmp_path / "x.safetensors", labels=table, only="run")
