"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings

# A busy machine is not a fault of what is tested.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# Sums depend on how many threads share them, and the suite runs in two processes on two cores.
torch.set_num_threads(1)

TESTS = Path(__file__).resolve().parent  # the release check tests packages with a copy of another name
REPOSITORY = TESTS.parent


LONG = (
    "models",
    "batching",
    "research",
    "paper",
    "browser",
    "serve",
    "faults",
    "fuzz",
    "cli",
    "nn",
    "counting",
    "tests",
)
"""Folders with the longest files. They begin, so that no core is left with a long file at the end: pytest-xdist gives
out whole files, and by itself those with the most tests first, whatever they take."""


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        within = item.path.relative_to(TESTS).parts[0]
        folder = within if (TESTS / within).is_dir() else "tests"
        return LONG.index(folder) if folder in LONG else len(LONG)

    ranks = {path: rank(item) for path, item in {item.path: item for item in items}.items()}
    items.sort(key=lambda item: ranks[item.path])


@pytest.fixture(autouse=True)
def ordinary_scheduling() -> Iterator[None]:
    """SVT-AV1, run by root, leaves the thread that encoded at real-time priority, and processes that are forked later
    inherit it: on two cores their threads that wait for one another spin for ever, and nothing else runs."""
    yield
    if hasattr(os, "sched_setscheduler") and os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared material beside the checkout; tests that need it skip where it is absent."""
    folder = (REPOSITORY / ".." / "shared").resolve()
    if not folder.is_dir():
        pytest.skip("no `shared` folder beside the checkout")
    return folder


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network of random weights (seed 0) as ONNX files: half a minute, once for both processes."""
    from escounts.counting.multi_rate import MultiRateModel
    from escounts.models.onnx_export import export_onnx
    from escounts.nn.network import LITE_TINY, Network

    place = tmp_path_factory.getbasetemp()
    folder = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "exported"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            torch.manual_seed(0)
            export_onnx(MultiRateModel("tiny", Network(LITE_TINY)), folder)
    return folder
