"""The plan of draining hosts: where their servers go, or who is stopped; and who else holds something there."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from kilonova.domain.params import MoveParams, Params
from kilonova.domain.server import ACTIVE, POWER_RUNNING, Server
from kilonova.domain.whole_hosts import STOP, HostPlan, PlannedMove
from kilonova.operations.relocate import Relocate
from kilonova.operations.stop import Stop
from kilonova.operations.whole_hosts.plan import (
    CHUNK,
    CellReport,
    Ground,
    Seated,
    choice_of,
    read_servers,
    seat_all,
    whole_plan,
)
from kilonova.placement.reading import of_provider
from kilonova.schema.tables.cell import hosts, migrations, servers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

WAITS_FOR_OWNER = "it was resized or migrated away; what is left of it goes when its owner confirms or reverts that"
NOT_THERE = "it holds something there, and was not there when the drain was planned"
_PROVIDERS = Sql(select(hosts.c.name, hosts.c.provider_id).where(in_list(hosts.c.name, "names")))
_ELSEWHERE = Sql(
    select(servers.c.id, servers.c.host, servers.c.operation_id).where(
        in_list(servers.c.id, "ids"), servers.c.deleted == 0
    )
)
_OPEN = Sql(
    select(migrations.c.id, migrations.c.server_id)
    .where(in_list(migrations.c.source_host, "hosts"), migrations.c.open == 1)
    .order_by(migrations.c.number)
)


async def plan_drain(ground: Ground, names: Sequence[str], by: str) -> HostPlan:
    """`by`: one of domain.whole_hosts.DRAIN_BY."""
    if by == STOP:
        return await _plan_stops(ground, names)
    report = await read_servers(ground, names, Relocate(), MoveParams(child=True))
    seated = await seat_all(ground, report.servers, excluded=dict.fromkeys(names, "it is drained"))
    await _add_waiting(ground, names, report)
    for one in await arriving(ground, names):
        report.refused.setdefault(one, NOT_THERE)
    return whole_plan("drain_host", ground, report, names, seated.moves(report, "relocate"), seated)


async def _plan_stops(ground: Ground, names: Sequence[str]) -> HostPlan:
    """Plan to stop the running servers where they are."""
    report = await read_servers(ground, names, Stop(), Params())
    running, spared = list[Server](), dict[str, str]()
    for server in report.servers:
        rank, why = choice_of(server)
        if rank is None:
            spared[server.id] = why
        elif _runs(server) or server.vm_state == ACTIVE:
            running.append(server)
    report.refused = {id_: why for id_, why in report.refused.items() if _runs(report.all[id_])}
    moves = [
        PlannedMove(
            do="stop",
            server=one.id,
            name=one.name,
            source=one.host_name,
            to=one.host_name,
            why="it is stopped there",
        )
        for one in sorted(running, key=lambda one: (choice_of(one)[0] or 0, one.id))
    ]
    return whole_plan("drain_host", ground, report, names, moves, Seated([], spared))


def _runs(server: Server) -> bool:
    return bool(server.power_state == POWER_RUNNING)


async def _add_waiting(ground: Ground, names: Sequence[str], report: CellReport) -> None:
    """Refuse servers whose former copy is still on the hosts: only their owners decide which copy goes."""

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_OPEN, hosts=[*names])

    known = {server.id for server in report.servers} | report.refused.keys()
    for row in await ground.journal.read(body):
        if row["server_id"] not in known:
            report.refused[row["server_id"]] = WAITS_FOR_OWNER


async def arriving(ground: Ground, names: Sequence[str]) -> list[str]:
    """Return the consumers with allocations there whose servers have not arrived yet: they were claimed before the host
    was closed."""

    async def providers(tx: Tx) -> list[str]:
        return [row["provider_id"] for row in await tx.all(_PROVIDERS, names=[*names])]

    held: set[str] = set()
    for provider in await ground.journal.read(providers):
        _, allocations = await of_provider(ground.placement, provider)
        held |= {row["consumer"] for row in allocations}
    ids = sorted(held)

    async def body(tx: Tx) -> tuple[dict[str, Row], set[str]]:
        servers_by_id: dict[str, Row] = {}
        for first in range(0, len(ids), CHUNK):
            servers_by_id |= {row["id"]: row for row in await tx.all(_ELSEWHERE, ids=ids[first : first + CHUNK])}
        return servers_by_id, {row["id"] for row in await tx.all(_OPEN, hosts=[*names])}

    known, moves = await ground.journal.read(body)
    return [one for one in ids if one not in moves and _arrives(known.get(one), names)]


def _arrives(server: Row | None, names: Sequence[str]) -> bool:
    """Return whether the server may still arrive. None: it is being built, or is not a server."""
    return server is None or (server["host"] not in names and server["operation_id"] is not None)
