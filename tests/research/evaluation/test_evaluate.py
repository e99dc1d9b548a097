"""Any model on any dataset: streamed or from stored tokens, stopped and gone on with, stale rows counted again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command import Outcome, run
from movies import bouncing, write_movie
from safetensors import safe_open
from safetensors.torch import save_file
from stores import LAYOUT, repcount, store, video

from escounts.errors import DataError
from escounts.models import catalogue
from escounts.models.checkpoint import save_decoder
from escounts.nn.decoder import PAPER, Decoder
from escounts.research.datasets.encoding_plan import plan_encoding
from escounts.research.datasets.registry import load_dataset
from escounts.research.datasets.stores import load_labels
from escounts.research.evaluation import by_name
from escounts.research.evaluation.by_name import evaluate_named
from escounts.research.evaluation.evaluate import evaluate_model
from escounts.research.evaluation.models import EvalSpec, TokenModel, TokenSource
from escounts.research.evaluation.prediction_files import Coverage, PredictionFile
from escounts.research.training.predictions import load_predictions

SMALL = replace(
    PAPER, in_channels=8, channels=32, heads=2, cross_blocks=1, window_blocks=1, window=(4, 2, 2), grid=(2, 2),
    latent_tokens=16, mlp_ratio=2,
)  # fmt: skip
Escounts = Callable[..., Outcome]


@pytest.fixture
def escounts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Escounts:
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


@pytest.fixture(autouse=True)
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ESCOUNTS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


def test_streamed_and_stored_tokens_count_alike(escounts: Escounts, tmp_path: Path) -> None:
    root = repcount(tmp_path / "RepCount", {"a.mp4": 90, "b.mp4": 70})
    torch.manual_seed(0)
    decoder = Decoder(replace(SMALL, in_channels=96, grid=(4, 4)))
    save_decoder(tmp_path / "mine.safetensors", decoder, encoder="patches")
    specs = [EvalSpec(), EvalSpec(shots=2), EvalSpec(shots=1, exemplars="other")]
    model = str(tmp_path / "mine.safetensors")
    streamed = evaluate_named(model, "repcount", root=root, specs=specs, out=tmp_path / "s")
    plan_encoding("repcount", root, tmp_path / "tokens", encoder="patches").run()
    stored = evaluate_named(model, "repcount", tokens=tmp_path / "tokens", specs=specs, out=tmp_path / "t")
    for one, other in zip(streamed, stored, strict=True):
        assert one.coverage.scored == 2
        assert [row.predicted for row in one.rows] == pytest.approx([row.predicted for row in other.rows], abs=1e-3)
    assert [row.shots for row in streamed[1].rows] == [2, 2]
    zero, two, another = ([row.predicted for row in found.rows] for found in streamed)
    assert zero != pytest.approx(two, abs=1e-5)
    assert two != pytest.approx(another, abs=1e-5)


def test_videos_that_are_not_in_the_store_are_encoded(escounts: Escounts, tmp_path: Path) -> None:
    """A store of other splits, or one that is not finished, once made videos that are there "not here"."""
    root = repcount(tmp_path / "RepCount", {"a.mp4": 90, "b.mp4": 70})
    torch.manual_seed(0)
    save_decoder(tmp_path / "m.safetensors", Decoder(replace(SMALL, in_channels=96, grid=(4, 4))), encoder="patches")
    encode = ("encode", "repcount", "--root", root, "--encoder", "patches")
    assert escounts(*encode, "--tokens", tmp_path / "train", "--split", "train").code == 0
    assert escounts(*encode, "--tokens", tmp_path / "whole").code == 0
    rows = {}
    for tokens in ("train", "whole"):
        said = escounts("evaluate", tmp_path / "m.safetensors", "--data", "repcount", "--root", root, "--device",
                        "cpu", "--tokens", tmp_path / tokens, "--out", tmp_path / f"{tokens}-out")  # fmt: skip
        assert "2 of 2 videos scored" in said.out, said.out + said.err
        (path,) = (tmp_path / f"{tokens}-out").glob("*.csv")
        rows[tokens] = {row.name: row.predicted for row in load_predictions(path)}
    assert rows["train"] == pytest.approx(rows["whole"], abs=0.02), "stored tokens are of half precision"


def test_models_that_count_files(escounts: Escounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "mine"
    root.mkdir()
    (root / "labels.csv").write_text("file,count\na.mp4,4\nb.mp4,5\n")
    write_movie(root / "a.mp4", bouncing(4, 4.0, size=(64, 48)), rate=30)
    write_movie(root / "b.mp4", bouncing(5, 4.0, size=(64, 48)), rate=30)
    said = escounts("evaluate", "spectral", "--data", "folder", "--root", root)
    assert said.code == 0, said.err
    assert "folder all: 2 of 2 videos scored" in said.out
    rows = load_predictions(tmp_path / "tables/models/spectral/folder-all-0-none-K4.csv")
    assert [(row.name, round(row.predicted)) for row in rows] == [("a.mp4", 4), ("b.mp4", 5)]
    document = tmp_path / "found.json"
    more = ("--shots", "0,1", "--groups", "--json", document)
    table = escounts("evaluate", "spectral", "--data", "folder", "--root", root / "labels.csv", *more)
    assert table.code == 0, "a table of the same form, the videos beside it"
    assert "spectral, 1 exemplar, same video" in table.out
    assert "nan" not in table.out, "groups without videos have dashes"
    found = json.loads(document.read_text())
    assert found["model"]["name"] == "spectral"
    assert [(one["shots"], one["exemplars"]) for one in found["evaluations"]] == [(0, "none"), (1, "same")]
    zero = found["evaluations"][0]
    assert zero["coverage"]["scored"] == 2 and zero["metrics"]["mae"]["value"] == 0
    assert zero["by_action"] == [{"name": "mine", "videos": 2, "rmse": 0, "mae": 0, "obz": 1, "obo": 1}]
    assert [(row["name"], row["count"]) for row in zero["videos"]] == [("a.mp4", 4), ("b.mp4", 5)]
    for arguments, message in (
        (("spectral", "--data", "folder"), "give its folder with --root"),
        (("nobody", "--data", "folder", "--root", root), "unknown model 'nobody'"),
        (("spectral", "--root", root), "name the one to evaluate on with --data"),
    ):
        refused = escounts("evaluate", *arguments)
        assert refused.code == 2
        assert message in refused.err


def test_quva_is_a_dataset(escounts: Escounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "QUVA"
    (root / "annotations").mkdir(parents=True)
    (root / "videos").mkdir()
    write_movie(root / "videos" / "000_bounce.mp4", bouncing(4, 4.0, size=(64, 48)), rate=30)
    np.save(root / "annotations" / "000_bounce.npy", np.array([30, 60, 90, 120]))
    np.save(root / "annotations" / "001_absent.npy", np.array([10, 20]))
    (root / "annotations" / "002_bad.npy").write_bytes(b"no array")
    dataset = load_dataset("quva", root)
    first = dataset.find("000_bounce")
    assert (first.count, first.spans[0], first.spans[-1]) == (4, (0.0, 1.0), (3.0, 4.0))
    assert any(problem.name == "002_bad" and problem.unusable for problem in dataset.problems)
    said = escounts("evaluate", "spectral", "--data", "quva", "--root", root)
    assert said.code == 0, said.err
    assert "quva test: 1 of 3 videos scored\n" in said.out and "missing: 001_absent (not here)" in said.out
    assert "missing: 002_bad (002_bad.npy cannot be read" in said.out
    both = escounts(
        "evaluate", "spectral", "--data", "quva", "--root", root, "--shots", "0,1,9", "--exemplars", "same,other"
    )
    assert both.code == 0, both.err
    nothing = "missing: 000_bounce (no exemplar of another video of its action to take)"
    assert both.out.count("quva test: 0 of 3 videos scored") == 2
    assert both.out.count(nothing) == 2, "zero-shot counts are not printed as those of 1 and 9 exemplars"
    assert "1 of 1 videos had fewer than 9 exemplars to take, 0 none: counted zero-shot" in both.out
    assert "fewer than 1 " not in both.out


class TestStaleness:
    """A count of other labels, another video, other weights or other arithmetic is made again, and only that."""

    @pytest.fixture
    def counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
        videos = [video("t0"), video("e0", split="test"), video("e1", split="test", count=4)]
        made, dataset = store(tmp_path / "tokens", videos)
        torch.manual_seed(0)
        calls: list[str] = []
        source = TokenSource(dataset, LAYOUT, store=made)
        model = TokenModel("mine", Decoder(SMALL), source, identity={"weights": "a"})
        opened = model.open
        monkeypatch.setattr(model, "open", lambda annotation: calls.append(annotation.name) or opened(annotation))  # type: ignore[func-returns-value]

        def evaluate(labels=dataset, **identity: str):  # type: ignore[no-untyped-def]
            calls.clear()
            model.identity = {"weights": "a"} | identity
            (found,) = evaluate_model(model, labels, [EvalSpec()], tmp_path / "out", split="test")
            return calls.copy(), found

        return evaluate, dataset, made

    def test_nothing_changed(self, counted) -> None:  # type: ignore[no-untyped-def]
        evaluate, *_ = counted
        first, second = evaluate(), evaluate()
        assert (first[0], second[0]) == (["e0", "e1"], [])
        assert [r.predicted for r in first[1].rows] == [r.predicted for r in second[1].rows]

    def test_other_weights_or_labels(self, counted) -> None:  # type: ignore[no-untyped-def]
        evaluate, dataset, _ = counted
        evaluate()
        assert evaluate(weights="b")[0] == ["e0", "e1"]
        evaluate()
        changed = tuple(replace(v, count=9) if v.name == "e1" else v for v in dataset.videos)
        calls, found = evaluate(replace(dataset, videos=changed))
        assert calls == ["e0", "e1"]
        assert [row.count for row in found.rows] == [3, 9]

    def test_another_video_under_the_same_name(self, counted) -> None:  # type: ignore[no-untyped-def]
        evaluate, _, made = counted
        evaluate()
        made.entries["e1"] = replace(made.entries["e1"], sha256="0" * 64)
        assert evaluate()[0] == ["e1"]

    def test_other_arithmetic(self, counted, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
        evaluate, *_ = counted
        evaluate()
        monkeypatch.setattr("escounts.research.evaluation.evaluate.code_identity", lambda places: "changed")
        assert evaluate()[0] == ["e0", "e1"]


def test_a_line_cut_short_is_counted_again(tmp_path: Path) -> None:
    videos = [video("t0"), video("e0", split="test"), video("e1", split="test", count=4)]
    made, dataset = store(tmp_path / "tokens", videos)
    torch.manual_seed(0)
    model = TokenModel("mine", Decoder(SMALL), TokenSource(dataset, LAYOUT, store=made), identity={})
    (whole,) = evaluate_model(model, dataset, [EvalSpec()], tmp_path / "whole", split="test")
    opened = model.open

    def failing(annotation):  # type: ignore[no-untyped-def]
        if annotation.name == "e1":
            raise KeyboardInterrupt
        return opened(annotation)

    model.open = failing  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        evaluate_model(model, dataset, [EvalSpec()], tmp_path / "out", split="test")
    (partial,) = (tmp_path / "out").glob("*.partial.jsonl")
    partial.write_text(partial.read_text() + '{"fingerprint": "x", "row": {"na')
    model.open = opened  # type: ignore[method-assign]
    (resumed,) = evaluate_model(model, dataset, [EvalSpec()], tmp_path / "out", split="test")
    assert resumed.path.read_bytes() == whole.path.read_bytes()
    assert json.loads(resumed.path.with_name(resumed.path.name + ".json").read_text())["coverage"]["scored"] == 2


def test_open_set_and_benchmark_share_their_tokens(tmp_path: Path) -> None:
    root = repcount(tmp_path / "RepCount", {"a.mp4": 60, "b.mp4": 60})
    (root / "open_set").mkdir()
    for split, name in (("train", "a.mp4"), ("valid", "valid1.mp4"), ("test", "train1.mp4")):
        source = root / "annotation" / f"{'test' if name == 'a.mp4' else name.split('1')[0]}.csv"
        lines = source.read_text().splitlines()
        (root / "open_set" / f"{split}.csv").write_text(
            "\n".join([lines[0], *[x for x in lines if f",{name}," in x]])
        )
    first = plan_encoding("repcount", root, tmp_path / "tokens", encoder="patches")
    first.run()
    stamps = {path: path.stat().st_mtime_ns for path in (first.path / "videos").iterdir()}
    second = plan_encoding("repcount-open", root, tmp_path / "tokens", encoder="patches")
    assert second.path == first.path
    made, problems = second.run()
    assert not problems
    assert {path: path.stat().st_mtime_ns for path in (first.path / "videos").iterdir()} == stamps
    assert len(made.entries) == 4, "what the benchmark indexed stays"
    shutil.rmtree(root)
    torch.manual_seed(0)
    save_decoder(tmp_path / "m.safetensors", Decoder(replace(SMALL, in_channels=96, grid=(4, 4))), encoder="patches")
    for data, videos in (("repcount", 2), ("repcount-open", 1)):
        (found,) = evaluate_named(
            str(tmp_path / "m.safetensors"), data, tokens=tmp_path / "tokens", out=tmp_path / data
        )
        assert found.coverage.short == f"{videos}/{videos}"
    (tmp_path / "tokens" / "repcount-patches" / "labels-repcount-open.json").unlink()
    with pytest.raises(DataError, match="make them with: escounts encode repcount-open --root FOLDER"):
        load_labels(tmp_path / "tokens" / "repcount-patches", "repcount-open")
    with pytest.raises(DataError, match="no labels of ucfrep"):
        evaluate_named(str(tmp_path / "m.safetensors"), "ucfrep", tokens=tmp_path / "tokens")


SECONDS = (
    "video_id,class,kinetics_start,kinetics_end,repetition_start,repetition_end,count\nNAME,jump,17,21,17,21,4\n"
)
FRAMES = "video_id,counts,num_frames\nNAME_0.00000_4.00000.mp4,4,100\n"
WORKOUT = "type,name,count,L1,L2,L3,L4,fps\nsquat,NAME.mp4,2,0,50,50,100,25\n"
STRETCH = "name,counts,num_frames,start_frame,end_frame,L1,L2\nUCF-101/Squat/NAME.avi,1,100,1,100,1,101\n"
CLIPS = [{"video_id": "abc", "ovr_annotations": [{"start_time": 0, "end_time": 4, "count": 4, "split": "test"}]}]
EGO_CLIPS = [{**CLIPS[0], "timestamp_sec": 7.5}]


def tables(text: str, *paths: str) -> dict[str, str]:
    """A label table for each split, each of another video; that of the last split is the one that is here."""
    return {path: text.replace("NAME", "abc" if path == paths[-1] else f"absent{n}") for n, path in enumerate(paths)}


THREE = ("train.csv", "val.csv", "test.csv")
BENCHMARK = tables(WORKOUT, "annotation/train.csv", "annotation/valid.csv", "annotation/test.csv")
AS_THE_HELP_SAYS = {
    # dataset: label files and the video
    "repcount": (BENCHMARK, "video/test/abc.mp4"),
    "repcount-open": (
        {**BENCHMARK, **tables(WORKOUT, "open_set/train.csv", "open_set/valid.csv", "open_set/test.csv")},
        "video/test/abc.mp4",
    ),
    "countix": (tables(SECONDS, *THREE), "abc_000017_000021.mp4"),
    "countix-frames": (tables(FRAMES, *THREE), "abc_0.00000_4.00000.mp4"),
    "countix-av": (tables(SECONDS, *THREE), "abc_000017_000021.mp4"),
    "ucfrep": (tables(STRETCH, "train.csv", "val.csv"), "UCF-101/Squat/abc.avi"),
    "ovr-ego4d": ({"ovr_ego4d_release.json": json.dumps(EGO_CLIPS)}, "abc_7.500.mp4"),
    "ovr-kinetics": ({"ovr_kinetics_release.json": json.dumps(CLIPS)}, "abc.mp4"),
}


@pytest.fixture(scope="module")
def four_bounces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(
        tmp_path_factory.mktemp("four") / "four.mp4", bouncing(4, 4.0, size=(64, 48), rate=25), rate=25
    )


@pytest.mark.parametrize("name", AS_THE_HELP_SAYS)
def test_every_dataset_is_evaluated_from_the_files_that_the_help_names(
    name: str, escounts: Escounts, tmp_path: Path, four_bounces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels, place = AS_THE_HELP_SAYS[name]
    for file, text in {**labels, place: ""}.items():
        (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / file).write_text(text)
    shutil.copy(four_bounces, tmp_path / name / place)
    said = escounts("evaluate", "spectral", "--data", name, "--root", name, "--shots", "0,1")
    assert said.code == 0, said.err
    split = "valid" if name == "ucfrep" else "test"
    assert said.out.count(f"{name} {split}: 1 of 1 videos scored") == 2, said.out
    assert "MAE" in said.out


def test_two_processes_score_as_one(escounts: Escounts, tmp_path: Path) -> None:
    """Videos are divided, rows come in the order of the labels, and one that cannot be read is named as before."""
    root = repcount(tmp_path / "RepCount", {"a.mp4": 40, "b.mp4": 64, "c.mp4": 65, "d.mp4": 50}, absent=("c.mp4",))
    (root / "video" / "test" / "b.mp4").write_bytes(b"this is not a video")
    evaluate = ("evaluate", "spectral", "--data", "repcount", "--root", root, "--device", "cpu")
    alone = escounts(*evaluate, "--out", tmp_path / "alone")
    shared = escounts(*evaluate, "--out", tmp_path / "shared", "--jobs", "2")
    assert alone.code == shared.code == 0, shared.err
    assert "2 of 4 videos scored" in shared.out and "b.mp4" in shared.out and "c.mp4 (not here)" in shared.out
    (one,), (other,) = ((tmp_path / name).glob("*.csv") for name in ("alone", "shared"))
    assert one.read_bytes() == other.read_bytes()


def test_another_calibration_is_another_model(tmp_path: Path) -> None:
    with safe_open(catalogue.LITE_WEIGHTS, framework="pt") as file:
        about, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    found = []
    for name, calibration in (("a", about["calibration"]), ("b", about["calibration"].replace("0.", "1.", 1))):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "mine.safetensors"
        save_file(tensors, path, metadata=about | {"calibration": calibration})
        found.append({**by_name._file_identity(str(path)), "name": "mine"})
    assert found[0]["sha256"] == found[1]["sha256"] and found[0] != found[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("evaluate spectral --data quva --root . --limit-videos -1", "not in the range x>=1"),
        ("evaluate spectral --data quva --root . --shots 0,-1", "numbers from 0"),
        ("evaluate spectral --data quva --root . --shifts 0", "not in the range x>=1"),
    ],
)
def test_what_cannot_be_meant_is_not_run_as_something_else(
    arguments: str, said: str, escounts: Escounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the last video for -1, the default for 0, the usual arithmetic under another name."""
    monkeypatch.chdir(tmp_path)
    repcount(tmp_path / "RepCount", {"a.mp4": 90})
    outcome = escounts(*arguments.split())
    assert outcome.code != 0 and said in " ".join(outcome.err.split())
    assert not (tmp_path / "tables").exists()


