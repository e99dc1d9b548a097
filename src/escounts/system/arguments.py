"""The border of the Python API: a public function names what its arguments take, and a wrong value is one sentence.

>>> @checked(end=optional(seconds))
... def count(video, *, start=0.0, end=None, unit="auto"): ...
>>> count("squats.mp4", unit="sides")
EscountsError: unit is 'sides'; it takes 'auto', 'cycle' or 'side'
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import numpy as np

from escounts.errors import EscountsError

P = ParamSpec("P")
R = TypeVar("R")

OVERLAP = 0.01
"""Seconds that two stretches may share: a border that was rounded twice is no overlap."""
Check = Callable[[str, Any], Any]
"""From a parameter's name and the value given to the value that is used; raises EscountsError."""


def checked(**checks: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A public function whose arguments are checked, and brought into one form, before it runs.

    Args:
        checks: by a parameter's name; a parameter without one has the check that USUAL gives its name, if any.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        known = {name: checks.get(name, USUAL.get(name)) for name in signature.parameters}

        @functools.wraps(function)
        def border(*args: P.args, **kwargs: P.kwargs) -> R:
            given = signature.bind(*args, **kwargs)
            for name, value in given.arguments.items():
                check = known[name]
                if check is not None:
                    given.arguments[name] = check(name, value)
            return function(*given.args, **given.kwargs)

        return border

    return decorate


def shown(value: object) -> str:
    """A wrong value as an error repeats it, shortened."""
    return reprlib.repr(value)


def refused(name: str, value: object, takes: str) -> EscountsError:
    """The one sentence about a wrong value."""
    return EscountsError(f"{name} is {shown(value)}; it takes {takes}")


def number(name: str, value: Any, takes: str = "a finite number") -> float:
    """An int, a float or NumPy's of either, as a float; neither NaN nor infinite."""
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        found = float(value) if real else math.nan
    except OverflowError:  # an int that no float can hold
        found = math.inf
    if not math.isfinite(found):
        raise refused(name, value, takes)
    return found


def positive(name: str, value: Any, takes: str = "a finite number above 0") -> float:
    """A rate, or how long something lasts."""
    found = number(name, value, takes)
    if found <= 0:
        raise refused(name, value, takes)
    return found


def seconds(name: str, value: Any) -> float:
    """A time in the video."""
    return number(name, value, "a finite number of seconds")


def whole(name: str, value: Any) -> int:
    """An int or NumPy's, not negative."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
        raise refused(name, value, "a whole number, 0 or more")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """True or False; a word or a number may mean either."""
    if not isinstance(value, (bool, np.bool_)):
        raise refused(name, value, "True or False")
    return bool(value)


def callback(name: str, value: Any) -> Any:
    """A function that is told how far the work is, or None."""
    if value is not None and not callable(value):
        raise refused(name, value, "a function or None")
    return value


def text(name: str, value: Any) -> str:
    """A name or a path."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str) or not value or "\0" in value:
        raise refused(name, value, "a name or a path")
    return value


def path(name: str, value: Any) -> Any:
    """A path as it was given."""
    text(name, value)
    return value


def items(value: Any) -> list[Any] | None:
    """What a list, or anything that gives one thing after another, holds; None for text and for a single thing."""
    if isinstance(value, (str, bytes, Mapping, os.PathLike)):
        return None
    try:
        return list(value)
    except TypeError:
        return None


def paths(name: str, value: Any) -> list[Any]:
    """Paths, or one."""
    given = items(value)
    return [path(name, one) for one in ([value] if given is None else given)]


def instance(kind: type) -> Check:
    """A check for objects of one class."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise refused(name, value, f"an object of {kind.__module__}.{kind.__qualname__}")
        return value

    return check


def one_of(*allowed: str) -> Check:
    """A check for one of a few words."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in allowed:
            words = [repr(word) for word in allowed]
            raise refused(name, value, f"{', '.join(words[:-1])} or {words[-1]}")
        return value

    return check


def optional(check: Check) -> Check:
    """The check, for a parameter that may be None."""
    return lambda name, value: None if value is None else check(name, value)


def video(name: str, value: Any) -> Any:
    """A path, a video that is open, or frames one after another."""
    frames = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, os.PathLike))
    frames &= getattr(value, "ndim", 1) > 0
    return value if hasattr(value, "frames") or frames else path(name, value)


def spans(name: str, value: Any) -> list[tuple[float, float]]:
    """(start, end) in seconds of several stretches that do not overlap, in order of time."""
    given = items(value)
    if given is None:
        raise refused(name, value, "a list of (start, end) in seconds")
    found = []
    for index, pair in enumerate(given):
        borders = items(pair)
        if borders is None or len(borders) != 2:
            raise refused(f"{name}[{index}]", pair, "(start, end) in seconds")
        start, end = (seconds(f"{name}[{index}]", border) for border in borders)
        if not 0 <= start < end:
            raise refused(f"{name}[{index}]", (start, end), "seconds with 0 <= start < end")
        found.append((start, end))
    found.sort()
    for before, after in pairwise(found):
        if after[0] < before[1] - OVERLAP:
            raise refused(name, [before, after], "stretches that do not overlap")
    return found


USUAL: dict[str, Check] = {
    "video": video,
    "model": text,
    "device": lambda name, value: text(name, f"{value}" if type(value).__module__ == "torch" else value),
    "start": seconds,
    "end": optional(seconds),
    "at": seconds,
    "assume_repeats": flag,
    "progress": callback,
    "unit": one_of("auto", "cycle", "side"),
    "like_set": optional(whole),
}
"""What a parameter of this name takes wherever it stands."""
