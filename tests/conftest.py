"""Fixtures for the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# A busy machine is not a fault of what is tested.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# Sums depend on how many threads share them, and the suite runs in two processes on two cores.
torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared material beside the checkout; tests that need it skip where it is absent."""
    folder = (REPOSITORY / ".." / "shared").resolve()
    if not folder.is_dir():
        pytest.skip("no `shared` folder beside the checkout")
    return folder
