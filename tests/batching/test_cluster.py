"""Actors that fit the machines of a cluster: Ray waits for ever for one that does not. Needs no Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from movies import levels, write_movie

import escounts
from escounts.batching.batch import choose_actors, machines_of, ray_rows
from escounts.batching.rows import ResultFolder
from escounts.batching.tasks import Settings, Task
from escounts.errors import EscountsError


def fitting(*cores: int, videos: int = 100, jobs: int | None = None) -> tuple[int, int]:
    return choose_actors([(n, 0) for n in cores], videos=videos, jobs=jobs, on_gpu=False, cluster="auto")


def test_no_actor_asks_for_more_cores_than_a_machine_has() -> None:
    assert fitting(1, 1, videos=3) == (2, 1), "two machines of one core: not one actor of two"
    assert fitting(0, 1, 1, videos=1) == (1, 1)
    assert fitting(3, 3) == (2, 3)
    assert fitting(1, 8) == (4, 2)


def test_one_actor_for_two_cores_and_more_of_them_where_videos_are_few() -> None:
    assert fitting(17) == (8, 2), "not seventeen models for the seventeenth core"
    assert fitting(16) == (8, 2) and fitting(8, 8) == (8, 2)
    assert fitting(16, videos=3) == (3, 4)
    assert fitting(2, videos=1) == (1, 2)


def test_as_many_as_asked_for_where_they_fit_and_no_more_than_fit() -> None:
    assert fitting(8, 8, jobs=4) == (4, 4)
    assert fitting(3, 3, jobs=3) == (3, 1)
    assert fitting(1, 1, jobs=8) == (2, 1)


def test_on_gpus_one_actor_each_on_the_machine_that_has_it() -> None:
    machines = [(16, 0), (8, 8)]
    assert choose_actors(machines, videos=99, jobs=None, on_gpu=True, cluster="auto") == (8, 1)
    with pytest.raises(EscountsError, match=r"no machine with a core and a GPU .*16 cores and 0 GPUs"):
        choose_actors(machines[:1], videos=99, jobs=None, on_gpu=True, cluster="auto")


@pytest.mark.parametrize("cores", [(), (0,)])
def test_where_nothing_fits_it_is_said_in_one_line(cores: tuple[int, ...]) -> None:
    with pytest.raises(
        EscountsError, match=r"^the Ray cluster 'auto' has no machine with a core .*`ray start"
    ) as said:
        fitting(*cores)
    assert "\n" not in str(said.value)


def node(*, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


def test_machines_that_are_gone_lend_nothing() -> None:
    assert machines_of([node(alive=False, CPU=64.0), node(CPU=1.0, memory=2e9), node(CPU=8.0, GPU=2.0), node()]) == [
        (1, 0),
        (8, 2),
        (0, 0),
    ]


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two workers of one core, and what they are asked for; actors run here, with the folder `elsewhere`."""
    asked: dict[str, Any] = {}

    class Dataset:
        def __init__(self, items: list[dict[str, Any]]) -> None:
            self.items = items

        def map(self, actor: type, **options: Any) -> Dataset:
            asked.update(options, actor=actor)
            return self

        def iter_rows(self) -> Iterator[dict[str, Any]]:
            if "elsewhere" in asked:
                settings, _, threads = asked["fn_constructor_args"]
                yield from map(asked["actor"](settings, asked["elsewhere"], threads), self.items)

    data, ray = ModuleType("ray.data"), ModuleType("ray")
    vars(data).update(
        DataContext=SimpleNamespace(get_current=lambda: SimpleNamespace(enable_progress_bars=True)),
        from_items=lambda items, override_num_blocks: Dataset(items),
        ActorPoolStrategy=lambda **sizes: sizes,
    )
    vars(ray).update(
        data=data,
        __spec__=ModuleSpec("ray", None),
        is_initialized=lambda: True,
        cluster_resources=lambda: {"CPU": 2.0},
        nodes=lambda: [node(), node(CPU=1.0), node(CPU=1.0)],
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    return asked


def test_ray_is_asked_for_actors_that_fit(fake_ray: dict[str, Any], tmp_path: Path) -> None:
    """Two workers of one core and three videos, which had waited for ever for an actor of two cores."""
    tasks = [Task(str(number), f"{number}.mp4") for number in range(3)]
    folder = ResultFolder(str(tmp_path / "out"))
    assert list(ray_rows(tasks, Settings(device="cpu"), folder, jobs=None, address="auto")) == []
    assert fake_ray["num_cpus"] == 1 and fake_ray["compute"] == {"min_size": 1, "max_size": 2}
    assert fake_ray["fn_constructor_args"][2] == 1


def test_a_folder_that_other_machines_do_not_have_gets_their_rows(
    fake_ray: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's own default, `results`, is one."""
    monkeypatch.chdir(tmp_path)
    write_movie(tmp_path / "a.mp4", levels(40, step=40))
    (tmp_path / "damaged.mp4").write_bytes(b"not a video")
    fake_ray["elsewhere"] = str(tmp_path / "not" / "here")
    table = escounts.batch([tmp_path], out="results", settings=Settings(model="spectral", device="cpu"), ray="auto")
    assert table["status"].to_pylist() == ["counted", "error"] and not (tmp_path / "not").exists()
    assert fake_ray["fn_constructor_args"][1] == str(tmp_path / "results"), "on each machine the same folder"
