"""The plans of operations about whole hosts: read their servers once, ask the planner once, and decide about each
server.

A step of the operation and its dry run use the same function, so they give the same result. This module has the common
functions and the plan of an evacuation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import select

from kilonova.domain.cause import Cause
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.host import HostState
from kilonova.domain.json import as_list
from kilonova.domain.params import MoveParams
from kilonova.domain.server import Server
from kilonova.domain.whole_hosts import GIB, MIB, HostPlan, Misfit, PlannedMove, Proof, choice_of_owners, estimate
from kilonova.engine.accept import admitted
from kilonova.engine.context import AnyContext, Subject
from kilonova.engine.model import F, Operation, P
from kilonova.operations.evacuate import Evacuate
from kilonova.operations.steps.group import HINT, rule_of
from kilonova.operations.steps.outlook import all_disks, boots_from_volume, evacuated_disks
from kilonova.operations.steps.select import request_of
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.planner import ServerPlacement
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.service import Scheduler
from kilonova.schema.tables.cell import hosts, servers
from kilonova.schema.tables.journal import operations
from kilonova.settings import Settings
from kilonova.store.hosts import judge_all
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Tx

NO_PLAN = HostPlan(operation="", hosts={})
CHUNK = 500  # ids in one statement
UNHEARD = ("host_down", "host_unknown")  # codes of refusals because the server's host does not answer
_SERVERS_THERE = Sql(
    select(servers)
    .where(in_list(servers.c.host, "hosts"), servers.c.deleted == 0, servers.c.hidden == 0)
    .order_by(servers.c.id)
)
_SERVERS_NAMED = Sql(
    select(servers)
    .where(in_list(servers.c.id, "ids"), servers.c.deleted == 0, servers.c.hidden == 0)
    .order_by(servers.c.id)
)
_LIVE = Sql(select(operations).where(in_list(operations.c.id, "ids"), operations.c.live == 1))
_STORAGE = Sql(select(hosts.c.name, hosts.c.storage))


@dataclass(frozen=True)
class Ground:
    """The inputs of a plan: stores, scheduler, settings, and the cause."""

    journal: Store
    control: Store
    placement: Store
    scheduler: Scheduler
    settings: Settings
    cause: Cause
    operation_id: str = ""  # children of this one that run already are part of the plan


def ground_of(ctx: AnyContext) -> Ground:
    assert ctx.scheduler is not None
    stores = ctx.world.db
    return Ground(
        ctx.journal, stores.control, stores.placement, ctx.scheduler, ctx.settings, ctx.cause, ctx.operation_id
    )


@dataclass
class CellReport:
    """The cell's records of these hosts."""

    states: dict[str, HostState]
    storage: dict[str, str | None]
    servers: list[Server] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    all: dict[str, Server] = field(default_factory=dict)  # by id


@dataclass
class Seated:
    seats: list[ServerPlacement]
    spared: dict[str, str]

    def moves(self, report: CellReport, do: str) -> list[PlannedMove]:
        by_id = {server.id: server for server in report.servers}
        going = [seat for seat in self.seats if _may_move(seat)]
        return [_move(seat, by_id[seat.request.server], report.storage, do) for seat in going]

    def misfits(self, report: CellReport) -> dict[str, Misfit]:
        by_id = {server.id: server for server in report.servers}
        staying = [seat for seat in self.seats if not _may_move(seat)]
        return {seat.request.server: _misfit(seat, by_id[seat.request.server]) for seat in staying}


async def plan_evacuation(ground: Ground, names: Sequence[str], accepts_unfenced: bool | None) -> HostPlan:
    child = MoveParams(child=True, accept_unfenced=accepts_unfenced)
    report = await read_servers(ground, names, Evacuate(), child)
    excluded = dict.fromkeys(names, "it is evacuated")
    seated = await seat_all(ground, report.servers, excluded=excluded, rescue=True)
    return whole_plan("evacuate_host", ground, report, names, seated.moves(report, "evacuate"), seated)


