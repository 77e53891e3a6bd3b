"""The servers that control and the cells disagree about after a restore (law 15).

No server is lost by that, and each stays within its owner's reach: a record that control does not map is mapped again,
and a mapped server without a record gets one in ERROR, made from its request spec and from placement, ports and
volumes. An operator then adopts its guest from quarantine, or its owner deletes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import select

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import (
    ERROR,
    LOST,
    LOST_IN_MOVE,
    SETTLED,
    SHOWN,
    Server,
    flavor_from,
    to_json,
)
from kilonova.domain.volume import ServerVolume, server_volumes
from kilonova.placement.books import Held, by_consumer, read_allocations
from kilonova.quota.usage import count_server, map_server, set_size, unmap_server
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.placement import allocations, ledger
from kilonova.schema.tables.volume import attachments
from kilonova.services.network.servers import vifs_of
from kilonova.store import rows
from kilonova.store.new_server import new_server
from kilonova.store.open_stores import CELL0, OpenStores
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

MISSING = "The record of the server was lost, and was made again of what was asked for."
ADVICE = "adopt its guest from quarantine (`kilonova quarantine list`), or delete the server"
_COLUMNS = ("id", "project_id", "user_id", "flavor", "vm_state", "hidden", "deleted", "created_at", "launched_at")
_SERVERS = Sql(select(*cell.servers.c[_COLUMNS]))
_MAPPINGS = Sql(select(control.server_mappings).where(control.server_mappings.c.queued_for_delete == 0))
_SPECS = Sql(select(control.request_specs).where(in_list(control.request_specs.c.server_id, "servers")))
_HOSTS = Sql(select(control.host_mappings.c.host))
_ATTACHMENTS = Sql(
    select(attachments)
    .where(in_list(attachments.c.server_id, "servers"), attachments.c.turn > 0)
    .order_by(attachments.c.created_at)
)
_IN_MOVE = Sql(  # a migration that still holds something; the ledger says whose it is
    select(ledger.c.server_id)
    .join(allocations, allocations.c.consumer == ledger.c.consumer)
    .where(in_list(ledger.c.server_id, "servers"), ledger.c.server_id != ledger.c.consumer)
    .distinct()
)
_ALL_ATTACHMENTS = Sql(
    select(attachments)
    .where(attachments.c.server_id.is_not(None), attachments.c.turn > 0)
    .order_by(attachments.c.created_at)
)


@dataclass
class Whereabouts:
    """The cell that control maps each server to, and the cells that have a record of it."""

    mapped: dict[str, Row] = field(default_factory=dict)
    recorded: dict[str, dict[str, Row]] = field(default_factory=dict)  # server → cell → row

    def missing_in(self, name: str) -> list[str]:
        """Return servers that control maps to this cell and that no cell has a record of."""
        return sorted(
            server for server, row in self.mapped.items() if row["cell"] == name and server not in self.recorded
        )

    def home_of(self, server: str) -> str | None:
        """Return the cell whose record of the server counts: one in which it has had a guest, else the one that control
        maps it to.

        A server moves into cell0 and out of it, and one of the two databases may be from before that.
        """
        records = {name: row for name, row in self.recorded.get(server, {}).items() if not row["deleted"]}
        launched = {name for name, row in records.items() if row["launched_at"] is not None}
        mapping = self.mapped.get(server)
        if mapping is not None and mapping["cell"] in (launched or records):
            return str(mapping["cell"])
        return max(launched or records, key=lambda one: (one != CELL0, one), default=None)


async def find_servers(stores: OpenStores) -> Whereabouts:
    """Find the servers. Control is read before the cells: whatever it maps was recorded by then."""
    whereabouts = Whereabouts()

    async def from_control(tx: Tx) -> None:
        whereabouts.mapped = {row["server_id"]: row for row in await tx.all(_MAPPINGS)}

    await stores.control.read(from_control)
    for name in stores.cells():

        async def from_cell(tx: Tx) -> Sequence[Row]:
            return await tx.all(_SERVERS)

        for row in await stores.cell(name).read(from_cell):
            whereabouts.recorded.setdefault(row["id"], {})[name] = row
    return whereabouts


# -- a mapping without a record -------------------------------------------------------------------------------------


async def record_missing(
    stores: OpenStores, name: str, servers: list[str], floor: int, *, reports_decide: bool = False
) -> int:
    """Insert records of these servers into the cell, and return their number. It may be repeated.

    With `reports_decide` placement is up to date, and the next report of the host that has a server's claim may set its
    state.
    """
    if not servers:
        return 0

    async def ask_placement(tx: Tx) -> tuple[Held, set[str]]:
        moving = {row["server_id"] for row in await tx.all(_IN_MOVE, servers=servers)}
        return by_consumer(await read_allocations(tx, servers)), moving

    held, moving = await stores.placement.read(ask_placement)

    async def ask_control(tx: Tx) -> list[Server]:
        lost_ones = await _lost_servers(tx, name, servers, held, floor)
        if not reports_decide:
            return lost_ones
        return [one.changed({"unsettled": _undecided(one, held.get(one.id, {}), moving)}) for one in lost_ones]

    lost = await stores.control.read(ask_control)

    async def body(tx: Tx) -> None:
        now = await tx.now()
        for server in lost:
            if await rows.fetch(tx, cell.servers, id=server.id) is None:
                await rows.put_row(tx, cell.servers, server.columns())
                fault = {"server_id": server.id, "operation_id": "", "code": 500, "created_at": now}
                await rows.put_row(tx, cell.faults, {**fault, "message": MISSING, "details": ADVICE})

    await stores.cell(name).write(body)
    return len(lost)


async def _lost_servers(tx: Tx, name: str, servers: list[str], held: Held, floor: int) -> list[Server]:
    """Return records of the servers. One without a request spec cannot be made again: the audit names it."""
    rows_of = await tx.all(_SPECS, servers=servers)
    specs = {row["server_id"]: msgspec.json.decode(row["spec"], type=ServerSpec) for row in rows_of}
    hosts = {row["host"] for row in await tx.all(_HOSTS)}
    vifs = await vifs_of(tx, servers)
    attached: dict[str, list[Row]] = {}
    for row in await tx.all(_ATTACHMENTS, servers=servers):
        attached.setdefault(row["server_id"], []).append(row)
    lost = []
    for server, spec in specs.items():
        state: dict[str, str | float | None] = {
            "vm_state": ERROR,
            "task_state": None,
            "hidden": 0,
            "turn_floor": floor,
            "unsettled": SETTLED,
        }
        state |= {"network_info": to_json(vifs[server]) if server in vifs else None}
        state |= {"volume_info": _volumes(spec, attached.get(server, []))}
        if name == CELL0:
            state["cell0_failure"] = "not_known"  # it may be tried again
        else:
            state |= _placed(spec, held.get(server, {}), hosts)
        lost.append(new_server(server, floor, spec, **state))
    return lost


def _placed(spec: ServerSpec, held: dict[tuple[str, str], dict[str, int]], hosts: set[str]) -> dict[str, str | None]:
    """Return the host and claim by placement: then the claim is the server's, and an audit leaves it."""
    shares = {provider: amounts for (provider, holder), amounts in held.items() if not holder}
    there = sorted(hosts & shares.keys())
    if len(there) != 1:
        return {}
    plain = {there[0]: spec.flavor.resources()}
    return {"host": there[0], "claimed": None if shares == plain else to_json(shares)}