def test_what_a_killed_evaluation_left_behind_goes(tmp_path: Path) -> None:
    left = tmp_path / ".test.csv.0a1b2c3d.partial"
    left.write_text("half")
    PredictionFile(tmp_path / "test.csv", {}).finish([], Coverage("folder", "test", 0, 0, {}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.csv", "test.csv.json"]


def own_folder(root: Path, table: str, clip: Path) -> Path:
    """A folder of own videos, a.mp4 and b.mp4, with a table of labels."""
    root.mkdir()
    for name in ("a.mp4", "b.mp4"):
        shutil.copy(clip, root / name)
    (root / "labels.csv").write_text(table)
    return root


def test_every_row_that_is_left_out_is_named_and_counted(
    escounts: Escounts, tmp_path: Path, four_bounces: Path
) -> None:
    long = "x" * 5000 + ".mp4"
    table = f"file,count\na.mp4,1e12\nmissing.mp4,4\n{long},3\n,2\nb.mp4,4\n"
    root = own_folder(tmp_path / "mine", table, four_bounces)
    evaluate = ("evaluate", "spectral", "--data", "folder", "--out", tmp_path / "out", "--device", "cpu")
    said = escounts(*evaluate, "--root", root / "labels.csv", "--json", tmp_path / "report.json")
    assert said.code == 0, said.err
    assert "folder all: 1 of 5 videos scored\n" in said.out
    lines = [line.strip() for line in said.out.splitlines() if line.strip().startswith("missing: ")]
    assert lines[0] == "missing: a.mp4 (count '1e12' is not a whole number)"
    assert lines[1] == "missing: missing.mp4 (no such video)"
    assert lines[2].startswith("missing: xxx") and len(lines[2]) < 120
    assert lines[3].startswith("missing: a row without a name (") and len(lines) == 4
    (evaluation,) = json.loads((tmp_path / "report.json").read_text())["evaluations"]
    assert list(evaluation["coverage"]["missing"]) == ["a.mp4", "missing.mp4", long, ""]
    assert evaluation["coverage"]["videos"] == 5 and evaluation["coverage"]["scored"] == 1
    first = escounts(*evaluate, "--root", root, "--limit-videos", 1)
    assert "folder all: 1 of 5 videos scored\n" in first.out, "the limit cuts nothing off"


def test_rows_of_videos_that_are_scored_by_their_others_are_named(
    escounts: Escounts, tmp_path: Path, four_bounces: Path
) -> None:
    table = "file,start_s,end_s\na.mp4,0,1\na.mp4,2,1.5\nb.mp4,0,1\nb.mp4,1,2\nc.mp4,x,1\n"
    root = own_folder(tmp_path / "mine", table, four_bounces)
    evaluate = ("evaluate", "spectral", "--data", "folder", "--root", root, "--device", "cpu")
    said = escounts(*evaluate, "--out", tmp_path / "out")
    assert "folder all: 2 of 3 videos scored\n" in said.out
    assert "    missing: c.mp4 (start 'x', end '1' are not numbers)\n" in said.out
    assert "    labels left out: a.mp4 (end 1.5 s is not after start 2 s)\n" in said.out
    first = escounts(*evaluate, "--out", tmp_path / "first", "--limit-videos", 1)
    assert "folder all: 1 of 1 videos scored (the first of 3)\n" in first.out
    assert "    labels left out: c.mp4 (start 'x', end '1' are not numbers)\n" in first.out


def test_what_was_not_scored_is_ten_lines_at_most() -> None:
    absent = {f"{k}.mp4": "not\nhere\x1b[2J" for k in range(12)}
    lines = Coverage("folder", "all", 13, 1, absent, None, {"b": "odd"}).not_scored()
    assert lines[0] == "missing: 0.mp4 (not here\\u001b[2J)" and lines[9].startswith("missing: 9.mp4")
    assert lines[10:] == ["… and 3 more"]
    assert Coverage("folder", "all", 1, 1, {}).not_scored() == []
