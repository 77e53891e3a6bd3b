"""Rows that differ from another one in a single column: a statement that loses one of its conditions takes them too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, select

from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Tx


def zeros(table: Table, **values: Any) -> dict[str, Any]:
    """A whole row: 0 in every column that must have a value and is not given one."""
    needed = {column.name: 0 for column in table.c if not column.nullable and column.autoincrement is not True}
    return needed | values


async def put_neighbours(tx: Tx, table: Table, row: Mapping[str, Any], **others: Any) -> None:
    """Put a row for each of `others`, with this column different; before the row itself, so that a lost key finds them
    first."""
    key = [column.name for column in table.primary_key if column.name in row]
    key = key or [name for name in ("id",) if name in row]  # a number counts by itself
    for number, (column, other) in enumerate(others.items()):
        neighbour = {**row, column: other}
        if key and all(neighbour[name] == row[name] for name in key):  # then it needs a key of its own
            neighbour[key[0]] = f"0-neighbour-{number}"
        await rows.put(tx, table, **zeros(table, **neighbour))


async def contents(tx: Tx, table: Table) -> list[dict[str, Any]]:
    """All rows, in the order of their keys."""
    found = await tx.all(Sql(select(table).order_by(*table.primary_key)))
    return [{column.name: row[column.name] for column in table.c} for row in found]


class Watched:
    """Which rows of a table were changed or removed since this was made."""

    def __init__(self, table: Table, before: list[dict[str, Any]]) -> None:
        self.table, self.before = table, before

    @classmethod
    async def since_now(cls, tx: Tx, table: Table) -> Watched:
        return cls(table, await contents(tx, table))

    async def changed(self, tx: Tx) -> list[dict[str, Any]]:
        after = await contents(tx, self.table)
        return [row for row in self.before if row not in after]