def _undecided(server: Server, held: dict[tuple[str, str], dict[str, int]], moving: set[str]) -> int:
    """Return how unsettled a server is: after an open move or evacuation, a copy that is off may not be the newest."""
    if server.host is None:
        return SETTLED
    return LOST_IN_MOVE if server.id in moving or any(holder for _, holder in held) else LOST


def _volumes(spec: ServerSpec, attached: list[Row]) -> str | None:
    """Return the volumes, none of them deleted with the server: the owner's choice is lost."""
    if not attached:
        return "[]" if spec.volumes else None
    from_volume = spec.details.volume_backed
    return to_json([_volume(row, is_root=from_volume and not number) for number, row in enumerate(attached)])


def _volume(row: Row, *, is_root: bool = False) -> ServerVolume:
    ids = {"id": row["id"], "volume_id": row["volume_id"], "attachment_id": row["id"]}
    return ServerVolume(**ids, device=row["device"] or "", is_root=is_root)


async def record_attachments(stores: OpenStores, name: str) -> int:
    """Record volumes that compute has attached to servers of this cell and that their records do not name: from then on
    they can be detached, and are released with the server. Return how many."""

    async def ask_control(tx: Tx) -> Sequence[Row]:
        return await tx.all(_ALL_ATTACHMENTS)

    by_server: dict[str, list[Row]] = {}
    for row in await stores.control.read(ask_control):
        by_server.setdefault(row["server_id"], []).append(row)

    async def body(tx: Tx) -> int:
        added = 0
        for server, attached in by_server.items():
            row = await rows.fetch(tx, cell.servers, lock=True, id=server, deleted=0)
            there = server_volumes(row["volume_info"]) if row is not None else []
            known = {one.attachment_id for one in there} | {one.volume_id for one in there}
            new = [one for one in attached if not known & {one["id"], one["volume_id"]}]
            if row is not None and new:
                volumes = [*there, *(_volume(one) for one in new)]
                await rows.change(tx, cell.servers, {"volume_info": to_json(volumes)}, id=server)
                added += len(new)
        return added

    return await stores.cell(name).write(body) if by_server else 0


