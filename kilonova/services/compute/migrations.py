"""Records of moves in all cells, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec
from sqlalchemy import and_, bindparam, or_, select

from kilonova.schema.tables.cell import migrations
from kilonova.services.compute.hosts import read_by_cell
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Stores, Tx

_MOVES = migrations.c
_CONDITIONS = {
    "server": _MOVES.server_id == bindparam("server"),
    "status": _MOVES.status == bindparam("status"),
    "kind": _MOVES.kind == bindparam("kind"),
    "host": or_(_MOVES.source_host == bindparam("host"), _MOVES.dest_host == bindparam("host")),
    "source": _MOVES.source_host == bindparam("source"),
    "project": _MOVES.project_id == bindparam("project"),
    "user": _MOVES.user_id == bindparam("user"),
    "since": _MOVES.updated_at >= bindparam("since"),
    "before": _MOVES.updated_at <= bindparam("before"),
    "at": or_(
        _MOVES.created_at < bindparam("at"), and_(_MOVES.created_at == bindparam("at"), _MOVES.id < bindparam("at_id"))
    ),
}
_BY_ID = Sql(select(migrations).where(_MOVES.id == bindparam("id")))


class MigrationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter on moves. None: any."""

    server: str | None = None
    status: str | None = None
    kind: str | None = None
    host: str | None = None  # the source or the destination
    source: str | None = None
    project: str | None = None
    user: str | None = None
    since: float | None = None  # changed at this time or later
    before: float | None = None


@cache
def _page(names: tuple[str, ...], limited: bool) -> Sql:
    statement = select(migrations).where(*(_CONDITIONS[name] for name in names))
    statement = statement.order_by(_MOVES.created_at.desc(), _MOVES.id.desc())
    return Sql(statement.limit(bindparam("limit")) if limited else statement)


async def read_moves(
    stores: Stores, filters: MigrationFilter, *, limit: int | None = None, after: Row | None = None
) -> list[Row]:
    """Return the page after the move `after`, of the cells that answer."""
    given = {name: value for name, value in msgspec.structs.asdict(filters).items() if value is not None}
    if after is not None:
        given |= {"at": after["created_at"]}
    names = tuple(given)
    values: dict[str, object] = given | ({"at_id": after["id"]} if after is not None else {})
    values |= {"limit": limit} if limit is not None else {}

    async def read(store: Store) -> Sequence[Row]:
        async def body(tx: Tx) -> Sequence[Row]:
            return await tx.all(_page(names, limit is not None), **values)

        return await store.read(body)

    by_cell = await read_by_cell(stores, read)
    rows = [row for part in by_cell.values() for row in part or ()]
    return sorted(rows, key=lambda row: (row["created_at"], row["id"]), reverse=True)[:limit]


async def find_move(stores: Stores, migration_id: str) -> Row | None:
    async def read(store: Store) -> Row | None:
        async def body(tx: Tx) -> Row | None:
            return await tx.one(_BY_ID, id=migration_id)

        return await store.read(body)

    by_cell = await read_by_cell(stores, read)
    return next((row for row in by_cell.values() if row is not None), None)
