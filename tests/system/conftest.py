from __future__ import annotations

from collections.abc import Iterator

import pytest
from warm_processes import new_processes


@pytest.fixture(autouse=True)
def _new_interpreters() -> Iterator[None]:
    """A service of another file may still run on warm processes, whose stderr is not this test's."""
    with new_processes():
        yield
