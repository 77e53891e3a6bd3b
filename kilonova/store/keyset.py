"""Pages of a list in any order, as SQL that both engines read alike: a page begins after the values of the marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, false, or_


class By(NamedTuple):
    """A sort key, the most important first. The last keys must distinguish any two rows, or pages repeat and lose
    some."""

    column: Any
    descending: bool
    nullable: bool = False


def ordered(keys: Sequence[By]) -> list[Any]:
    """Return the ordering, with NULL as the smallest value, as in MySQL and Nova; the engines' defaults differ."""
    return [_ordered(key) for key in keys]


def _ordered(key: By) -> Any:
    order = key.column.desc() if key.descending else key.column.asc()
    if not key.nullable:
        return order  # for a column without NULLs, it would keep PostgreSQL from its index
    return order.nulls_last() if key.descending else order.nulls_first()


def after(keys: Sequence[By], nulls: Sequence[bool] = ()) -> Any:
    """Return the condition for rows after the marker: further in the first key; or equal there and further in the
    second; and so on.

    The marker's values are given by `marker_parameters`; `nulls`: which of them are NULL, by default none.
    """
    choices: list[Any] = []
    equal: list[Any] = []
    for number, key in enumerate(keys):
        last: Any = bindparam(f"last{number}")
        is_null = bool(nulls) and nulls[number]
        choices.append(and_(*equal, _further(key, last, is_null)))
        equal.append(key.column.is_(None) if is_null else key.column == last)
    return or_(*choices)


def _further(key: By, last: Any, is_null: bool) -> Any:
    if is_null:
        return false() if key.descending else key.column.is_not(None)
    if not key.descending:
        return key.column > last
    return or_(key.column < last, key.column.is_(None)) if key.nullable else key.column < last


def marker_parameters(values: Sequence[object]) -> dict[str, object]:
    """Return the parameters of `after` for the marker's values."""
    return {f"last{number}": value for number, value in enumerate(values) if value is not None}
