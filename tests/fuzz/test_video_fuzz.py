"""Thousands of damaged videos: each is read as far as it goes or refused in one line, in bounded time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.fleet import Reader, run_cases
from fuzz.seeds import IMAGES, PAIRS, make_seeds
from release_figures import KEEP, SEED, publish, share_of

CORPUS = Path(__file__).parent / "corpus"
CI_CASES, RELEASE_CASES = 200, 5000


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return make_seeds(tmp_path_factory.mktemp("seeds"))


def test_there_are_enough_kinds(seeds: dict[str, bytes]) -> None:
    assert len({Path(name).suffix for name in PAIRS}) >= 12 and len(seeds) >= 17 and IMAGES in seeds


def test_damaged_videos(seeds: dict[str, bytes], tmp_path: Path) -> None:
    tally = run_cases(seeds, range(CI_CASES), tmp_path)
    assert tally.failures == []
    assert tally.outcomes["read"] > CI_CASES / 5 and tally.outcomes["refused"] > CI_CASES / 20


@pytest.mark.release
def test_damaged_videos_by_the_thousand(seeds: dict[str, bytes], tmp_path: Path) -> None:
    first = CI_CASES + SEED * RELEASE_CASES
    tally = run_cases(
        seeds, range(first, first + share_of(RELEASE_CASES)), tmp_path, keep=Path(KEEP or tmp_path / "failed")
    )
    publish(f"video fuzzing, {len(PAIRS)} kinds of file and image folders", tally.row(), {"first case": first})
    assert tally.failures == []


def test_everything_that_ever_failed(tmp_path: Path) -> None:
    """Files in corpus/: videos that hung, crashed or raised something else than a VideoError once."""
    reader = Reader()
    outcomes = {
        path.name: reader.ask(path) for path in sorted(CORPUS.iterdir()) if path.is_file() and path.suffix != ".md"
    }
    reader.close()
    assert {name: said for name, said in outcomes.items() if said[0] not in ("read", "refused")} == {}
