"""The plan of bringing servers home: who left a host by its last move, and whether it still fits there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select

from kilonova.domain.params import MoveParams, Params
from kilonova.domain.server import Server
from kilonova.domain.whole_hosts import HostPlan, PlannedMove
from kilonova.operations.relocate import Relocate
from kilonova.operations.start import Start
from kilonova.operations.whole_hosts.plan import (
    CHUNK,
    CellReport,
    Ground,
    choice_of,
    read_servers,
    seat_all,
    whole_plan,
)
from kilonova.schema.tables.cell import migrations, servers
from kilonova.schema.tables.journal import operations
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

KIND = "return_host"
LEFT = ("confirmed", "done", "completed")  # states of a migration after which the server is at its destination
_LEFT = Sql(
    select(migrations.c.server_id, migrations.c.source_host)
    .where(in_list(migrations.c.source_host, "hosts"), in_list(migrations.c.status, "left"))
    .distinct()
)
_PARENTS = operations.alias("parents")
_MOVES = Sql(
    select(
        *migrations.c["server_id", "kind", "source_host", "dest_host", "number"], _PARENTS.c.kind.label("parent_kind")
    )
    .outerjoin(operations, operations.c.id == migrations.c.operation_id)
    .outerjoin(_PARENTS, _PARENTS.c.id == operations.c.parent_id)
    .where(in_list(migrations.c.server_id, "ids"), in_list(migrations.c.status, "left"))
    .order_by(migrations.c.number)
)
_SERVERS = Sql(select(*servers.c["id", "host", "deleted", "hidden"]).where(in_list(servers.c.id, "ids")))
_STOPPED_HERE = Sql(
    select(*operations.c["id", "server_id", "parent_id", "turn"])
    .join(servers, servers.c.id == operations.c.server_id)
    .where(
        in_list(servers.c.host, "hosts"),
        servers.c.deleted == 0,
        servers.c.operation_id.is_(None),
        servers.c.turn == operations.c.turn,
        operations.c.kind == "stop",
        operations.c.state == "done",
        operations.c.parent_id.is_not(None),
    )
)


async def plan_return(ground: Ground, names: Sequence[str], opened: Sequence[str] = ()) -> HostPlan:
    """`opened`: those of the hosts that are closed now, and will be open."""
    homes, others = await _leavers(ground, names)
    report = await read_servers(ground, names, Relocate(), MoveParams(child=True), only=sorted(homes))
    seated = await seat_all(
        ground, [one for one in report.servers if one.id in homes], excluded={}, homes=homes, opened=opened
    )
    report.refused |= others
    starts = await _starts(ground, names, report)
    return whole_plan(KIND, ground, report, names, [*starts, *seated.moves(report, "relocate")], seated)


async def _leavers(ground: Ground, names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Home by server, of those whose last move left one of these hosts; and why the others do not come back."""

    async def body(tx: Tx) -> tuple[list[Row], list[Row], dict[str, Row]]:
        left = list(await tx.all(_LEFT, hosts=[*names], left=[*LEFT]))
        ids = sorted({row["server_id"] for row in left})
        moves, servers_by_id = list[Row](), dict[str, Row]()
        for first in range(0, len(ids), CHUNK):
            moves += await tx.all(_MOVES, ids=ids[first : first + CHUNK], left=[*LEFT])
            servers_by_id |= {row["id"]: row for row in await tx.all(_SERVERS, ids=ids[first : first + CHUNK])}
        return left, moves, servers_by_id

    left, moves, servers_by_id = await ground.journal.read(body)
    last = {row["server_id"]: row for row in moves}
    homes: dict[str, str] = {}
    others: dict[str, str] = {}
    for server in sorted({row["server_id"] for row in left}):
        move, row = last[server], servers_by_id.get(server)
        if row is not None and not row["hidden"] and row["host"] in names and row["host"] != move["source_host"]:
            continue  # it has returned since, or went from one of these hosts to another
        if move["parent_kind"] == KIND:
            continue  # it was brought home: it was there only while its own host was closed or dead
        why = _why_not(move, row, names)
        if why:
            others[server] = why
        else:
            homes[server] = move["source_host"]
    return homes, others


def _why_not(move: Row, server: Row | None, names: Sequence[str]) -> str:
    if server is None or server["deleted"] or server["hidden"]:
        return "it was deleted since"
    if move["source_host"] not in names:
        return f"it has moved since, from {move['source_host']} to {move['dest_host']}: that is not undone"
    if move["kind"] == "resize":
        return f"it left {move['source_host']} by a resize: its owner wanted that"
    return ""


async def _starts(ground: Ground, names: Sequence[str], report: CellReport) -> list[PlannedMove]:
    """Plan to start servers that a drain stopped there and that were not changed since."""

    async def body(tx: Tx) -> list[str]:
        return [row["server_id"] for row in await tx.all(_STOPPED_HERE, hosts=[*names])]

    ids = sorted(await ground.journal.read(body))
    stopped = await read_servers(ground, names, Start(), Params(), only=ids)
    report.refused |= stopped.refused
    return [_start(server) for server in _by_rank(stopped.servers)]


def _by_rank(stopped: Iterable[Server]) -> list[Server]:
    return sorted(stopped, key=lambda one: (choice_of(one)[0] or 0, one.id))


def _start(server: Server) -> PlannedMove:
    why = "a drain has stopped it there"
    host = server.host_name
    return PlannedMove(do="start", server=server.id, name=server.name, source=host, to=host, why=why)
