"""Many videos: one row each, errors too; killed and started again, none is lost and none counted twice."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count as counting_up
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command import finish, run, spawn
from movies import bouncing, levels, write_movie
from warm_processes import warm_processes

import escounts
from escounts.batching import batch as batch_module
from escounts.batching import read_ahead
from escounts.batching.rows import ResultFolder
from escounts.batching.tasks import CountingProcess, Settings, Task, find_tasks, same_on_every_machine
from escounts.counter import Counter
from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import EscountsError, VideoError
from escounts.models.checkpoint import save_network
from escounts.nn.device import PRECISION_VARIABLE
from escounts.nn.network import LITE_TINY, Network
from escounts.system import processes as children
from escounts.system import task_processes as processes
from escounts.video import nvdec
from escounts.video.files import Video

SPECTRAL = Settings(model="spectral", device="cpu", limit=60.0)


@pytest.fixture(autouse=True)
def warm() -> Iterator[None]:
    with warm_processes():
        yield


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Three short videos and one that is damaged."""
    folder = tmp_path / "videos"
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        write_movie(folder / name / "v.mp4", levels(40, step=40))
    (folder / "damaged.mp4").write_bytes(b"not a video")
    return folder


def row(id_: str, status: str = "counted") -> dict[str, str]:
    return {"id": id_, "video": f"{id_}.mp4", "status": status}


def test_rows_are_gathered_once_whoever_is_killed_when(tmp_path: Path) -> None:
    folder = ResultFolder(str(tmp_path / "out"))
    folder.write(row("x"))
    folder.write(row("y", "error"))
    folder.gather()
    assert not list((tmp_path / "out" / "rows").iterdir())
    folder.write(row("x"))  # gathered before, but the driver died before it removed the small file
    folder.write(row("z"))
    assert ResultFolder(str(tmp_path / "out")).finished() == {"x": "counted", "y": "error", "z": "counted"}
    assert folder.table()["id"].to_pylist() == ["x", "y", "z"]
    folder.forget_errors(["y"])
    assert folder.table()["id"].to_pylist() == ["x", "z"]


def test_a_row_does_not_depend_on_the_units_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRECISION_VARIABLE, raising=False)
    counter = Counter(MultiRateModel("tiny", Network(LITE_TINY)))
    assert same_on_every_machine(counter).model.precision == "float32"  # type: ignore[attr-defined]
    monkeypatch.setenv(PRECISION_VARIABLE, "bf16")
    counter = Counter(MultiRateModel("tiny", Network(LITE_TINY)))
    assert same_on_every_machine(counter).model.precision == "auto"  # type: ignore[attr-defined]


def test_a_folder_without_rows_is_an_empty_table(tmp_path: Path) -> None:
    assert len(ResultFolder(str(tmp_path)).table()) == 0