def whole_plan(
    operation: str,
    ground: Ground,
    report: CellReport,
    names: Sequence[str],
    moves: Sequence[PlannedMove],
    seated: Seated,
) -> HostPlan:
    options = ground.settings.conductor
    each, rate = options.move_seconds, options.move_mb_per_second * 1e6
    return HostPlan(
        operation=operation,
        hosts={name: Proof.of(report.states[name]) for name in names},
        moves=[*moves],
        misfits=seated.misfits(report),
        refused=report.refused,
        spared=seated.spared,
        bytes=sum(move.bytes for move in moves),
        seconds=estimate(moves, at_once=options.evacuations_per_destination, each=each, bytes_per_second=rate),
    )


async def seat_all(
    ground: Ground,
    there: Sequence[Server],
    *,
    excluded: Mapping[str, str],
    rescue: bool = False,
    homes: Mapping[str, str] | None = None,
    opened: Sequence[str] = (),
) -> Seated:
    """Place all servers together, by rank.

    `rescue`: their host is dead. `homes`: by server, the only host that it may go to. `opened`: hosts that are closed
    now, and will be open.
    """
    ranks: dict[str, int] = {}
    spared: dict[str, str] = {}
    requests: list[ResourceRequest] = []
    groups: dict[tuple[str, str], GroupRule | None] = {}
    for server in there:
        rank, why = choice_of(server)
        if rank is None:
            spared[server.id] = why
            continue
        ranks[server.id] = rank
        details = server.details
        group = await _group(ground.control, groups, details, server.host_name if rescue else "")
        request = _request(server, details, ground.journal.name, excluded, group, rescue=rescue)
        home = (homes or {}).get(server.id)
        requests.append(msgspec.structs.replace(request, wanted_host=home) if home else request)
    at_once = ground.settings.conductor.evacuations_per_destination
    seats = await ground.scheduler.plan(requests, [ground.journal.name], ranks, at_once=at_once, opened=opened)
    return Seated(seats, spared)


def choice_of(server: Server) -> tuple[int | None, str]:
    """Return the server's rank, or None and the reason why it stays."""
    return choice_of_owners(server.flavor.extra_specs, server.details.metadata)


async def read_servers(
    ground: Ground, names: Sequence[str], child: Operation[F, P], params: P, *, only: Sequence[str] | None = None
) -> CellReport:
    """Read the servers of these hosts, or `only` those with these ids. A server that the child operation cannot have
    now is refused. A busy server of a living host is waited for, and so is a host that may be alive (law 18)."""

    async def body(tx: Tx) -> CellReport:
        states = await judge_all(tx, ground.settings.default.service_down_time)
        storage = {row["name"]: row["storage"] for row in await tx.all(_STORAGE)}
        report = CellReport(states, storage)
        there = await _servers(tx, names, only)
        report.all = {server.id: server for server in there}
        live = await _live(tx, there)
        for server in there:
            running = live.get(server.operation_id or "")
            subject = Subject(server, states.get(server.host_name), None, None, running, params, ground.cause)
            if running is not None and running["parent_id"] == ground.operation_id != "":
                report.servers.append(server)  # a child of an earlier plan: it goes on
                continue
            try:
                if running is not None and child.joins(subject):
                    raise Refused("busy", f"it is being evacuated already: operation {running['id']}")
                await admitted(tx, child, subject)
            except Refused as why:
                if (why.code == "busy" and not child.supersedes) or _may_answer(why, subject.host):
                    report.servers.append(server)
                else:
                    report.refused[server.id] = why.message
            else:
                report.servers.append(server)
        return report

    return await ground.journal.read(body)


def _may_answer(why: Refused, host: HostState | None) -> bool:
    return why.code in UNHEARD and host is not None and host.status == "unknown"


