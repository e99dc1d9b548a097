"""How many actors a Ray cluster is asked for, and how many cores each: no more than its machines have.

Ray waits for ever, and says nothing, for an actor that asks for more than any one machine has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from escounts.errors import EscountsError

MOST_THREADS = 4
"""Cores of one actor at most: one video makes little use of more."""
SINGLE = 0.8
"""What a core of an actor of one core is worth: a model in memory for each does not pay for one core more."""


@dataclass(frozen=True)
class Machine:
    """What one machine of a cluster lends."""

    cores: int
    gpus: int = 0


@dataclass(frozen=True)
class Actors:
    """How many at most, and the cores of each."""

    number: int
    threads: int


def machines_of(nodes: Iterable[Mapping[str, Any]]) -> list[Machine]:
    """From `ray.nodes()`: those that are alive."""
    alive = [node.get("Resources", {}) for node in nodes if node.get("Alive", False)]
    return [Machine(int(resources.get("CPU", 0)), int(resources.get("GPU", 0))) for resources in alive]


def fitting_actors(
    machines: Sequence[Machine], *, videos: int, jobs: int | None, on_gpu: bool, cluster: str
) -> Actors:
    """Actors of which each finds a machine. As many as `jobs` asks for, or one per GPU, where they fit; otherwise
    those that use the most cores, of two cores each where that is the same. Raises EscountsError where none fits."""

    def room(threads: int) -> int:
        return sum(min([machine.cores // threads, *([machine.gpus] if on_gpu else [])]) for machine in machines)

    wanted = min(jobs or videos, videos)
    choices = [Actors(min(room(threads), wanted), threads) for threads in range(1, MOST_THREADS + 1)]
    if choices[0].number == 0:
        there = ", ".join(f"{m.cores} cores and {m.gpus} GPUs" for m in machines) or "none is alive"
        raise EscountsError(
            f"the Ray cluster {cluster!r} has no machine with a core{' and a GPU' if on_gpu else ''} for an actor "
            f"({there}); add one (`ray start`), or leave Ray out and count on this machine"
        )
    if jobs or on_gpu:
        return max(choices, key=lambda actors: (actors.number, actors.threads))

    def used(actors: Actors) -> float:
        return actors.number * actors.threads * (SINGLE if actors.threads == 1 else 1.0)

    return max(choices, key=lambda actors: (used(actors), actors.threads == 2, actors.threads))
