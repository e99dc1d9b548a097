"""Config dataclasses to plain JSON values and back: one codec for everything that is kept in a file.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Grid:
...     size: tuple[int, int] = (2, 2)
>>> to_plain(Grid()), from_plain(Grid, {"size": [6, 6]})
({'size': [2, 2]}, Grid(size=(6, 6)))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from escounts.errors import DataError

Config = TypeVar("Config")


def to_plain(config: Any) -> dict[str, Any]:
    """A config as JSON holds it: dictionaries, lists, numbers and strings."""
    return json.loads(json.dumps(asdict(config)))  # type: ignore[no-any-return]


def from_plain(kind: type[Config], values: Mapping[str, Any], *, ignore_unknown: bool = False) -> Config:
    """The config of that kind with these values; lists become tuples, dictionaries the configs of their fields.

    Where a field may hold one of several configs, the value's "kind" chooses. Raises ValueError for a name the config
    does not have, unless ignore_unknown: files of a later version may hold more; and for a flag or a choice that is
    none of its values.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown and not ignore_unknown:
        raise ValueError(f"unknown settings {', '.join(unknown)}; {kind.__name__} has {', '.join(known)}")
    hints = get_type_hints(kind)
    return kind(**{name: _field(name, hints[name], values[name], ignore_unknown) for name in known if name in values})


def with_settings(
    config: Config, settings: Mapping[str, str], read: Callable[[Mapping[str, Any]], Config] | None = None
) -> Config:
    """The config with other values, each by its field's name where one part alone has it, or by its path.

    A path is that of train.seed. Values are JSON, or else text; a row of numbers needs no brackets. read: the inverse
    of to_plain, where it is not from_plain. Raises DataError for a name that is none, with those that are near.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Grid:
    ...     size: tuple[int, int] = (2, 2)
    >>> with_settings(Grid(), {"size": "6,6"})
    Grid(size=(6, 6))
    """
    plain = to_plain(config)
    paths = dict(_paths(plain, ""))
    for name, text in settings.items():
        meant = [path for path in paths if path == name or path.endswith(f".{name}")]
        if len(meant) != 1:
            last = {path.rpartition(".")[2]: path for path in paths}
            near = meant or [last.get(one, one) for one in get_close_matches(name, [*last, *paths], 4, 0.5)]
            said = ", ".join(dict.fromkeys(near)) or ", ".join(last)
            raise DataError(f"no one setting is called {name!r}; near are {said}")
        values, field = paths[meant[0]], meant[0].rpartition(".")[2]
        values[field] = _parsed(text, row=isinstance(values[field], list))
    try:
        return read(plain) if read is not None else from_plain(type(config), plain)
    except (ValueError, TypeError) as error:
        raise DataError(f"--set: {error}") from error


def _parsed(text: str, *, row: bool) -> Any:
    try:
        return json.loads(f"[{text}]" if row and not text.startswith("[") else text)
    except ValueError:
        return text


def _paths(values: dict[str, Any], above: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field below some values by its path, with the dictionary that holds it."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{name}.")
        elif name != "kind":
            yield f"{above}{name}", values


def tuples(value: Any) -> Any:
    """The value with tuples in place of lists, however deep."""
    if isinstance(value, list):
        return tuple(map(tuples, value))
    if isinstance(value, Mapping):
        return {name: tuples(part) for name, part in value.items()}
    return value


def _field(name: str, hint: Any, value: Any, ignore_unknown: bool) -> Any:
    choices: tuple[object, ...] | None = (True, False) if hint is bool else None
    if get_origin(hint) is Literal:
        choices = get_args(hint)
    if choices is not None and not any(value == choice and type(value) is type(choice) for choice in choices):
        raise ValueError(f"{name} is {value!r:.40}; it takes {', '.join(map(repr, choices))}")
    if (kind := _numbers(hint)) and not _are_numbers(hint, value):
        raise ValueError(f"{name} is {value!r:.40}; it takes {kind}")
    if hint is float:
        return float(value)
    configs = [choice for choice in (hint, *get_args(hint)) if isinstance(choice, type) and is_dataclass(choice)]
    if not configs or not isinstance(value, Mapping):
        return tuples(value)
    chosen = next((config for config in configs if value.get("kind") == getattr(config, "kind", None)), configs[0])
    return from_plain(chosen, value, ignore_unknown=ignore_unknown)


def _numbers(hint: Any) -> str:
    """What a field of plain numbers takes, in words; nothing for other fields."""
    parts = get_args(hint) if get_origin(hint) is tuple else (hint,)
    if not all(part in (int, float) for part in parts):
        return ""
    kind = "whole number" if parts[0] is int else "number"
    return f"{len(parts)} {kind}s" if len(parts) > 1 else f"a {kind}"


def _are_numbers(hint: Any, value: Any) -> bool:
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        return isinstance(value, (list, tuple)) and len(value) == len(parts) and all(map(_are_numbers, parts, value))
    return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
