"""A Struct from a row whose columns have the names of its attributes."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TypeVar

import msgspec

from kilonova.world import Row

S = TypeVar("S", bound=msgspec.Struct)


def struct_of(kind: type[S], row: Row, names: Iterable[str], flags: Container[str] = (), **more: object) -> S:
    """Return a Struct from the named columns. `flags`: booleans, which are numbers in a row. `more`: attributes from
    elsewhere; they replace the columns of the same names."""
    columns = {name: row[name] for name in names}
    values = {name: bool(value) if name in flags and value is not None else value for name, value in columns.items()}
    return kind(**{**values, **more})
