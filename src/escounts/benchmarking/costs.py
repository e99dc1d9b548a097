"""What a piece of work took: seconds on the wall and of processor, peak memory of the process."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
FAST_UNITS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


@dataclass(frozen=True)
class Cost:
    """What a child took: seconds on the wall, seconds of processor, megabytes at the peak; and what it said."""

    wall: float
    cpu: float
    peak_mb: float
    answer: float


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What the work gives, and the seconds it took: on the wall, of processor."""
    began, before = time.perf_counter(), time.process_time()
    value = work()
    return value, time.perf_counter() - began, time.process_time() - before


def peak_megabytes() -> float:
    """Peak memory of this process; NaN where the system does not tell. ru_maxrss would also remember the process it
    was forked from."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")


def processor_name() -> str:
    """The processor, its cores, and which units for short numbers it has, for a person."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    about = Path("/proc/cpuinfo")
    text = about.read_text() if about.exists() else ""
    name = re.search(r"model name\s*:\s*(.+)", text)
    flags = re.search(r"flags\s*:\s*(.+)", text)
    units = [unit for unit in FAST_UNITS if flags and unit in flags[1].split()]
    known = name[1] if name else platform.processor() or platform.machine()
    return f"{known}, {cores} cores" + (f" ({', '.join(units)})" if units else "")
