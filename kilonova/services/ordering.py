"""The order of a list whose pages begin after a marker."""

from __future__ import annotations

from typing import NamedTuple


class Order(NamedTuple):
    column: str
    descending: bool


def complete(order: tuple[Order, ...]) -> tuple[Order, ...]:
    """Two rows never compare equal, else a page could repeat or lose one."""
    first: dict[str, Order] = {}
    for one in order:
        first.setdefault(one.column, one)
    descending = order[0].descending if order else True
    for column in ("created_at", "id"):
        first.setdefault(column, Order(column, descending))
    return tuple(first.values())