async def _servers(tx: Tx, names: Sequence[str], only: Sequence[str] | None) -> list[Server]:
    if only is None:
        return [Server.from_row(row) for row in await tx.all(_SERVERS_THERE, hosts=[*names])]
    subset: list[Server] = []
    for first in range(0, len(only), CHUNK):
        subset += [Server.from_row(row) for row in await tx.all(_SERVERS_NAMED, ids=[*only[first : first + CHUNK]])]
    return subset


async def _live(tx: Tx, there: Sequence[Server]) -> dict[str, Row]:
    ids = [server.operation_id for server in there if server.operation_id is not None]
    live: dict[str, Row] = {}
    for first in range(0, len(ids), CHUNK):
        live |= {row["id"]: row for row in await tx.all(_LIVE, ids=ids[first : first + CHUNK])}
    return live


async def _group(
    control: Store, known: dict[tuple[str, str], GroupRule | None], details: Details, source: str
) -> GroupRule | None:
    """Return the rule of a server's group, as steps/group.py does for one server."""
    named = as_list(details.scheduler_hints.get(HINT))
    if not named:
        return None
    key = (str(named[0]), source)
    if key not in known:
        known[key] = await rule_of(control, *key)
    return known[key]


def _request(
    server: Server,
    details: Details,
    cell: str,
    excluded: Mapping[str, str],
    group: GroupRule | None,
    *,
    rescue: bool,
) -> ResourceRequest:
    return request_of(
        details,
        image=server.image_ref,
        flavor=server.flavor,
        server=server.id,
        project=server.project_id,
        excluded=dict(excluded),
        group=group,
        home=cell,
        rescue=rescue,
    )


def _may_move(seat: ServerPlacement) -> bool:
    """Return True if the server has a host, or may get one when an unreachable host answers (law 18)."""
    return seat.choice is not None or (seat.decision is not None and bool(seat.decision.unknown))


def _move(seat: ServerPlacement, server: Server, storage: Mapping[str, str | None], do: str) -> PlannedMove:
    move = PlannedMove(do=do, server=server.id, name=server.name, source=server.host_name, after=[*seat.after])
    if seat.choice is None:
        assert seat.decision is not None
        # A returning server goes home or nowhere: the child waits for that host, and needs its name.
        home = seat.request.wanted_host or ""
        why = f"it waits for {seat.decision.awaited()}: no other host fits"
        return msgspec.structs.replace(move, to=home, why=why)
    shared = storage.get(server.host_name)
    is_shared = bool(shared) and shared == storage.get(seat.choice.host)
    disks = (
        evacuated_disks(server, is_shared=is_shared) if do == "evacuate" else all_disks(server, "kept", "re-created")
    )
    bytes_ = 0 if is_shared else _bytes(server)
    return msgspec.structs.replace(move, to=seat.choice.host, why=seat.rule, disks=disks, bytes=bytes_)


def _bytes(server: Server) -> int:
    flavor = server.flavor
    root = 0 if boots_from_volume(server) else flavor.disk_gb
    return (root + sum(flavor.ephemeral_disks)) * GIB + flavor.swap_disk_mb * MIB


def _misfit(seat: ServerPlacement, server: Server) -> Misfit:
    decision = seat.decision
    assert decision is not None
    why = f"No valid host was found. {decision.sentence()}"
    others = [one for one in decision.verdicts if one.host not in seat.request.excluded]  # it leaves those in any case
    nearest = next((f"; nearest: {one.host}: {one.sentence}" for one in others), "")
    return Misfit(name=server.name, source=server.host_name, why=why + nearest, changes=[*decision.changes])


class _Result(msgspec.Struct):
    plan: HostPlan = NO_PLAN


def plan_from(document: str | None) -> HostPlan:
    """Return the plan from the result of the step that made it; an empty one if there is none yet."""
    return NO_PLAN if document is None else msgspec.json.decode(document, type=_Result).plan
