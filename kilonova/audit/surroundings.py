"""Read the servers' surroundings: copies, ports and volumes; and ask the hosts for their copies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy import select

from kilonova.audit.differences import AuditRecords, Difference, compare
from kilonova.domain.errors import StoreError
from kilonova.domain.guest import CopyReport
from kilonova.domain.server import SOFT_DELETED
from kilonova.schema.tables import cell, control, network, volume
from kilonova.schema.tables.journal import operations
from kilonova.store.findings import OPEN as OPEN_FINDINGS
from kilonova.store.restored_at import is_soft_deleted_before, restored_at
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Stores, Tx

AskHost = Callable[[str, str], Awaitable[Sequence[CopyReport] | None]]  # cell, host → copies; None: no answer
AT_ONCE = 64  # hosts queried at the same time

_SERVER = ("id", "host", "runner_host", "runner_copy", "vm_state", "turn", "network_info", "volume_info", "deleted")
_SERVERS = Sql(select(*cell.servers.c[_SERVER]))
_SOFT_DELETED = Sql(
    select(*cell.servers.c["id", "details", "turn", "turn_floor"]).where(
        cell.servers.c.vm_state == SOFT_DELETED, cell.servers.c.deleted == 0
    )
)
_COPIES = Sql(select(*cell.copies.c["server_id", "copy", "host", "state"]))
_QUARANTINE = Sql(select(*cell.quarantine.c["server_id", "copy", "host"]).where(cell.quarantine.c.ended_at.is_(None)))
_DEBTS = Sql(select(*cell.debts.c["server_id", "copy", "host"]))
_HOSTS = Sql(
    select(cell.hosts.c.name).where(
        cell.hosts.c.forced_down == 0, cell.hosts.c.fenced.is_(None), cell.hosts.c.returning == 0
    )
)
_LIVE = Sql(select(operations.c.server_id).where(operations.c.live == 1))
_UNPLACED = Sql(select(control.build_requests.c.server_id))
_OF_COMPUTE = (network.ports.c.slot >= 0, network.ports.c.device_id != "")
_PORTS = Sql(select(*network.ports.c["id", "device_id", "host"]).where(*_OF_COMPUTE))
_CHANGED = Sql(select(network.changed_ports.c.server_id))
_ATTACHMENTS = Sql(select(*volume.attachments.c["id", "volume_id", "server_id", "host", "turn"]))
_VOLUMES = Sql(select(*volume.volumes.c["id", "status"]).where(volume.volumes.c.status == "in-use"))


async def find_differences(stores: Stores, ask: AskHost | None) -> tuple[list[Difference], list[str]]:
    """Return the differences both before and after the hosts were queried, of servers unchanged in between; and the
    hosts that did not answer. Raise StoreError if control cannot be read."""
    before = await _read(stores)
    hosts = before.hosts if ask is not None else {}
    holdings = await _ask_all(hosts, ask) if ask is not None else {}
    differences = compare(before, holdings)
    if differences:
        after = await _read(stores)
        differences = {one for one in differences & compare(after, holdings) if _is_still(before, after, one.server)}
    return sorted(differences), sorted(hosts.keys() - holdings.keys())


def _is_still(before: AuditRecords, after: AuditRecords, server: str) -> bool:
    return before.complete == after.complete and before.turns.get(server) == after.turns.get(server)


async def _ask_all(hosts: dict[str, str], ask: AskHost) -> dict[str, Sequence[CopyReport]]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(host: str, cell_name: str) -> Sequence[CopyReport] | None:
        async with gate:
            return await ask(cell_name, host)

    answers = await asyncio.gather(*(one(host, cell_name) for host, cell_name in hosts.items()))
    return {host: copies for host, copies in zip(hosts, answers, strict=True) if copies is not None}


async def _read(stores: Stores) -> AuditRecords:
    """Read control before the cells: an operation only ever goes from control to a cell."""
    records = AuditRecords()

    async def from_control(tx: Tx) -> None:
        for statement in (_UNPLACED, _LIVE, OPEN_FINDINGS):
            records.busy |= {row["server_id"] or "" for row in await tx.all(statement)}
        records.ports = list(await tx.all(_PORTS))
        records.changed = {row["server_id"] for row in await tx.all(_CHANGED)}
        attachments = await tx.all(_ATTACHMENTS)
        records.attachments = [row for row in attachments if row["turn"] > 0]
        records.attached = {row["volume_id"] for row in attachments}
        records.volumes = list(await tx.all(_VOLUMES))

    await stores.control.read(from_control)
    for name in stores.cells():
        try:
            await _read_cell(stores.cell(name), records)
        except StoreError:
            records.complete = False
    records.busy.discard("")
    return records


async def _read_cell(store: Store, records: AuditRecords) -> None:
    async def body(tx: Tx) -> tuple[Sequence[Row], ...]:
        restored = await restored_at(tx)
        if restored >= 0:
            left = [row for row in await tx.all(_SOFT_DELETED) if is_soft_deleted_before(row, restored)]
            records.not_reclaimed |= {row["id"] for row in left}
        statements = (_SERVERS, _COPIES, _QUARANTINE, _DEBTS, _HOSTS, _LIVE, OPEN_FINDINGS)
        return tuple([await tx.all(statement) for statement in statements])

    servers, copies, quarantine, debts, hosts, live, findings = await store.read(body)
    records.servers |= {row["id"]: row for row in servers if not row["deleted"]}
    records.turns |= {row["id"]: row["turn"] for row in servers}
    records.copies |= {(row["server_id"], row["copy"], row["host"]): row["state"] for row in copies}
    records.excused |= {(row["server_id"], row["copy"], row["host"]) for row in (*quarantine, *debts)}
    records.hosts |= {row["name"]: store.name for row in hosts}
    records.busy |= {row["server_id"] or "" for row in (*live, *findings)}
