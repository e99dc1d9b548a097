"""Labels over HTTP: saved as training reads them, as one dataset, and in the files of annotation tools."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Client, uploaded

from escounts.research.datasets import folder
from escounts.research.datasets.annotation_formats import PIECE, LabelledFile, dataset_zip, distinct_names
from escounts.research.datasets.annotation_formats.tables import write_file
from escounts.research.datasets.registry import check_files
from escounts.serve.app import Service
from escounts.serve.label_api import _safe_name


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
    dataset = folder.load_folder(service.settings.videos)
    (found,) = [item for item in dataset.videos if item.file.endswith("seven.mp4")]
    path = dataset.locate(service.settings.videos, found)
    row = service.database.video(video["id"])
    assert path is not None and row is not None and path.samefile(service.settings.locate(row).path)
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
    overlapping = LabelledFile("a.mp4", ((0.5, 1.5), (1.2, 2.0)))
    write_file(tmp_path / "labels.csv", [overlapping, LabelledFile("b.mp4", ((0.5, 1.5),))])
    dataset = folder.load_folder(tmp_path)
    assert [video.name for video in dataset.videos] == ["b.mp4"]
    assert "a.mp4: repetitions 0.50–1.50 s and 1.20–2.00 s overlap" in str(dataset.problems[0])
    assert dataset.problems[0].unusable


def test_everything_is_one_dataset_folder(
    client: Client, service: Service, clips: dict[int, Path], tmp_path: Path
) -> None:
    videos = [client.send_video(clips[5], "same name.mp4") for _ in range(2)]
    for video in videos:
        client.start_count(video["id"], wait=30)
        client.put(f"/api/videos/{video['id']}/labels", json={"spans": [{"start": 0.5, "end": 1.5}], "action": "up"})
    answer = client.get("/api/labels/dataset.zip")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    dataset = folder.load_folder(tmp_path)
    assert {"same name.mp4", "same name (2).mp4"} <= {video.file for video in dataset.videos}
    assert check_files(dataset, tmp_path, open_videos=True) == ([], []) and not dataset.problems
    assert (tmp_path / "same name (2).mp4").read_bytes() == clips[5].read_bytes()


def test_a_dataset_in_pieces_is_never_whole_in_memory(tmp_path: Path) -> None:
    video = tmp_path / "long.mp4"
    video.write_bytes(bytes(5 * PIECE))
    pieces = [*dataset_zip([(video, LabelledFile(video.name, ((0.5, 1.5),)))])]
    assert len(pieces) > 5 and max(map(len, pieces)) < 2 * PIECE


def test_names_in_a_dataset_are_readable_safe_and_unique() -> None:
    sent = ["../../etc/passwd", "a.mp4", "A.mov", "a.mp4", "=cmd().mp4", "...", "labels.csv", "käse 1.mp4"]
    safe = [_safe_name(uploaded(str(place), name=name)) for place, name in enumerate(sent)]
    names = distinct_names(safe, {"labels.csv"})
    assert names == [
        "passwd.mp4", "a.mp4", "A (2).mp4", "a (3).mp4", "_cmd().mp4", "video.mp4", "labels.mp4", "käse 1.mp4",
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["csv", "boris", "boris-tabular", "label-studio"])
def test_labels_of_other_tools_there_and_back_over_http(client: Client, clips: dict[int, Path], format: str) -> None:
    video = client.send_video(clips[7], f"tool-{format}.mp4")
    client.start_count(video["id"], wait=30)
    address = f"/api/videos/{video['id']}/labels"
    spans = [{"start": 0.4, "end": 1.2}, {"start": 1.2, "end": 2.0}]
    client.put(address, json={"spans": spans, "action": "bounce"})
    exported = client.get(f"/api/labels/export/{format}")
    assert exported.is_success, exported.text
    client.put(address, json={"spans": [], "action": ""})
    request = {"name": f"x.{'json' if format == 'label-studio' else 'csv'}", "text": exported.text, "only": "bounce"}
    back = client.post("/api/labels/import", json=request).json()
    assert video["id"] in back["saved"]
    assert client.get(address).json()["spans"] == spans
    assert client.post("/api/labels/import", json={"name": "x.eaf", "text": "<a>"}).status_code == 422


def test_our_own_export_gives_every_video_its_own_labels_back(client: Client, clips: dict[int, Path]) -> None:
    videos = [client.send_video(clips[5], "twin.mp4") for _ in range(3)]
    for place, video in enumerate(videos):
        client.start_count(video["id"], wait=30)
        spans = [{"start": 0.5 + place, "end": 1.0 + place}]
        client.put(f"/api/videos/{video['id']}/labels", json={"spans": spans, "action": "twin"})
    before = [client.get(f"/api/videos/{video['id']}/labels").json()["spans"] for video in videos]
    exported = client.get("/api/labels/export/csv").text
    assert exported == client.get("/api/labels.csv").text
    client.delete(f"/api/videos/{videos[0]['id']}")
    for video in videos[1:]:
        client.put(f"/api/videos/{video['id']}/labels", json={"spans": [], "action": ""})
    back = client.post("/api/labels/import", json={"name": "x.csv", "text": exported, "only": "twin"}).json()
    assert set(back["saved"]) == {video["id"] for video in videos[1:]}
    assert back["unknown"] == [f"twin ({videos[0]['id'][:8]}).mp4"], "its name is not another's now"
    assert [client.get(f"/api/videos/{video['id']}/labels").json()["spans"] for video in videos[1:]] == before[1:]


def test_a_name_that_several_videos_have_is_not_guessed(client: Client, clips: dict[int, Path]) -> None:
    videos = [client.send_video(clips[5], "shared.mp4") for _ in range(2)]
    for video in videos:
        client.start_count(video["id"], wait=30)
    request = {"name": "x.csv", "text": "file,start_s,end_s\nshared.mp4,0.5,1\n"}
    answer = client.post("/api/labels/import", json=request).json()
    assert answer == {"saved": [], "unknown": [], "ambiguous": ["shared.mp4"], "shortened": [], "spread": []}
    assert all(client.get(f"/api/videos/{video['id']}/labels").status_code == 404 for video in videos)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("0.5,1,%s" % ("x" * 81), "81 characters"),
        ("-0.5,1,up", "from 0 on"),
        ("0.5,1.5,up\nsecond.mp4,1,2,up", "overlap"),
    ],
)
def test_a_file_with_a_bad_label_saves_nothing(client: Client, clips: dict[int, Path], bad: str, said: str) -> None:
    videos = [client.send_video(clips[5], name) for name in ("first.mp4", "second.mp4")]
    for video in videos:
        client.start_count(video["id"], wait=30)
    text = f"file,start_s,end_s,class\nfirst.mp4,0.5,1,up\nsecond.mp4,{bad}\n"
    refused = client.post("/api/labels/import", json={"name": "x.csv", "text": text})
    assert refused.status_code == 422, refused.text
    assert said in refused.json()["detail"]
    assert all(client.get(f"/api/videos/{video['id']}/labels").status_code == 404 for video in videos)
    for video in videos:
        client.delete(f"/api/videos/{video['id']}")


@pytest.fixture()
def labelled(client: Client, clips: dict[int, Path]) -> Iterator[str]:
    """The id of a video of a few seconds, wipe.mp4, with two labels."""
    video = client.send_video(clips[5], "wipe.mp4")["id"]
    client.start_count(video, wait=30)
    spans = [{"start": 0.5, "end": 1.0}, {"start": 1.0, "end": 1.5}]
    client.put(f"/api/videos/{video}/labels", json={"spans": spans, "action": "jump"})
    yield video
    client.delete(f"/api/videos/{video}")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            "wipe.mp4,1000,2500,jump",
            r"line 2 \(1000–2500 s\) lies past the end of the video .*look like milliseconds",
        ),
        ("wipe.mp4,30,75,jump\nwipe.mp4,75,105,jump", "line 2 .*line 3 .* lie past .* look like frame numbers"),
        ("wipe.mp4,0.5,1,jump\nwipe.mp4,1.0,2000,jump", r"line 3 \(1–2000 s\) lies past the end of the video"),
        ("wipe.mp4,,,jump", "no repetitions of it, and 2 are saved"),
        ("wipe.mp4,0.5,1,squat\nwipe.mp4,1,1.5,jump", "several of a class: 'squat', 'jump'; say which one"),
        ('wipe.mp4,0.5,1,"squat\rjump"', r"control character U\+000D"),
        ("wipe.mp4,0.5,1.5,jump\nwipe.mp4,1.2,2,jump", "overlap"),
        ("wipe.mp4,0.5,0.5001,jump", "the repetition at 0.500 s lasts less than 0.002 s"),
    ],
)
def test_an_import_that_cannot_be_meant_changes_nothing(client: Client, labelled: str, rows: str, said: str) -> None:
    address = f"/api/videos/{labelled}/labels"
    before = client.get(address).json()
    text = f"file,start_s,end_s,class\n{rows}\n"
    refused = client.post("/api/labels/import", json={"name": "x.csv", "text": text})
    assert refused.status_code == 422, refused.text
    assert re.search(said, refused.json()["detail"]), refused.json()["detail"]
    assert client.get(address).json() == before


def test_of_several_actions_one_is_imported_when_it_is_named(client: Client, labelled: str) -> None:
    text = "file,start_s,end_s,class\nwipe.mp4,0.5,1,squat\nwipe.mp4,1,1.5,lunge\n"
    request = {"name": "x.csv", "text": text, "only": "lunge"}
    assert client.post("/api/labels/import", json=request).json()["saved"] == [labelled]
    saved = client.get(f"/api/videos/{labelled}/labels").json()
    assert (saved["spans"], saved["action"]) == ([{"start": 1.0, "end": 1.5}], "lunge")


def test_a_repetition_cut_at_the_end_of_the_video_is_told(client: Client, service: Service, labelled: str) -> None:
    service.database.describe_video(labelled, duration=1000.0, width=64, height=64, fps=30.0)
    text = "file,start_s,end_s\nwipe.mp4,1,2\nwipe.mp4,999,1000.3\n"
    answer = client.post("/api/labels/import", json={"name": "x.csv", "text": text}).json()
    assert answer["shortened"] == ["wipe.mp4"]
    assert client.get(f"/api/videos/{labelled}/labels").json()["spans"][-1] == {"start": 999.0, "end": 1000.0}
    address = f"/api/videos/{labelled}/labels"
    refused = client.put(address, json={"spans": [{"start": 1000.1, "end": 1000.3}]})
    assert refused.status_code == 422, "it would be cut to nothing"


def test_an_action_with_a_control_character_is_refused(client: Client, labelled: str) -> None:
    refused = client.put(f"/api/videos/{labelled}/labels", json={"spans": [], "action": "a\rb"})
    assert refused.status_code == 422 and "U+000D" in refused.text


def test_elan_exports_one_file_per_video(client: Client) -> None:
    with zipfile.ZipFile(io.BytesIO(client.get("/api/labels/export/elan").content)) as archive:
        assert archive.namelist() and all(name.endswith(".eaf") for name in archive.namelist())


def test_counts_without_times_are_taken_as_the_command_line_takes_them(client: Client, labelled: str) -> None:
    counts = {"name": "x.csv", "text": "file,count,class\nwipe.mp4,4,jump\n"}
    answer = client.post("/api/labels/import", json=counts).json()
    assert (answer["saved"], answer["spread"]) == ([labelled], ["wipe.mp4"])
    saved = client.get(f"/api/videos/{labelled}/labels").json()
    length = client.get(f"/api/videos/{labelled}").json()["duration"]
    assert saved["action"] == "jump"
    assert [span["end"] for span in saved["spans"]] == pytest.approx([length * n / 4 for n in (1, 2, 3, 4)])
    for cell in ("1.5", "-1", "many"):
        refused = client.post("/api/labels/import", json={**counts, "text": f"file,count\nwipe.mp4,{cell}\n"})
        assert refused.status_code == 422 and "line 2: count" in refused.json()["detail"]
    assert client.get(f"/api/videos/{labelled}/labels").json() == saved


def test_labels_that_were_saved_meanwhile_are_not_replaced_unseen(client: Client, labelled: str) -> None:
    address = f"/api/videos/{labelled}/labels"
    known = client.get(address).json()["revision"]
    spans = [{"start": 0.5, "end": 1.0}]
    assert client.put(address, json={"spans": spans, "revision": known}).json()["revision"] == known + 1
    for stale in (known, 0):
        refused = client.put(address, json={"spans": [], "revision": stale})
        assert refused.status_code == 409 and "saved meanwhile" in refused.json()["detail"]
    assert client.get(address).json()["spans"] == spans
    assert client.put(address, json={"spans": []}).json()["revision"] == known + 2, "who does not ask replaces"


def test_a_deleted_video_is_restored_with_its_labels(
    client: Client, service: Service, clips: dict[int, Path]
) -> None:
    video = client.send_video(clips[5], "back.mp4")
    address = f"/api/videos/{video['id']}"
    client.start_count(video["id"], wait=30)
    spans = [{"start": 0.5, "end": 1.5}]
    client.put(f"{address}/labels", json={"spans": spans, "action": "squat"})
    assert client.post(f"/api/trash/{video['id']}/restore").status_code == 404, "it was not deleted"
    client.delete(address)
    assert client.get(address).status_code == 404
    (deleted,) = [one for one in client.get("/api/trash").json() if one["id"] == video["id"]]
    assert (deleted["name"], deleted["labelled_count"]) == ("back.mp4", 1)
    assert client.post(f"/api/trash/{video['id']}/restore").status_code == 201
    assert client.get(f"{address}/file").content == clips[5].read_bytes()
    assert client.get(f"{address}/labels").json()["spans"] == spans
    assert f"{video['id']}.mp4,0.500,1.500,squat" in (service.settings.videos / "labels.csv").read_text()
    assert video["id"] not in {one["id"] for one in client.get("/api/trash").json()}
    assert client.start_count(video["id"], wait=30)["count"] == 5
    client.delete(address)
    (entry,) = service.settings.trash.glob(f"*-{video['id']}")
    (entry / "record.json").write_text('{"video": {}}')
    assert client.post(f"/api/trash/{video['id']}/restore").status_code == 404, "a record that cannot be read"
