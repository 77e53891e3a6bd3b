"""Data of a single request besides hosts: the hosts of the servers that its hints and its group name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import StoreError
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.request import ResourceRequest
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.placement import group_use, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Stores, Tx

NEIGHBOURS = ("same_host", "different_host")  # hints that name servers

_MEMBERS = Sql(
    select(group_use.c.server_id, resource_providers.c.uuid, resource_providers.c.name)
    .join(resource_providers, resource_providers.c.id == group_use.c.root_id)
    .where(group_use.c.group_id == bindparam("group"))
)
_MAPPED = Sql(
    select(*control.server_mappings.c["server_id", "cell", "project_id"]).where(
        in_list(control.server_mappings.c.server_id, "ids")
    )
)
_WHERE = Sql(
    select(*cell.servers.c["id", "host"]).where(in_list(cell.servers.c.id, "ids"), cell.servers.c.deleted == 0)
)


class Surroundings(msgspec.Struct, frozen=True):
    members: dict[str, frozenset[str]] = {}  # root provider: servers of the request's group there
    hosts: dict[str, str] = {}  # server that a hint names: its host
    away: frozenset[str] = frozenset()  # cells of such servers that do not answer

    def others(self, provider: str, server: str) -> int:
        """Members of the group there, besides this server."""
        return len(self.members.get(provider, frozenset()) - {server})

    def joined_by(self, provider: str, server: str) -> Surroundings:
        there = self.members.get(provider, frozenset()) | {server}
        return msgspec.structs.replace(self, members={**self.members, provider: there})


NOBODY = Surroundings()


async def look_around(stores: Stores, request: ResourceRequest) -> Surroundings:
    if request.group is None and not any(request.hints.get(name) for name in NEIGHBOURS):
        return NOBODY
    members = await _members(stores, request.group) if request.group is not None else {}
    named = sorted({server for name in NEIGHBOURS for server in request.hints.get(name, ())})
    hosts, away = await _hosts(stores, named) if named else ({}, frozenset())
    return Surroundings(members, hosts, away)


async def _members(stores: Stores, rule: GroupRule) -> dict[str, frozenset[str]]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_MEMBERS, group=rule.group)

    servers_by_provider: dict[str, set[str]] = {}
    for row in await stores.placement.read(body, few=True):
        if row["name"] != rule.dead_host:
            servers_by_provider.setdefault(row["uuid"], set()).add(row["server_id"])
    return {provider: frozenset(servers) for provider, servers in servers_by_provider.items()}


async def _hosts(stores: Stores, servers: list[str]) -> tuple[dict[str, str], frozenset[str]]:
    """Return the servers' hosts, and the cells that do not answer: their servers are certainly on no host of another
    cell."""

    async def mapped(tx: Tx) -> Sequence[Row]:
        return await tx.all(_MAPPED, ids=servers)

    by_cell: dict[str, list[str]] = {}
    for row in await stores.control.read(mapped, few=True):
        if row["cell"] is not None:
            by_cell.setdefault(row["cell"], []).append(row["server_id"])
    host_of: dict[str, str] = {}
    away = set()
    for name, ids in by_cell.items():

        async def where(tx: Tx, ids: list[str] = ids) -> Sequence[Row]:
            return await tx.all(_WHERE, ids=ids)

        try:
            rows = await stores.cell(name).read(where, few=True)
        except StoreError:
            away.add(name)
        else:
            host_of |= {row["id"]: row["host"] for row in rows if row["host"]}
    return host_of, frozenset(away)