def test_a_ray_cluster_that_is_not_there_is_said_in_one_line(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")

    def away(**options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\n")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", away)
    with pytest.raises(EscountsError, match=r"Ray cluster 'auto' cannot be used: Could not find.*`local` starts one"):
        escounts.batch([videos], out=tmp_path / "out", settings=SPECTRAL, ray="auto")


def test_a_row_that_was_half_written_is_not_a_row(tmp_path: Path) -> None:
    folder = ResultFolder(str(tmp_path))
    (tmp_path / "rows" / ".x.json.0123abcd.partial").write_text('{"id": "x", "sta')
    assert folder.finished() == {}
    folder.sweep()
    assert list((tmp_path / "rows").iterdir()) == []
    folder.write(row("whole"))
    for name, text in (
        ("torn", '{"id": "torn", "sta'),
        ("notes", '{"mine": 1}'),
        ("list", "[1]"),
        ("deep", "[" * 9999),
    ):
        (tmp_path / "rows" / f"{name}.json").write_text(text)
        assert not folder.has(name)
    assert folder.finished() == {"whole": "counted"} and folder.table()["id"].to_pylist() == ["whole"]
    assert (tmp_path / "rows" / "notes.json").read_text() == '{"mine": 1}'


def test_two_runs_gather_on_one_folder(tmp_path: Path) -> None:
    """Each removes the small files that it has gathered; one found those of the other gone, and ended."""
    both = ResultFolder(str(tmp_path)), ResultFolder(str(tmp_path))

    def work(folder: ResultFolder, first: int) -> None:
        for number in range(first, first + 120):
            folder.write({"id": f"{number:024x}", "video": f"{number}.mp4", "status": "counted"})
            if number % 4 == 0:
                folder.gather()

    with ThreadPoolExecutor(2) as two:
        for done in [two.submit(work, folder, 60 * index) for index, folder in enumerate(both)]:
            done.result()
    assert both[0].table()["id"].to_pylist() and set(both[1].table()["id"].to_pylist()) == {
        f"{number:024x}" for number in range(180)
    }


def test_errors_are_forgotten_beside_a_second_run(tmp_path: Path) -> None:
    """What it has counted of them meanwhile stays, and a file that it took away while this one reads is no error."""
    mine, other = ResultFolder(str(tmp_path)), ResultFolder(str(tmp_path))
    for name in ("a", "b"):
        mine.write(row(name, "error"))
    mine.write(row("c"))
    mine.gather()
    errors = [id_ for id_, status in mine.finished().items() if status == "error"]
    other.forget_errors(errors)
    other.write(row("a"))
    mine.forget_errors(errors)
    assert mine.finished() == {"a": "counted", "c": "counted"}
    mine.write(row("d", "error"))
    mine.gather()
    cat = mine._storage.cat_file
    taken: list[str] = []

    class TakenMeanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(other._storage, name)

        def cat_file(self, name: str) -> bytes:
            if not taken:
                taken.append(name)
                other.forget_errors(["d"])
                other._storage.mv(name, f"{tmp_path}/part-{'0' * 16}.parquet")
            return bytes(cat(name))

    mine._storage = TakenMeanwhile()
    assert mine.finished() == {"a": "counted", "c": "counted"} and taken


def test_of_a_video_that_two_runs_have_tried_the_count_goes_before_the_error(tmp_path: Path) -> None:
    """Whichever file comes first: they are called by chance."""
    folder = ResultFolder(str(tmp_path))
    for name, status in (("0", "error"), ("1", "counted"), ("2", "error")):
        folder._write_part([row("a", status)])
        (new,) = tmp_path.glob("part-*.parquet")
        new.rename(tmp_path / f"part-{name * 16}.parquet.x")
    for path in tmp_path.glob("*.x"):
        path.rename(path.with_suffix(""))
    assert folder.finished() == {"a": "counted"} and folder.table()["status"].to_pylist() == ["counted"]


def test_a_row_that_is_gathered_while_it_is_looked_up_is_one_that_lies_no_longer_about(tmp_path: Path) -> None:
    """An actor looks while the driver gathers; Ray retries no actor's exception."""
    folder = ResultFolder(str(tmp_path))
    folder.write(row("a"))
    storage = folder._storage

    class GatheredMeanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(storage, name)

        def exists(self, name: str) -> bool:
            there = bool(storage.exists(name))
            ResultFolder(str(tmp_path)).gather()
            return there

    folder._storage = GatheredMeanwhile()
    assert not folder.has("a") and folder.finished() == {"a": "counted"}


def test_parquet_files_of_others_are_left_alone_and_a_damaged_one_is_one_line(tmp_path: Path) -> None:
    folder = ResultFolder(str(tmp_path))
    folder.write(row("a", "error"))
    folder.gather()
    (part,) = tmp_path.glob("part-*.parquet")
    (tmp_path / "part-00000.parquet").write_bytes(b"of Spark")
    folder.forget_errors(["a"])
    assert folder.finished() == {} and not part.exists()
    assert (tmp_path / "part-00000.parquet").read_bytes() == b"of Spark"
    part.write_bytes(b"PAR1 torn")
    with pytest.raises(EscountsError, match=r"part-\w+\.parquet cannot be read .* move it away"):
        folder.finished()


def test_a_file_of_another_version_is_read_and_one_that_makes_no_sense_is_one_line(tmp_path: Path) -> None:
    """A column more or less than today's was a traceback, and so was every folder of the version before."""
    folder = ResultFolder(str(tmp_path))
    folder.write({**row("a"), "count": 3})
    folder.gather()
    (part,) = tmp_path.glob("part-*.parquet")
    table = pq.read_table(part)
    others = table.drop_columns(["unit"]).append_column("colour", pa.array(["blue"]))
    pq.write_table(others.set_column(3, "count", pa.array([3], pa.int32())), part)
    folder.write(row("b"))
    assert folder.finished() == {"a": "counted", "b": "counted"}
    assert folder.table().select(["id", "count", "unit"]).to_pylist()[0] == {"id": "a", "count": 3, "unit": None}
    for strange in (
        table.drop_columns(["status"]),
        table.set_column(2, "status", pa.array([None], pa.string())),
        table.set_column(3, "count", pa.array(["many"])),
    ):
        pq.write_table(strange, part)
        with pytest.raises(EscountsError, match=r"part-\w+\.parquet cannot be read .* move it away"):
            folder.table()


@pytest.mark.parametrize("values", [{"count": "many"}, {"starts": "abc"}, {"confidence": {}}])
def test_a_row_that_fits_no_column_is_not_a_row(tmp_path: Path, values: dict[str, Any]) -> None:
    folder = ResultFolder(str(tmp_path))
    folder.write({**row("a"), **values})
    folder.write(row("b"))
    assert folder.finished() == {"b": "counted"} and folder.table()["id"].to_pylist() == ["b"]


def test_an_id_changes_with_the_file_and_the_settings_only(videos: Path) -> None:
    def ids(settings: Settings) -> list[str]:
        return [task.id for task in find_tasks([videos], settings)]

    before = ids(SPECTRAL)
    assert len(set(before)) == 4 and before == ids(SPECTRAL)
    assert before == ids(Settings(model="spectral", device="auto", limit=5))
    assert not set(before) & set(ids(Settings(model="lite")))
    os.utime(videos / "damaged.mp4", (1, 1))
    assert sum(a != b for a, b in zip(before, ids(SPECTRAL), strict=True)) == 1


def test_an_id_changes_with_the_video_that_an_exemplar_is_of(videos: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark.mp4"
    settings = Settings(model="spectral", exemplars=(f"{mark}@0-1",))

    def ids() -> list[str]:
        return [task.id for task in find_tasks([videos], settings)]

    mark.write_bytes(b"one")
    before = ids()
    assert before == ids()
    mark.write_bytes(b"another")
    assert not set(before) & set(ids())


def test_a_video_that_is_given_twice_is_one_task(videos: Path, tmp_path: Path) -> None:
    """Beside its folder, and by a link: it was "no videos there"."""
    (tmp_path / "link.mp4").symlink_to(videos / "a" / "v.mp4")
    given = [tmp_path / "link.mp4", videos, videos / "a" / "v.mp4", videos]
    assert {task.id for task in find_tasks(given, SPECTRAL)} == {task.id for task in find_tasks([videos], SPECTRAL)}


def test_rows_that_somebody_removed_meanwhile_are_missed(videos: Path, tmp_path: Path) -> None:
    """It ended well, and its table had the rows that came after."""
    out = tmp_path / "out"

    def removed(done: int, whole: int, video: str) -> None:
        if done == 2:  # a row that is just being written may be gone before it is removed
            shutil.rmtree(out, ignore_errors=True)

    with pytest.raises(EscountsError, match=r"[1-4] of 4 rows are not there.*run it again"):
        escounts.batch([videos], out=out, settings=SPECTRAL, jobs=1, report=removed)
    assert len(escounts.batch([videos], out=out, settings=SPECTRAL, jobs=1)) == 4


def test_one_row_per_video_and_the_second_run_counts_nothing(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    table = escounts.batch([videos], out=out, settings=SPECTRAL, jobs=1)
    rows = {Path(r["video"]).relative_to(videos).as_posix(): r for r in table.to_pylist()}
    assert {name: r["status"] for name, r in rows.items()} == {
        "a/v.mp4": "counted",
        "b/v.mp4": "counted",
        "c/v.mp4": "counted",
        "damaged.mp4": "error",
    }
    expected = escounts.count(videos / "a" / "v.mp4", model="spectral")
    assert rows["a/v.mp4"]["count"] == expected.count and len(rows["a/v.mp4"]["ends"]) == expected.count
    assert "damaged.mp4" in rows["damaged.mp4"]["error"]

    def refuse(self: CountingProcess, task: object) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr(CountingProcess, "ask", refuse)
    assert escounts.batch([videos], out=out, settings=SPECTRAL).equals(table)
    with pytest.raises(AssertionError, match="counted again"):
        escounts.batch([videos], out=out, settings=SPECTRAL, retry_errors=True)


def test_rows_of_other_settings_and_of_videos_before_they_changed_are_not_in_the_table(tmp_path: Path) -> None:
    video, out = tmp_path / "v.mp4", tmp_path / "out"
    video.write_bytes(b"not a video")
    assert escounts.batch([video], out=out, settings=SPECTRAL, jobs=1)["status"].to_pylist() == ["error"]
    write_movie(video, levels(40, step=40))
    table = escounts.batch([video], out=out, settings=SPECTRAL, jobs=1, retry_errors=True)
    assert table["status"].to_pylist() == ["counted"]
    assert sorted(ResultFolder(str(out)).finished().values()) == ["counted", "error"], "the older row is kept"


def test_other_weights_under_the_same_name_are_other_settings(tmp_path: Path) -> None:
    video, checkpoint = tmp_path / "v.mp4", tmp_path / "mine.safetensors"
    write_movie(video, levels(8))
    ids = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        save_network(checkpoint, Network(LITE_TINY))
        ids += [task.id for task in find_tasks([video], Settings(model=str(checkpoint)))]
    assert ids[0] == ids[1] != ids[2]


def test_a_process_that_was_stopped_is_not_started_again(tmp_path: Path) -> None:
    write_movie(tmp_path / "v.mp4", levels(8))
    (task,) = find_tasks([tmp_path / "v.mp4"], SPECTRAL)
    process = CountingProcess(SPECTRAL)
    process.stop()
    assert "stopped" in process.ask(task)["error"]
    assert process._process is None


def test_a_video_that_takes_too_long_and_a_killed_process_cost_one_row(tmp_path: Path) -> None:
    write_movie(tmp_path / "good.mp4", levels(40, step=40))
    (good,) = find_tasks([tmp_path / "good.mp4"], SPECTRAL)
    with CountingProcess(SPECTRAL) as process:
        os.kill(process._start().pid, signal.SIGKILL)
        assert process.ask(good)["status"] == "counted"  # it had not died of this video
        process._limit = 1e-4
        late = process.ask(good)
        assert late["status"] == "error" and "good.mp4: not done within 0.0001 s" in late["error"]
        process._limit = None
        assert process.ask(good)["status"] == "counted"


def test_a_process_that_is_killed_while_it_loads_the_model_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_movie(tmp_path / "good.mp4", levels(40, step=40))
    (good,) = find_tasks([tmp_path / "good.mp4"], SPECTRAL)
    starts: list[int] = []
    begun = CountingProcess._begun

    def killed_at_first(self: CountingProcess) -> children.Child:
        starts.append(1)
        process = begun(self)
        if len(starts) == 1:
            process.kill()
        return process

    monkeypatch.setattr(CountingProcess, "_begun", killed_at_first)
    with CountingProcess(SPECTRAL) as process:
        assert process.ask(good)["status"] == "counted" and len(starts) == 2


def test_where_no_process_can_be_started_it_is_said_in_one_line(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(environment: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(children, "spawned", start)
    with pytest.raises(EscountsError, match="no process could be started: Resource temporarily unavailable"):
        escounts.batch([videos / "a"], out=tmp_path / "out", settings=SPECTRAL, jobs=1)


def test_a_script_needs_no_guard_around_what_it_does(videos: Path, tmp_path: Path) -> None:
    """Its processes do not run it again."""
    script = tmp_path / "mine.py"
    counting = f"escounts.batch([{str(videos / 'a')!r}], settings=Settings(model='spectral'))"
    script.write_text(f"import escounts\nfrom escounts.batching.tasks import Settings\nprint(len({counting}))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_links_that_lead_nowhere_pipes_and_odd_names_cost_one_row_each(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    write_movie(place / "good.mp4", levels(40, step=40))
    odd = place / os.fsdecode(b"caf\xe9.mp4")
    odd.write_bytes((place / "good.mp4").read_bytes())
    (place / "loop.mp4").symlink_to(place / "loop.mp4")
    (place / "gone.mp4").symlink_to(place / "nowhere.mp4")
    os.mkfifo(place / "pipe.mp4")
    table = escounts.batch([place], out=tmp_path / "out", settings=SPECTRAL, jobs=1)
    rows = {Path(row["video"]).name: row for row in table.to_pylist()}
    assert {name: row["status"] for name, row in rows.items()} == {
        "good.mp4": "counted",
        "caf\ufffd.mp4": "counted",
        "loop.mp4": "error",
        "nowhere.mp4": "error",
    }
    assert "symbolic links" in rows["loop.mp4"]["error"] and "no such file" in rows["nowhere.mp4"]["error"]
    assert escounts.batch([place], out=tmp_path / "out", settings=SPECTRAL, jobs=1).equals(table), "nothing again"


def _stumbling(settings: Settings) -> Callable[[Task], dict[str, object]]:
    def work(task: Task) -> dict[str, object]:
        if "bad" in task.video:
            raise IndexError("tuple index out of range")
        return {"status": "counted", "count": os.getpid()}

    return work


def test_whatever_a_video_raises_is_one_row_that_says_whom_to_tell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("escounts.batching.tasks._counter", _stumbling)
    with CountingProcess(SPECTRAL) as process:
        rows = [process.ask(Task(name, f"{name}.mp4")) for name in ("a", "bad", "c")]
    assert [row["status"] for row in rows] == ["counted", "error", "counted"]
    assert rows[1]["error"].startswith("bad.mp4: IndexError") and "escounts doctor" in rows[1]["error"]
    assert rows[0]["count"] == rows[2]["count"], "the process has lived on"
    assert "Traceback" not in capfd.readouterr().err


def test_nothing_to_count_and_unknown_models_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="no videos there"):
        escounts.batch([tmp_path], out=tmp_path / "out")
    write_movie(tmp_path / "v.mp4", levels(8))
    with pytest.raises(EscountsError, match="unknown model 'litte'"):
        escounts.batch([tmp_path / "v.mp4"], out=tmp_path / "out", settings=Settings(model="litte"))


def test_addresses_go_through_fsspec(videos: Path, tmp_path: Path) -> None:
    out = f"file://{tmp_path}/out"
    table = escounts.batch([f"file://{videos}/a"], out=out, settings=SPECTRAL, jobs=1)
    (only,) = table.to_pylist()
    assert only["video"] == f"file://{videos}/a/v.mp4" and only["status"] == "counted"


def test_without_a_place_for_results_the_table_is_all_there_is(videos: Path) -> None:
    table = escounts.batch([videos / "a"], settings=SPECTRAL)
    assert table["status"].to_pylist() == ["counted"]


@pytest.mark.parametrize(("package", "extra", "more"), [("pyarrow", "batch", ()), ("ray", "ray", ("--ray", "local"))])
def test_a_missing_package_is_said_in_one_line_with_the_command_that_installs_it(
    package: str, extra: str, more: tuple[str, ...], videos: Path, tmp_path: Path
) -> None:
    hidden = (
        "import importlib.util as u, sys\n"
        f"found = u.find_spec\nu.find_spec = lambda name, *a: None if name == {package!r} else found(name, *a)\n"
        f"sys.modules[{package!r}] = None"
    )
    done = finish(spawn("batch", videos, "--out", tmp_path / "out", "--model", "spectral", *more, before=hidden))
    assert done.code == 2 and len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("escounts: ") and f"[{extra}]'" in done.err and "pip install" in done.err
    helped = finish(spawn("batch", "--help", before=hidden))
    assert helped.code == 0 and "one row per video" in helped.out
    assert not (tmp_path / "out").exists()


def _written(out: Path) -> Iterator[str]:
    yield from (path.stem for path in (out / "rows").glob("*.json"))


def test_a_killed_driver_loses_no_row_and_goes_on(tmp_path: Path) -> None:
    folder, out = tmp_path / "videos", tmp_path / "out"
    folder.mkdir()
    for number in range(6):
        write_movie(folder / f"{number}.mp4", levels(200, step=40))
    command = ("batch", folder, "--out", out, "--model", "spectral", "--jobs", "1")
    driver = spawn(*command)
    deadline = time.monotonic() + 120
    while not (out / "rows").is_dir() or len(list(_written(out))) < 2:
        assert time.monotonic() < deadline and driver.poll() is None
        time.sleep(0.02)
    driver.kill()
    driver.communicate()
    kept = {id_: (out / "rows" / f"{id_}.json").read_bytes() for id_ in _written(out)}
    assert 2 <= len(kept) <= 6
    again = spawn(*command)
    printed, errors = again.communicate(timeout=180)
    assert again.returncode == 0, errors
    assert "6 videos, 0 of them errors" in printed
    rows = {r["id"]: r for r in ResultFolder(str(out)).table().to_pylist()}
    assert len(rows) == 6
    for id_, data in kept.items():
        assert rows[id_]["spent"] == json.loads(data)["spent"]  # the row of the first run, not another one


@pytest.mark.release
@pytest.mark.skipif(sys.platform == "win32", reason="Ray's local cluster is tested on Linux")
def test_on_ray_the_rows_are_those_of_this_machine(videos: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    here = escounts.batch([videos], out=tmp_path / "here", settings=SPECTRAL, jobs=1).drop_columns(["spent"])
    ray.init(num_cpus=2, log_to_driver=False)
    try:
        there = escounts.batch([videos], out=tmp_path / "there", settings=SPECTRAL, jobs=2, ray="local")
    finally:
        ray.shutdown()
    assert there.drop_columns(["spent"]).equals(here)


def test_videos_read_ahead_are_counted_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readers before one process with the model: equal rows, one damaged video, nothing left in the folder."""
    (tmp_path / "videos").mkdir()
    for name, count in (("a", 4), ("b", 6)):
        write_movie(tmp_path / "videos" / f"{name}.mp4", bouncing(count, 3.0, size=(64, 64)))
    (tmp_path / "videos" / "c.mp4").write_bytes(b"this is not a video")
    places: list[Path] = []
    own = batch_module.images_folder  # type: ignore[attr-defined]

    @contextmanager
    def noted() -> Iterator[str]:
        with own() as folder:
            places.append(Path(folder))
            yield folder

    monkeypatch.setattr(batch_module, "images_folder", noted)
    settings = Settings(model="lite", device="cpu")
    ahead = escounts.batch([tmp_path / "videos"], out=tmp_path / "ahead", settings=settings, readers=2)
    alone = escounts.batch([tmp_path / "videos"], out=tmp_path / "alone", settings=settings, jobs=1)
    told = ["id", "status", "count", "raw_count", "confidence", "starts", "duration"]
    assert ahead.select(told).to_pylist() == alone.select(told).to_pylist()
    assert ahead["status"].to_pylist() == ["counted", "counted", "error"] and "c.mp4" in ahead["error"][2].as_py()
    assert places and not places[0].exists()


def test_readers_with_nvdec_read_what_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no NVDEC they fall back on the processor; that they are asked for at all is then an error."""
    (tmp_path / "videos").mkdir()
    for name, count in (("a", 4), ("b", 6)):
        write_movie(tmp_path / "videos" / f"{name}.mp4", bouncing(count, 3.0, size=(64, 64)))
    settings = Settings(model="lite", device="cpu")
    monkeypatch.setattr(nvdec, "missing", lambda: "no driver")
    with pytest.raises(EscountsError, match="NVDEC cannot be used: no driver; or leave nvdec out"):
        escounts.batch([tmp_path / "videos"], out=tmp_path / "out", settings=settings, nvdec=1)
    with pytest.raises(ValueError, match="jobs=2"):
        escounts.batch([tmp_path / "videos"], out=tmp_path / "out", settings=settings, nvdec=1, jobs=2)
    monkeypatch.setattr(nvdec, "missing", str)
    mixed = escounts.batch([tmp_path / "videos"], out=tmp_path / "out", settings=settings, readers=1, nvdec=1)
    alone = escounts.batch([tmp_path / "videos"], out=tmp_path / "alone", settings=settings, jobs=1)
    assert mixed["status"].to_pylist() == ["counted", "counted"] and mixed["count"].equals(alone["count"])


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [({"nvdec": 3}, (5, 3)), ({"nvdec": 9}, (0, 8)), ({"nvdec": 3, "readers": 1}, (1, 3)), ({}, (7, 0))],
)
def test_readers_that_use_the_processor_are_as_many_as_cores_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, int], wanted: tuple[int, int]
) -> None:
    """On eight cores, with eight videos and a GPU."""
    found: list[tuple[int, int]] = []

    def workers(settings: Settings, readers: int, folder: Path, *, engine_readers: int, **_: object) -> list[Any]:
        found.append((readers, engine_readers))
        return []

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(batch_module, "read_ahead_workers", workers)
    tasks = [Task(str(index), f"{index}.mp4") for index in range(8)]
    settings, folder = Settings(model="lite", device="cuda"), ResultFolder(str(tmp_path))
    rows = batch_module.local_rows(tasks, settings, folder, None, asked.get("readers"), asked.get("nvdec", 0))
    assert list(rows) == [] and found == [wanted]


@pytest.mark.parametrize("more", [("--jobs", 2), ("--ray", "local")])
def test_nvdec_is_for_readers_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...]
) -> None:
    told = run(capsys, monkeypatch, "batch", tmp_path, "--out", tmp_path / "out", "--nvdec", 2, *more)
    assert told.code == 2 and "--nvdec stands in the place of --jobs" in told.err


def test_images_of_a_killed_run_do_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run removes them; not those of a run that is under way, and nothing that a link leads to."""
    monkeypatch.setattr(read_ahead, "IN_MEMORY", tmp_path)
    monkeypatch.setattr(read_ahead, "LEAST_ROOM", 0)
    killed = tmp_path / "escounts-read-killed"
    killed.mkdir()
    (killed / "x.rgb").write_bytes(b"0" * 1000)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    (tmp_path / "escounts-read-link").symlink_to(mine)
    with read_ahead.images_folder() as first:
        (Path(first) / "y.rgb").write_bytes(b"0")
        with read_ahead.images_folder() as second:
            assert not killed.exists() and (Path(first) / "y.rgb").exists() and first != second
    assert sorted(os.listdir(tmp_path)) == ["escounts-read-link", "mine"] and os.listdir(mine) == ["notes.txt"]


READING = (16, 10.0)
IMAGE = 16 * 16 * 3


def test_a_header_that_says_too_little_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(Video):
        def __init__(self, path: str, **options: Any) -> None:
            super().__init__(path, **options)
            self.info = replace(self.info, duration=0.1)

    write_movie(tmp_path / "v.mp4", levels(40))
    (task,) = find_tasks([tmp_path / "v.mp4"], SPECTRAL)
    images = tmp_path / "images"
    images.mkdir()
    monkeypatch.setattr(read_ahead, "Video", Short)
    assert read_ahead.reader(images, 2 * IMAGE, SPECTRAL, READING)(task) is None and not list(images.iterdir())
    read = read_ahead.reader(images, 99 * IMAGE, SPECTRAL, READING)(task)
    assert read is not None and read["images"] == str(images / f"{task.id}.rgb")


def test_where_there_is_no_room_for_images_the_video_is_left_to_the_process_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, images: object) -> int:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    write_movie(tmp_path / "v.mp4", levels(40))
    (task,) = find_tasks([tmp_path / "v.mp4"], SPECTRAL)
    images = tmp_path / "images"
    images.mkdir()
    monkeypatch.setattr(read_ahead, "write_images", full)
    assert read_ahead.reader(images, 99 * IMAGE, SPECTRAL, READING)(task) is None and not list(images.iterdir())


@pytest.mark.parametrize("dies", ["reading", "counting"])
def test_a_process_that_is_given_up_leaves_no_images(dies: str, tmp_path: Path) -> None:
    class Dying:
        def __init__(self, name: str) -> None:
            self.name = name

        def ask(self, task: object) -> object:
            (tmp_path / "x.rgb").write_bytes(b"images")
            if self.name == dies:
                raise processes.TaskError("not done within 1 s")
            return task

    worker = read_ahead.ReadAheadWorker(
        read_ahead.Shared([Dying("reading")]),  # type: ignore[list-item]
        read_ahead.Shared([Dying("counting")]),  # type: ignore[list-item]
        tmp_path,
    )
    assert worker.ask(Task("x", "x.mp4"))["status"] == "error"
    assert not list(tmp_path.iterdir())


def test_a_model_that_reads_in_its_own_way_is_counted_without_readers(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    write_movie(tmp_path / "videos" / "a.mp4", levels(40, step=40))
    table = escounts.batch([tmp_path / "videos"], out=tmp_path / "out", settings=SPECTRAL, readers=2)
    assert table["status"].to_pylist() == ["counted"]


def test_a_reader_goes_on_while_its_video_waits_to_be_counted(tmp_path: Path) -> None:
    """One reader, two workers, a counting process that is busy: the second video is read all the same."""
    read: list[str] = []
    both_read, busy = threading.Event(), threading.Event()

    class Reader:
        def ask(self, asked: Task) -> str:
            read.append(asked.video)
            if len(read) == 2:
                both_read.set()
            return asked.video

        def stop(self) -> None:
            """It has nothing to end."""

    class Counting(Reader):
        def ask(self, asked: object) -> dict[str, str]:  # type: ignore[override]
            assert not busy.is_set(), "two threads at one process"
            busy.set()
            assert both_read.wait(20)
            busy.clear()
            return {"status": "counted"}

    readers, counters = read_ahead.Shared([Reader()]), read_ahead.Shared([Counting()])
    workers = [
        read_ahead.ReadAheadWorker(readers, counters, tmp_path)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    rows = [row for _, row in processes.answers([Task("a", "a.mp4"), Task("b", "b.mp4")], workers)]
    assert [row["status"] for row in rows] == ["counted", "counted"]  # type: ignore[index]


def test_a_process_may_begin_before_its_first_task() -> None:
    with processes.TaskProcess(prepare_counting_calls) as process:
        beginning = threading.Thread(target=process.begin)
        beginning.start()
        assert process.ask(None) == 1  # the same process, whoever came first
        beginning.join()
        assert process.ask(None) == 2


def test_a_process_may_be_stopped_while_it_begins(tmp_path: Path) -> None:
    """Every video of a batch may be unreadable before the model is loaded: no thread ends in a traceback."""
    failed: list[BaseException] = []

    def begin() -> None:
        try:
            process.begin()
        except BaseException as error:
            failed.append(error)

    process = processes.TaskProcess(prepare_slowly, tmp_path / "begun")
    beginning = threading.Thread(target=begin)
    beginning.start()
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.stop()
    beginning.join(20)
    assert (tmp_path / "begun").exists() and not beginning.is_alive() and not failed


def prepare_slowly(begun: Path) -> Callable[[None], None]:
    """In a process: not ready before it is stopped."""
    begun.touch()
    time.sleep(60)
    return lambda _: None


def prepare_counting_calls() -> Callable[[None], int]:
    """In a process: how often it was asked."""
    calls = counting_up(1)
    return lambda _: next(calls)


@pytest.mark.parametrize(("address", "driver"), [("s3://bucket/videos", "s3fs"), ("gs://bucket/videos", "gcsfs")])
@pytest.mark.parametrize("as_output", [False, True])
def test_a_missing_driver_of_object_storage_says_what_to_install(
    address: str,
    driver: str,
    as_output: bool,
    videos: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, driver, None)
    given = (videos, "--out", address) if as_output else (address,)
    done = run(capsys, monkeypatch, "batch", *given, "--model", "spectral", "--device", "cpu")
    assert done.code == 2 and done.err == f"escounts: {address}: this needs {driver}: pip install {driver}\n"


def test_without_out_the_command_writes_to_results(
    videos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(capsys, monkeypatch, "batch", videos / "a", "--model", "spectral", "--device", "cpu", "--jobs", "1")
    assert done.code == 0 and done.out.startswith("results: 1 videos, 0 of them errors; "), done.err
    assert len(list((tmp_path / "results").glob("part-*.parquet"))) == 1
    assert "[default: results]" in " ".join(run(capsys, monkeypatch, "batch", "--help").out.split())
