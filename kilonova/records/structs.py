"""A Struct from a row whose columns have the names of its attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec

from kilonova.world import Row

S = TypeVar("S", bound=msgspec.Struct)


def struct_of(kind: type[S], row: Row, names: Iterable[str], flags: Collection[str] = (), **more: object) -> S:
    """Return a Struct from the named columns. `flags`: booleans, which are numbers in a row. `more`: attributes from
    elsewhere; they replace the columns of the same names."""
    values: dict[str, Any] = {name: row[name] for name in names}
    for name in flags:
        if values.get(name) is not None:
            values[name] = bool(values[name])
    values.update(more)
    return kind(**values)
