"""The columns of a table whose rows have a type: one declaration for both."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
from sqlalchemy import BigInteger, Column, Float, Integer, Text

from kilonova.domain.server import Large

TYPES: dict[Any, Any] = {str: Text, int: Integer, Large: BigInteger, float: Float(53)}


def columns_of(record: type[msgspec.Struct], key: str) -> Iterator[Column[Any]]:
    """Return a column per field, in their order; one that may be None may be NULL. `key` is the primary key."""
    hints = get_type_hints(record, include_extras=True)
    for field in msgspec.structs.fields(record):
        hint = hints[field.name]
        choices = get_args(hint) if NoneType in get_args(hint) else (hint,)
        (kind,) = (TYPES[choice] for choice in choices if choice is not NoneType)
        yield Column(field.encode_name, kind, nullable=len(choices) > 1, primary_key=field.encode_name == key)
