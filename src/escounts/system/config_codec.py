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
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

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
    return kind(**{name: _field(name, hints[name], values[name]) for name in known if name in values})


def tuples(value: Any) -> Any:
    """The value with tuples in place of lists, however deep."""
    if isinstance(value, list):
        return tuple(map(tuples, value))
    if isinstance(value, Mapping):
        return {name: tuples(part) for name, part in value.items()}
    return value


def _field(name: str, hint: Any, value: Any) -> Any:
    choices: tuple[object, ...] | None = (True, False) if hint is bool else None
    if get_origin(hint) is Literal:
        choices = get_args(hint)
    if choices is not None and not any(value == choice and type(value) is type(choice) for choice in choices):
        raise ValueError(f"{name} is {value!r:.40}; it takes {', '.join(map(repr, choices))}")
    configs = [choice for choice in (hint, *get_args(hint)) if isinstance(choice, type) and is_dataclass(choice)]
    if not configs or not isinstance(value, Mapping):
        return tuples(value)
    chosen = next((config for config in configs if value.get("kind") == getattr(config, "kind", None)), configs[0])
    return from_plain(chosen, value)
