"""Labels as files: the CSV that training reads, Label Studio there and back, and over HTTP."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Client

from escounts.datasets import folder
from escounts.serve.app import Service
from escounts.serve.labels import LabelError, from_label_studio, to_csv, to_label_studio, write_csv


def test_csv_has_the_columns_that_training_reads() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([("a,b.mp4", "squat", [(0.5, 1.25), (2, 3)])]))))
    assert rows == [
        {"file": "a,b.mp4", "start_s": "0.500", "end_s": "1.250", "class": "squat"},
        {"file": "a,b.mp4", "start_s": "2.000", "end_s": "3.000", "class": "squat"},
    ]


def test_the_dataset_reader_reads_them(tmp_path: Path) -> None:
    labelled = [
        ("a.mp4", "squat", [(0.5, 1.25), (2.0, 3.0)]),
        ("still.mp4", "", []),
        ("-b.mp4", "jump", [(1.0, 2.0)]),
    ]
    write_csv(tmp_path / "labels.csv", labelled)
    videos = {video.name: video for video in folder.load(tmp_path).videos}
    assert videos["a.mp4"].spans == ((0.5, 1.25), (2.0, 3.0))
    assert videos["still.mp4"].count == 0
    assert (tmp_path / videos["./-b.mp4"].name).resolve() == tmp_path / "-b.mp4"


def test_no_cell_is_a_formula() -> None:
    assert to_csv([("=cmd().mp4", "@x", [(0, 1)])]).splitlines()[1] == "./=cmd().mp4,0.000,1.000,'@x"


@given(
    frames=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 90)), max_size=20),
    fps=st.sampled_from([12.5, 25.0, 29.97, 30.0, 60.0]),
)
def test_label_studio_there_and_back_within_half_a_frame(frames: list[tuple[int, int]], fps: float) -> None:
    spans = sorted({(start / 30, (start + length) / 30) for start, length in frames})
    action, back = from_label_studio(
        json.loads(json.dumps(to_label_studio("v.mp4", spans, fps=fps, duration=40.0, action="jump"))),
        fps=25.0,
        duration=40.0,
    )
    in_frames = {span: (round(span[0] * fps), round(span[1] * fps)) for span in spans}
    # Spans that overlap may begin in one frame: then the shorter comes first on the way back.
    kept = sorted((span for span, (first, last) in in_frames.items() if first != last), key=in_frames.__getitem__)
    assert action == ("jump" if spans else "")
    assert len(back) == len(kept)
    for (start, end), (start_back, end_back) in zip(kept, sorted(back), strict=True):
        assert abs(start - start_back) <= 0.51 / fps + 1e-3
        assert abs(end - end_back) <= 0.51 / fps + 1e-3


def test_label_studio_regions_count_frames_from_one() -> None:
    task = to_label_studio("v.mp4", [(0.0, 1.0)], fps=25.0, duration=4.0)[0]
    region = task["annotations"][0]["result"][0]
    assert region["type"] == "timelinelabels"
    assert region["value"] == {"ranges": [{"start": 1, "end": 26}], "timelinelabels": ["Repetition"]}


@pytest.mark.parametrize(
    "document",
    [
        [],
        [{}, {}],
        "text",
        {"annotations": 3},
        {"annotations": [{"result": 1}]},
        {
            "annotations": [
                {"result": [{"type": "timelinelabels", "value": {"ranges": [{"start": 10**400, "end": 1}]}}]}
            ]
        },
        {"annotations": [{"result": [{"type": "timelinelabels", "value": {"ranges": ["x"]}}]}]},
    ],
)
def test_what_is_not_a_label_studio_task_is_refused(document: object) -> None:
    with pytest.raises(LabelError):
        from_label_studio(document, fps=25.0, duration=10.0)


def test_saved_over_http_as_training_reads_them(client: Client, service: Service, clips: dict[int, Path]) -> None:
    video = client.send_video(clips[5], "squats.mp4")
    address = f"/api/videos/{video['id']}/labels"
    assert client.put(address, json={"spans": []}).status_code == 409, "its length is not known yet"
    client.start_count(video["id"], wait=30)
    assert client.get(address).status_code == 404
    spans = [{"start": 2.0, "end": 3.0}, {"start": 0.5, "end": 1.5}]
    saved = client.put(address, json={"spans": spans, "action": "squat"})
    assert saved.json()["spans"] == spans[::-1]
    assert client.put(address, json={"spans": [{"start": 100, "end": 101}]}).status_code == 422
    assert client.put(address, json={"spans": [{"start": 2, "end": 1}]}).status_code == 422
    on_disk = (service.settings.videos / "labels.csv").read_text()
    assert f"{video['id']}.mp4,0.500,1.500,squat" in on_disk
    assert "squats.mp4,0.500,1.500,squat" in client.get(f"{address}.csv").text
    assert "squats.mp4,2.000,3.000,squat" in client.get("/api/labels.csv").text
    task = client.get(f"/api/videos/{video['id']}/label-studio").json()
    task[0]["annotations"][0]["result"] = task[0]["annotations"][0]["result"][:1]
    back = client.post(f"/api/videos/{video['id']}/label-studio", json=task).json()
    assert (len(back["spans"]), back["action"]) == (1, "squat")
    assert client.get(f"/api/videos/{video['id']}").json()["labelled"] is True


def test_labels_of_server_files_reach_the_labels_that_training_reads(client: Client, service: Service) -> None:
    video = client.post("/api/media", json={"file": "sub/seven.mp4"}).json()
    client.start_count(video["id"], wait=30)
    client.put(f"/api/videos/{video['id']}/labels", json={"spans": [{"start": 0.5, "end": 1.5}], "action": "bounce"})
    dataset = folder.load(service.settings.videos)
    (found,) = [item for item in dataset.videos if item.file.endswith("seven.mp4")]
    path = dataset.locate(service.settings.videos, found)
    assert path is not None and path.samefile(service.library.locate(service.database.video(video["id"])).path)
    assert found.spans == ((0.5, 1.5),)


def test_overlapping_labels_are_refused_and_the_old_ones_kept(client: Client, clips: dict[int, Path]) -> None:
    video = client.send_video(clips[5], "overlap.mp4")
    client.start_count(video["id"], wait=30)
    address = f"/api/videos/{video['id']}/labels"
    assert client.put(address, json={"spans": [{"start": 1.0, "end": 2.0}, {"start": 2.0, "end": 3.0}]}).is_success
    refused = client.put(address, json={"spans": [{"start": 1.9, "end": 3.0}, {"start": 1.0, "end": 2.0}]})
    assert refused.status_code == 422
    assert "1.00–2.00 s and 1.90–3.00 s overlap" in refused.json()["detail"]
    assert len(client.get(address).json()["spans"]) == 2


def test_labels_know_the_count_that_was_on_screen(client: Client, clips: dict[int, Path]) -> None:
    video = client.send_video(clips[5], "screen.mp4")
    shown = client.start_count(video["id"], wait=30)
    newer = client.start_count(video["id"], assume_repeats=True, wait=30)
    address = f"/api/videos/{video['id']}/labels"
    saved = client.put(address, json={"spans": [{"start": 1.0, "end": 2.0}], "job": shown["id"]}).json()
    assert saved["job"] == client.get(address).json()["job"] == shown["id"] != newer["id"]
    other = client.send_video(clips[7], "other.mp4")
    client.start_count(other["id"], wait=30)
    wrong = client.put(f"/api/videos/{other['id']}/labels", json={"spans": [], "job": shown["id"]})
    assert wrong.status_code == 422 and "another video" in wrong.json()["detail"]


def test_a_wrong_container_duration_does_not_refuse_labels_of_real_frames(
    client: Client, service: Service, clips: dict[int, Path]
) -> None:
    video = client.send_video(clips[5], "short-header.mp4")
    client.start_count(video["id"], wait=30)
    service.database.describe_video(video["id"], duration=1.0, width=64, height=64, fps=30.0)
    saved = client.put(f"/api/videos/{video['id']}/labels", json={"spans": [{"start": 2.0, "end": 3.5}]})
    assert saved.json()["spans"] == [{"start": 2.0, "end": 3.5}]


def test_labels_csv_with_overlapping_repetitions_is_refused_by_name(tmp_path: Path) -> None:
    write_csv(tmp_path / "labels.csv", [("a.mp4", "", [(0.5, 1.5), (1.2, 2.0)]), ("b.mp4", "", [(0.5, 1.5)])])
    dataset = folder.load(tmp_path)
    assert [video.name for video in dataset.videos] == ["b.mp4"]
    assert "a.mp4: repetitions 0.50–1.50 s and 1.20–2.00 s overlap" in str(dataset.problems[0])
    assert dataset.problems[0].unusable
