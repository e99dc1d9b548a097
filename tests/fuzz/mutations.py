"""Ways to damage a file, each decided by a random generator alone: the same seed, the same damage."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

import numpy as np

Change = Callable[[bytearray, np.random.Generator, Mapping[str, bytes]], bytearray]

EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
HEADER = 1500
"""Bytes at the beginning in which most containers keep their header."""


def bits(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    for _ in range(rng.integers(1, 20)):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return data


def header_bits(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    for _ in range(rng.integers(1, 8)):
        data[rng.integers(min(HEADER, len(data)))] = rng.integers(256)
    return data


def truncation(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    return data[: rng.integers(0, len(data))]


def hole(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    place = rng.integers(len(data))
    del data[place : place + rng.integers(1, 400)]
    return data


def boxes(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    """A four-letter name (an MP4 box, a RIFF chunk) gets another size, another name, or comes twice."""
    found = [m.start() for m in re.finditer(rb"[a-zA-Z][a-zA-Z0-9 ]{3}", bytes(data[: 4 * HEADER]))]
    if not found:
        return header_bits(data, rng, seeds)
    at = found[rng.integers(len(found))]
    way = rng.integers(3)
    if way == 0 and at >= 4:
        data[at - 4 : at] = struct.pack(">I", int(rng.choice(EXTREMES[:8])))
    elif way == 1:
        data[at : at + 4] = data[found[rng.integers(len(found))] :][:4]
    else:
        data[at:at] = data[max(0, at - 4) : at + rng.integers(4, 120)]
    return data


def numbers(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    """Clocks, frame counts, sizes: fields of 2, 4 or 8 bytes become extreme."""
    for _ in range(rng.integers(1, 5)):
        width = int(rng.choice([2, 4, 8]))
        at = int(rng.integers(max(1, min(len(data), 4 * HEADER) - width)))
        value = int(rng.choice(np.array(EXTREMES, dtype=object))) & (256**width - 1)
        data[at : at + width] = value.to_bytes(width, rng.choice(["big", "little"]))
    return data


def dimensions(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    """The picture's 64 and 48 become something else, wherever they are written."""
    for size in (64, 48):
        other = int(rng.choice([0, 1, 7, 255, 16384, 65535]))
        for form in ("<H", ">H", "<I", ">I"):
            if rng.random() < 0.5:
                data = bytearray(bytes(data).replace(struct.pack(form, size), struct.pack(form, other), 3))
    return data


def repeated(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    """A stretch comes many times: more frames than the header knows of."""
    start = int(rng.integers(len(data)))
    part = data[start : start + rng.integers(10, 2000)]
    data[start:start] = part * int(rng.integers(2, 40))
    return data


def streams(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    """Another file's bytes in the middle or behind: streams that appear, change or end."""
    names = sorted(seeds)
    other = seeds[names[rng.integers(len(names))]]
    at = len(data) if rng.random() < 0.5 else int(rng.integers(len(data)))
    data[at:at] = other[: rng.integers(1, len(other) + 1)]
    return data


def shuffled(data: bytearray, rng: np.random.Generator, seeds: Mapping[str, bytes]) -> bytearray:
    """Packets of 188 bytes in another order."""
    parts = [data[at : at + 188] for at in range(0, len(data), 188)]
    for _ in range(rng.integers(1, 6)):
        a, b = rng.integers(len(parts), size=2)
        parts[a], parts[b] = parts[b], parts[a]
    return bytearray(b"".join(parts))


MUTATIONS: tuple[Change, ...] = (
    bits, header_bits, truncation, hole, boxes, numbers, dimensions, repeated, streams, shuffled,
)  # fmt: skip


def mutated(seeds: Mapping[str, bytes], case: int) -> tuple[str, str, bytes]:
    """Case number → (name of the seed, how it was damaged, the damaged file)."""
    rng = np.random.default_rng(case)
    name = sorted(seeds)[case % len(seeds)]
    data, ways = bytearray(seeds[name]), []
    for _ in range(1 if rng.random() < 0.7 else 2):
        change = MUTATIONS[rng.integers(len(MUTATIONS))]
        ways.append(change.__name__)
        data = change(data, rng, seeds) if data else data
    return name, "+".join(ways), bytes(data)
