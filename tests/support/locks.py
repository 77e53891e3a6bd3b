"""Which rows a transaction locks on PostgreSQL, seen on SQLite too, where the one writer makes locks needless."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kilonova.store.statements import Sql

Locked = tuple[str, dict[str, Any]]  # the table, and the row's key


class Locking:
    """A store that notes what its transactions lock."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.locked: list[Locked] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, body: Callable[[Any], Awaitable[Any]]) -> Any:
        return await self._store.write(lambda tx: body(_Noting(tx, self.locked)))

    async def read(self, body: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
        return await self._store.read(lambda tx: body(_Noting(tx, self.locked)), **options)


class _Noting:
    def __init__(self, tx: Any, locked: list[Locked]) -> None:
        self._tx, self._locked = tx, locked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def one(self, statement: Sql, /, **params: Any) -> Any:
        if "FOR UPDATE" in statement.postgres[0]:
            (table,) = statement.element.get_final_froms()
            self._locked.append((table.name, dict(params)))
        return await self._tx.one(statement, **params)