# -- a record without a mapping -------------------------------------------------------------------------------------


async def map_recorded(tx: Tx, whereabouts: Whereabouts, now: float) -> int:
    """Map every record to its cell in control, and a deleted server to none; return the number of changed mappings.

    Soft-deleted servers are included: they may have been restored since the backup, so they are not reclaimed.
    """
    changed = 0
    for row in await tx.all(_SPECS, servers=sorted(whereabouts.mapped.keys() - whereabouts.recorded.keys())):
        await count_server(tx, row["server_id"])  # its record was made again just now, in ERROR
    for server, records in whereabouts.recorded.items():
        there = {name: row for name, row in records.items() if not row["deleted"]}
        mapping = await rows.fetch(tx, control.server_mappings, server_id=server)
        mapped_to = None if mapping is None or mapping["queued_for_delete"] else mapping["cell"]
        if not there:
            if mapped_to in records:
                await unmap_server(tx, server)
                changed += 1
            continue
        if mapped_to in there:
            await _count_with(tx, server, there[mapped_to])
            continue
        name = max(there, key=lambda one: (one != CELL0, one))
        if await _map_to(tx, server, mapping, name, there[name], now):
            changed += 1
    return changed


async def _map_to(tx: Tx, server: str, mapping: Row | None, name: str, row: Row, now: float) -> bool:
    """Map the record to the cell. False: the row is hidden, and its owner sees the build request instead."""
    request = await rows.fetch(tx, control.build_requests, server_id=server)
    if row["hidden"] and request is not None:
        return False
    if mapping is None:
        flavor = flavor_from(row["flavor"])
        owner = row["project_id"], row["user_id"]
        await map_server(tx, server, owner, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb, now=now)
    await rows.remove(tx, control.build_requests, server_id=server)
    await rows.change(tx, control.server_mappings, {"cell": name, "queued_for_delete": 0}, server_id=server)
    await _count_with(tx, server, row)
    return True


async def _count_with(tx: Tx, server: str, row: Row) -> None:
    """Update the quota and the request spec to the flavor of the record: the server may have been resized, or have lost
    its resize, since one of them was written."""
    flavor = flavor_from(row["flavor"])
    await count_server(tx, server)
    await set_size(tx, server, {"cores": flavor.vcpus, "ram": flavor.memory_mb})
    request = await rows.fetch(tx, control.request_specs, server_id=server)
    spec = msgspec.json.decode(request["spec"], type=ServerSpec) if request is not None else None
    if spec is not None and spec.flavor != flavor:
        spec.flavor = flavor
        await rows.change(tx, control.request_specs, {"spec": to_json(spec)}, server_id=server)


async def settle_homes(stores: OpenStores, whereabouts: Whereabouts) -> None:
    """Leave each server without a build request in its home cell only, visible to its owner.

    Hidden records, which were on their way between two databases, are shown; records in another cell than the home are
    dropped. A copy that a host has of such a server then goes to quarantine.
    """

    async def requests(tx: Tx) -> set[str]:
        return {row["server_id"] for row in await rows.fetch_all(tx, control.build_requests)}

    waiting = await stores.control.read(requests)
    for name in stores.cells():
        here = {server: records[name] for server, records in whereabouts.recorded.items() if name in records}
        concerned = sorted(here.keys() - waiting)
        strays = [one for one in concerned if not here[one]["deleted"] and whereabouts.home_of(one) != name]
        hidden = [one for one in concerned if here[one]["hidden"] and one not in strays]

        async def body(tx: Tx, strays: list[str] = strays, hidden: list[str] = hidden) -> None:
            for server in strays:
                await rows.remove(tx, cell.servers, id=server)
                await rows.remove(tx, cell.copies, server_id=server)
                await rows.remove(tx, cell.debts, server_id=server)
            for server in hidden:
                await rows.change(tx, cell.servers, {"hidden": SHOWN, "vm_state": ERROR}, id=server)

        if strays or hidden:
            await stores.cell(name).write(body)
        for server in strays:
            del whereabouts.recorded[server][name]
