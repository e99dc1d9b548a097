"""Loading a model in a process that is there for nothing else."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Where a process imports torch: what is made meanwhile stays, and Python need not look for garbage in it.

    torch's modules are a quarter of a million objects, gone through several times while they are made and again
    afterwards: 0.2 s, a sixth of what loading takes. Not for a library: the caller's objects would stay, too.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.collect()  # what is garbage already is not to stay
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
