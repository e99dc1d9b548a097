"""Every public function refuses a wrong value in one sentence that names it, or takes it sensibly."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from movies import bouncing, write_movie

import escounts
from escounts.batching.tasks import Settings
from escounts.counter import EncodedVideo
from escounts.errors import EscountsError
from escounts.live import Watch
from escounts.results import CountResult

NUMBERS = ["3", "", None, math.nan, math.inf, -math.inf, np.nan, True, [1.0], 1j, b"1", 10**400, np.array(1.0)]
WORDS = ["sides", "both", "Side", "cycles", "", None, 1, True, ["side"], b"side", math.nan]
FLAGS: list[Any] = ["no", "", None, 0, 1, 2.0, [], math.nan]
EXEMPLARS: list[Any] = [
    *(None, "3.0-4.5", (3.0, 4.5), 3.0, True, escounts.ExemplarSpan(3.0, 4.5)),
    *([None], ["x"], [""], [(3.0,)], [(3.0, 4.5, 6.0)], [("3", "4.5")], [(math.nan, 4.5)], [(3.0, math.inf)], [{}]),
    *([(4.5, 3.0)], [(3.0, 3.0)], [(-1.0, 2.0)], [(3.0, 900.0)], [(True, 4.5)], [b"3.0-4.5"], [3.0, 4.5]),
    *([escounts.ExemplarSpan(math.nan, 2.0)], [escounts.ExemplarSpan("1", 2.0)]),  # type: ignore[arg-type]
    *([escounts.ExemplarSpan(1.0, 2.0, 5)], [escounts.ExemplarSpan(1.0, 2.0, "")], np.array(1.0), {}),  # type: ignore[arg-type]
]
SPANS: list[Any] = [
    *(None, "1-2", 3.0, [1.0, 2.0], [None], [(1.0,)], [(1.0, 2.0, 3.0)], [("1", "2")], [(math.nan, 2.0)], {}),
    *([(1.0, math.inf)], [(2.0, 1.0)], [(1.0, 1.0)], [(1.0, 3.0), (2.0, 4.0)], [(-1.0, 2.0)], [(1.0, 900.0)]),
    *([(True, 2.0)], b"12", ["12"], np.array(1.0), {1: 2}),
]
PATHS = ["", None, 3, b"x.json", True, "no-such-folder/x.json", "x.unknown", "nul\0.json"]


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("wrong") / "four.mp4", bouncing(4, 6.0))


@pytest.fixture(scope="module")
def encoded(movie: Path) -> EncodedVideo:
    return escounts.load("spectral").encode(movie)


@pytest.fixture(scope="module")
def result(encoded: EncodedVideo) -> CountResult:
    return encoded.count()


def one_sentence(call: Callable[[], object]) -> str:
    with pytest.raises((EscountsError, ValueError)) as caught:
        call()
    said = str(caught.value)
    assert said and "\n" not in said and len(said) < 400
    return said


def cases(**tables: list[Any]) -> list[Any]:
    pairs = [(name, value) for name, values in tables.items() for value in values]
    return [pytest.param(name, value, id=f"{name}={value!r}"[:60]) for name, value in pairs]


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        start=NUMBERS, end=[v for v in NUMBERS if v is not None], unit=WORDS, assume_repeats=FLAGS,
        exemplars=EXEMPLARS, model=["", None, 3, "no such", b"lite", True], progress=["x", 3, True],
        device=["", None, 3, "gpu", "cuda:x", b"cpu", True], 
        video=["", None, 3, b"x.mp4", True, "missing.mp4", np.array(3)],
    ),
)  # fmt: skip
def test_count_refuses_wrong_values(movie: Path, name: str, value: Any) -> None:
    given = {"video": movie, "model": "lite" if name == "device" else "spectral", name: value}
    said = one_sentence(lambda: escounts.count(**given))
    if name in ("unit", "start", "end", "assume_repeats"):
        assert said.startswith(f"{name} is ") and "it takes" in said


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        start=[v for v in NUMBERS if v is not None] + [5.9, 7.0], end=[v for v in NUMBERS if v is not None] + [-1.0],
        unit=WORDS, assume_repeats=FLAGS, exemplars=EXEMPLARS,
    ),
)  # fmt: skip
def test_encoded_video_refuses_wrong_values(encoded: EncodedVideo, name: str, value: Any) -> None:
    given = {name: value} | ({"end": 5.5} if value == 5.9 else {})
    one_sentence(lambda: encoded.count(**given))


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        at=[*NUMBERS, -1.0, 900.0], unit=["auto", "cycle", *WORDS], spans=[value for value in SPANS if value != {}],
        path=PATHS,
    ),
)  # fmt: skip
def test_results_refuse_wrong_values(
    result: CountResult, name: str, value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    methods = {"at": "aligned", "unit": "in_unit", "spans": "corrected", "path": "save"}
    one_sentence(lambda: getattr(result, methods[name])(**{name: value}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        source=[None, "", True, 2.5, b"x", -1], model=["", None, 3, "spectral"], exemplars=EXEMPLARS[:15],
        assume_repeats=FLAGS, speed=["1", None, math.nan, 0, -1.0, True],
    ),
)  # fmt: skip
def test_watch_refuses_wrong_values(name: str, value: Any) -> None:
    given = {"source": [], name: value}
    one_sentence(lambda: escounts.watch(**given))


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        path=["", None, 3, b"x.mp4", "missing.mp4"], threads=["2", -1, 1.5, True], image_rate=["2", math.nan, 0, -1],
        max_duration=["2", math.nan, True, 0],
    ),
)  # fmt: skip
def test_video_refuses_wrong_values(movie: Path, name: str, value: Any) -> None:
    folder = {"path": movie.parent} if name == "image_rate" else {"path": movie}
    said = one_sentence(lambda: escounts.Video(**(folder | {name: value})))
    assert name == "path" or said.startswith(f"{name} is ")


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        videos=[None, 3, "", ["missing.mp4"]], jobs=["2", -1, 1.5, True], out=["", 3], ray=["", 3],
        settings=["lite", {}], retry_errors=["yes", 1],
    ),
)  # fmt: skip
def test_batch_refuses_wrong_values(movie: Path, name: str, value: Any) -> None:
    given = {"videos": [movie], name: value}
    one_sentence(lambda: escounts.batch(**given))


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        model=["", None, 3], start=NUMBERS, end=[v for v in NUMBERS if v is not None], unit=WORDS, limit=NUMBERS,
        assume_repeats=FLAGS, exemplars=[*EXEMPLARS[:6], [(1.0, 2.0)]], region=["a", 3],
    ),
)  # fmt: skip
def test_settings_of_a_batch_refuse_wrong_values(name: str, value: Any) -> None:
    """They were taken, and every row was an error then."""
    one_sentence(lambda: Settings(**{name: value}))


@pytest.fixture(scope="module")
def watching() -> Watch:
    return escounts.watch([])


@pytest.mark.parametrize("value", NUMBERS)
def test_borders_of_a_reference_and_of_a_mark_are_numbers(
    movie: Path, encoded: EncodedVideo, watching: Watch, value: Any
) -> None:
    one_sentence(lambda: encoded._counter.reference(movie, value, 2.0))
    one_sentence(lambda: encoded._counter.reference(movie, 0.0, value))
    one_sentence(lambda: watching.mark(value, 2.0))


def test_what_is_no_model_and_no_frame_is_refused(encoded: EncodedVideo, movie: Path) -> None:
    for value in ["lite", None, 3]:
        one_sentence(lambda value=value: escounts.Counter(value))  # type: ignore[misc]
    frames: list[Any] = [None, "x", np.zeros((8, 8, 3), np.uint8)]
    for frame in frames:
        assert "video.files.Frame" in one_sentence(lambda frame=frame: list(escounts.watch([frame])))  # type: ignore[misc]
    assert "shape (0, 0, 3)" in one_sentence(lambda: escounts.count([np.zeros((0, 0, 3), np.uint8)] * 2, fps=9))
    other = escounts.load("lite").encode(movie)
    assert "another model" in one_sentence(lambda: other.count([(encoded, 0.5, 2.0)]))
    assert other.count(end=1e308).count == other.count().count


def test_load_refuses_wrong_values() -> None:
    for name in ["", None, 3, True, b"lite", "no such", ["lite"]]:
        one_sentence(lambda name=name: escounts.load(name))  # type: ignore[misc]
    assert "it takes auto, cpu" in one_sentence(lambda: escounts.load("lite", device="gpu"))


def test_numpy_and_torch_values_are_taken(movie: Path, encoded: EncodedVideo, tmp_path: Path) -> None:
    """Numbers of arrays count as what they are, and what is counted with them can be saved."""
    result = encoded.count(start=np.float32(0.5), end=np.int64(6), assume_repeats=np.bool_(False))  # type: ignore[arg-type]
    assert result.range == (0.5, encoded.encoding.end) and type(result.range[0]) is float
    result.save(tmp_path / "result.json")
    marked = encoded.count(np.array([[1.5, 3.0]]))  # type: ignore[arg-type]
    assert marked.exemplars == (escounts.ExemplarSpan(1.5, 3.0),)
    assert marked.corrected(np.array([[3.0, 4.0], [1.0, 2.0]])).repetitions[0].start == 1.0  # type: ignore[arg-type]
    assert marked.corrected([]).count == 0
    assert escounts.load("spectral", device=torch.device("cpu")).model.name == "spectral"  # type: ignore[arg-type]


def test_save_says_that_a_folder_is_missing(result: CountResult, tmp_path: Path) -> None:
    said = one_sentence(lambda: result.save(tmp_path / "missing" / "x.json"))
    assert "missing" in said and "make it first" in said and not (tmp_path / "missing").exists()
