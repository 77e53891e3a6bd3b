"""A store that refuses what is written without the locks that must be held for it (kilonova/services/network/locks.py).

With one writer at a time, as in SQLite, no test could notice that a lock is missing: so each write is checked for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Delete, Insert, Select, Table, Update, select

from kilonova.schema.tables import network as tables
from kilonova.services.network.kinds import KINDS
from kilonova.services.network.owners import ROUTER_INTERFACE
from kilonova.store.statements import Sql, in_list
from kilonova.world import Body, Row

COUNTED = {kind.table for kind in KINDS.values()}  # against the quota of their project
INSIDE = {tables.ports, tables.subnets, tables.fixed_ips, tables.free_ranges}  # a network's lock guards them
USES_OF_GROUPS = {(tables.port_groups, Insert), (tables.security_groups, Delete)}  # the group's project is locked


class LockWatch:
    """`meanwhile`: a network, and what another writer does to it before it is locked here, once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.meanwhile: tuple[object, Body[object]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, body: Body[Any]) -> Any:
        return await self._store.write(lambda tx: body(_WatchedTx(self, tx)))


class _WatchedTx:
    def __init__(self, watch: LockWatch, tx: Any) -> None:
        self._watch, self._tx = watch, tx
        self._projects: set[object] = set()
        self._networks: set[object] = set()
        self._routers: set[object] = set()
        self._is_seeding = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def one(self, statement: Sql, /, **params: Any) -> Row | None:
        element = statement.element
        if isinstance(element, Select) and element._for_update_arg is not None:
            for table, locked in ((tables.networks, self._networks), (tables.routers, self._routers)):
                if element.get_final_froms() == [table]:
                    locked.add(params["id"])
                    await self._be_late(params["id"])
        elif isinstance(element, Insert) and element.table is tables.projects:
            self._projects.add(params["project_id"])
        row: Row | None = await self._tx.one(statement, **params)
        return row

    async def _be_late(self, locked_id: object) -> None:
        if self._watch.meanwhile is not None and self._watch.meanwhile[0] == locked_id:
            (_, faster), self._watch.meanwhile = self._watch.meanwhile, None
            await faster(self._tx)

    async def run(self, statement: Sql, /, **params: Any) -> Any:
        await self._check(statement.element, [params])
        return await self._tx.run(statement, **params)

    async def many(self, statement: Sql, rows: Sequence[Mapping[str, object]], /) -> None:
        await self._check(statement.element, rows)
        await self._tx.many(statement, rows)

    async def _check(self, element: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        table: Any = getattr(element, "table", None)
        if not isinstance(element, Insert | Update | Delete) or not isinstance(table, Table) or not rows:
            return
        if table is tables.changed_ports and isinstance(element, Insert):
            await self._check_marks(**rows[0])
            return
        affected = await self._affected(element, table, rows)
        self._is_seeding |= table is tables.seeds  # that counts against no quota
        if isinstance(element, Insert) and table in COUNTED and not self._is_seeding:
            self._need({row["project_id"] for row in rows}, self._projects, table)
        if table in INSIDE and "new_host" not in rows[0]:  # a host comes to all ports of a server at once
            self._need({await self._network_of(row) for row in affected}, self._networks, table)
        if (table, type(element)) in USES_OF_GROUPS:
            self._need({await self._owner_of(row) for row in affected}, self._projects, table)
        if table is tables.ports and not (isinstance(element, Update) and _stays_owned(affected, rows[0])):
            legs = [row for row in (*affected, *rows) if _get(row, "device_owner") == ROUTER_INTERFACE]
            self._need({_get(row, "device_id") for row in legs}, self._routers, table)
        if table is tables.limits:
            self._need({row["project_id"] for row in affected}, self._projects, table)
        if table is tables.floating_ips and (not isinstance(element, Update) or rows[0].keys() & {"port_id", "ids"}):
            await self._check_floating(affected, rows)

    async def _check_marks(self, network_id: str = "", group_id: str = "", ids: Sequence[str] = ()) -> None:
        """Nobody gives a server such a port meanwhile, else its record would be out of date without a mark."""
        of_ports = await self._networks_of_ports(ids)
        self._need({network_id, *of_ports}, self._networks, tables.changed_ports)
        self._need(
            {await self._owner_of({"group_id": group_id})} if group_id else (), self._projects, tables.changed_ports
        )

    async def _check_floating(self, affected: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """The port that it leaves stays; so do the port that it comes to, and the way to that."""
        homes = await self._networks_of_ports([row["port_id"] for row in (*affected, *rows) if _get(row, "port_id")])
        ways = {_get(row, "network_id") for row in affected} if rows[0].get("port_id") else set()
        self._need({*homes, *ways}, self._networks, tables.floating_ips)

    def _need(self, needed: Any, locked: set[object], table: Table) -> None:
        assert set(needed) - {"", None} <= locked, f"{table.name} is written without a lock"

    async def _affected(self, element: Any, table: Table, rows: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        if isinstance(element, Insert):
            return rows
        (params,) = rows
        return await self._look(_changed_by(element), **params)

    async def _network_of(self, row: Any) -> object:
        if (known := _get(row, "network_id")) is not None:
            return known
        (home,) = await self._look(_by_ids(tables.subnets), ids=[row["subnet_id"]])
        return home["network_id"]

    async def _networks_of_ports(self, ids: Sequence[str]) -> set[object]:
        found = await self._look(_by_ids(tables.ports), ids=list(ids)) if ids else ()
        return {row["network_id"] for row in found}

    async def _owner_of(self, row: Any) -> object:
        if (known := _get(row, "project_id")) is not None:
            return known
        (group,) = await self._look(_by_ids(tables.security_groups), ids=[row["group_id"]])
        return group["project_id"]

    async def _look(self, statement: Sql, **params: Any) -> Sequence[Row]:
        found: Sequence[Row] = await self._tx.all(statement, **params)
        self._tx._stats.statements -= 1  # some tests count those of the service
        return found


def _stays_owned(ports: Sequence[Any], change: Mapping[str, Any]) -> bool:
    return all(port["device_owner"] == change.get("device_owner", port["device_owner"]) for port in ports)


def _get(row: Any, name: str) -> Any:
    return row[name] if name in row.keys() else None  # noqa: SIM118 - a row is no dictionary


@cache
def _changed_by(element: Any) -> Sql:
    """What finds the rows that this statement changes or removes."""
    return Sql(select(element.table).where(element.whereclause))


@cache
def _by_ids(table: Table) -> Sql:
    return Sql(select(table).where(in_list(table.c.id, "ids")))
