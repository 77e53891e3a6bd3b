"""A new era after an older copy of a database was restored (law 15): `kilonova db restored`.

Since the backup servers may have been created, deleted and moved without a record. So no operation goes on, turns begin
above all that were ever given out, every host has to report its copies again, and no copy is removed or started because
of records from before. Nor is a file of a volume or image made, replaced or removed (restored_files.py), nor a volume
deleted with its server (restored_volumes.py). The command can be repeated: after an interrupted run it starts again
with the next era.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec
from sqlalchemy import bindparam, delete, or_, select, update

from kilonova.domain.params import BuildRequest
from kilonova.domain.server import BUILDING, ERROR, RESIZED, to_json
from kilonova.engine import journal as log
from kilonova.engine import records
from kilonova.engine.core import has_servers
from kilonova.engine.course import Problem
from kilonova.engine.restored_files import end_file_work
from kilonova.engine.restored_gone import settle_gone_hosts
from kilonova.engine.restored_hosts import record_hosts
from kilonova.engine.restored_records import (
    Whereabouts,
    find_servers,
    map_recorded,
    record_attachments,
    record_missing,
    settle_homes,
)
from kilonova.engine.restored_volumes import keep_volumes_in_control, keep_volumes_of_servers
from kilonova.engine.secrets import forget
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations, steps
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.store.badges import read_badge
from kilonova.store.lost_databases import latest_era
from kilonova.store.open_stores import OpenStores
from kilonova.store.roll import CONTROL
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
TURNS = 1_000_000  # per era: more than a server ever has in one
WHY = "An older copy of the records was put back while the operation was under way."
_LIVE = Sql(select(operations).where(operations.c.live == 1).order_by(operations.c.id))
_DROP_STEPS = Sql(
    update(steps).where(steps.c.open == 1).values(state="dropped", open=0, ended_at=bindparam("now", required=True))
)
_SERVERS = Sql(
    update(cell.servers)
    .where(cell.servers.c.deleted == 0)
    .values(turn=bindparam("floor"), turn_floor=bindparam("floor"), unsettled=1, operation_id=None, task_state=None)
)
# Being built, or being deleted when its guest was gone already: no copy of it may run.
_INCOMPLETE = Sql(
    update(cell.servers)
    .where(cell.servers.c.deleted == 0, or_(cell.servers.c.vm_state == BUILDING, cell.servers.c.runner_host.is_(None)))
    .values(vm_state=ERROR)
)
# The operation that gave permission to run did not come to the server's place: the permission counts.
_FOLLOW_RUNNER = Sql(
    update(cell.servers)
    .where(
        cell.servers.c.deleted == 0,
        cell.servers.c.runner_host.is_not(None),
        or_(cell.servers.c.host != cell.servers.c.runner_host, cell.servers.c.copy != cell.servers.c.runner_copy),
    )
    .values(host=cell.servers.c.runner_host, copy=cell.servers.c.runner_copy, claimed=None)
)
# A fence that was set before the backup proves nothing: the host may have been switched on since.
_HOSTS = Sql(update(cell.hosts).values(epoch=cell.hosts.c.epoch + 1, session=None, returning=1, fenced=None))
_CLOSE_MOVE = Sql(
    update(cell.migrations)
    .where(
        cell.migrations.c.operation_id == bindparam("operation"),
        or_(cell.migrations.c.open == 1, cell.migrations.c.status == "accepted"),
    )
    .values(status="error", open=0)
)
_REOPEN_MOVE = Sql(  # its owner's confirm or revert was abandoned: it may be repeated
    update(cell.migrations)
    .where(
        cell.migrations.c.server_id == bindparam("server"),
        cell.migrations.c.open == 1,
        or_(cell.migrations.c.status == "confirming", cell.migrations.c.status == "reverting"),
    )
    .values(status="finished")
)
# A revert that had given permission back to the source: the server is there, with its old flavor, and is what it was
# before the move. Nothing waits for the destination's copy.
_REVERTED = Sql(
    select(*cell.migrations.c["id", "server_id", "old_vm_state"])
    .where(cell.migrations.c.open == 1, cell.migrations.c.status == "reverted")
    .order_by(cell.migrations.c.number)
)
_REQUESTS = Sql(select(control.build_requests))
_WORKERS = Sql(delete(control.workers))


class RestoreReport(NamedTuple):
    """The changes made in one database."""

    name: str
    before: int
    era: int
    abandoned: int  # operations
    servers: int  # that are compared with what hosts report
    recorded: int = 0  # servers that control knew and the cell did not
    attached: int = 0  # volumes that control had attached and the servers' records did not name
    mapped: int = 0  # servers that a cell knew and control did not
    files: tuple[str, ...] = ()  # a sentence for each volume, snapshot and image whose work on files was ended
    volume_sentences: tuple[str, ...] = ()  # a sentence for each volume that went with its server


async def begin_era(stores: OpenStores) -> list[RestoreReport]:
    """Begin a new era in every database; all must answer. Control is the last: while it is of the old era, all
    processes halt."""
    era = await latest_era(*(_store(stores, name) for name in stores.databases())) + 1
    accounts = [await _begin(stores, name, era) for name in (*stores.cells(), "placement")]
    servers = await find_servers(stores)
    await settle_homes(stores, servers)
    for position, name in enumerate(stores.cells()):
        recorded = await record_missing(stores, name, servers.missing_in(name), era * TURNS)
        attached = await record_attachments(stores, name)
        await record_hosts(stores, name)
        await settle_gone_hosts(stores, name)
        accounts[position] = accounts[position]._replace(recorded=recorded, attached=attached)
    accounts.append(await _begin(stores, CONTROL, era, servers))
    abandoned, compared = sum(one.abandoned for one in accounts), sum(one.servers for one in accounts)
    text = "databases restored: era=%d operations_abandoned=%d servers_to_compare=%d"
    logger.warning(text, era, abandoned, compared)
    for sentence in accounts[-1].files:
        logger.warning("file work ended: %s", sentence)
    for sentence in (sentence for one in accounts for sentence in one.volume_sentences):
        logger.warning("volume kept: %s", sentence)
    return accounts


def _store(stores: OpenStores, name: str) -> Store:
    return {"control": stores.control, "placement": stores.placement}.get(name) or stores.cell(name)


async def _begin(stores: OpenStores, name: str, era: int, whereabouts: Whereabouts | None = None) -> RestoreReport:
    store = _store(stores, name)

    async def body(tx: Tx) -> RestoreReport:
        now = await tx.now()
        badge = await read_badge(tx)
        before = badge.era if badge is not None else 0
        abandoned = await _abandon_all(tx, store, now) if name != "placement" else 0
        servers = await _protect_servers(tx, era) if name not in (CONTROL, "placement") else 0
        volumes = await keep_volumes_of_servers(tx) if name not in (CONTROL, "placement") else []
        mapped, files = 0, list[str]()
        if whereabouts is not None:
            mapped = await map_recorded(tx, whereabouts, now)
            await _fail_unplaced(tx, era)
            files, volumes = await end_file_work(tx, now), await keep_volumes_in_control(tx)
            await tx.run(_WORKERS)
        values = {"era": era, "mark": 1, "restored": "", "restored_at": now}
        await rows.change(tx, this_store, values, id=1)
        return RestoreReport(
            name, before, era, abandoned, servers, mapped=mapped, files=tuple(files), volume_sentences=tuple(volumes)
        )

    return await store.write(body)


async def _abandon_all(tx: Tx, store: Store, now: float) -> int:
    live = await tx.all(_LIVE)
    for row in live:
        await _abandon(tx, store, row, now)
    await tx.run(_DROP_STEPS, now=now)
    return len(live)


async def _abandon(tx: Tx, store: Store, row: Row, now: float) -> None:
    op = log.op_from(row)
    error = to_json(Problem(code="abandoned", message=WHY))
    values = {"state": "failed", "live": 0, "waiting_for": None, "error": error, "updated_at": now, "ended_at": now}
    await rows.change(tx, operations, values | log.stripped(op), id=op.id)
    await forget(tx, op.id)
    if has_servers(store):
        await records.interrupted(tx, op, WHY, now)
        await tx.run(_CLOSE_MOVE, operation=op.id)
        await tx.run(_REOPEN_MOVE, server=op.server_id)


async def _end_reverted(tx: Tx) -> None:
    for move in await tx.all(_REVERTED):
        await rows.change(tx, cell.migrations, {"open": 0}, id=move["id"])
        of_server = {"id": move["server_id"], "vm_state": RESIZED, "deleted": 0}
        await rows.change(tx, cell.servers, {"vm_state": move["old_vm_state"]}, **of_server)


async def _protect_servers(tx: Tx, era: int) -> int:
    await _end_reverted(tx)
    await tx.run(_INCOMPLETE)
    await tx.run(_FOLLOW_RUNNER)
    await tx.run(_HOSTS)
    return await tx.run(_SERVERS, floor=era * TURNS)


async def _fail_unplaced(tx: Tx, era: int) -> None:
    """Put servers without a host into ERROR: they are no longer scheduled, and can be deleted."""
    for row in await tx.all(_REQUESTS):
        request = msgspec.json.decode(row["server"], type=BuildRequest)
        request.vm_state = ERROR
        values = {"turn": era * TURNS, "server": to_json(request)}
        await rows.change(tx, control.build_requests, values, server_id=row["server_id"])
