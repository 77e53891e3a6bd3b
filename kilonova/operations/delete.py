"""Delete: takes over from anything, and works from what is recorded (copies, claims), not from what it interrupted.

plan -> (in cell0: a rebuild that has begun is recalled, what it inserted elsewhere is removed; of a failed build: what
  it has put into cell0 is removed)
  -> terminate_instance on every host that holds a copy (a silent host owes it) -> discard images that were being made
  of it -> release ports
  and volumes (those that go with it are deleted) -> release all claims -> unmap
The server is gone from the API when this ends; a host that was away removes its copy when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, or_, select, update

from kilonova.domain.details import SEALED
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import DELETED, LEAVING, SHOWN
from kilonova.engine.build_requests import places_of, take_request
from kilonova.engine.context import Context, Subject
from kilonova.engine.details import edit_details
from kilonova.engine.journal import op_from, stripped
from kilonova.engine.model import (
    CONTROL,
    DEBT,
    FOREVER,
    Notification,
    Operation,
    Step,
    StepTargets,
    Target,
)
from kilonova.operations.delete_unplaced import remove_rows
from kilonova.operations.facts import EACH_COPY, WITH_IMAGES, WITH_VOLUMES, DeleteFacts, OpenMove, SnapshotFacts
from kilonova.operations.steps.claim import release_all
from kilonova.operations.steps.guest import copy_gone, remove_guest
from kilonova.operations.steps.images import discard_images, images_begun
from kilonova.operations.steps.outlook import deleted_copies, deleted_disks, outlook
from kilonova.operations.steps.ports import release_ports
from kilonova.operations.steps.volumes import release_volumes
from kilonova.quota.usage import unmap_server
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.services.compute.server_groups import leave
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.open_stores import CELL0
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_COPIES = Sql(
    select(cell.copies.c.host, cell.copies.c.copy)
    .where(cell.copies.c.server_id == bindparam("server_id"))
    .order_by(cell.copies.c.copy, cell.copies.c.host)
)
_MIGRATIONS = Sql(
    select(cell.migrations.c.id)
    .where(cell.migrations.c.server_id == bindparam("server_id"))
    .order_by(cell.migrations.c.number)
)
DeleteContext = Context[DeleteFacts, Params]
# Or on its way there.
IN_CELL0: StepTargets[DeleteFacts] = StepTargets("control", lambda facts: [Target("")] if facts.buried else [])
_OPERATIONS = Sql(select(operations.c.facts).where(operations.c.server_id == bindparam("server_id")))
_WITH_SEALED = Sql(
    select(operations).where(
        operations.c.server_id == bindparam("server"),
        operations.c.superseded_by.is_not(None),
        or_(*(operations.c.facts.like(f'%"{name}"%') for name in SEALED)),
    )
)
_OPEN = update(cell.migrations).where(
    cell.migrations.c.server_id == bindparam("server"),
    or_(cell.migrations.c.open == 1, cell.migrations.c.status == "accepted"),
)
_CLOSE_FINISHED = Sql(
    _OPEN.where(or_(cell.migrations.c.status == "finished", cell.migrations.c.status == "confirming")).values(
        open=0, status=bindparam("become"), updated_at=bindparam("now")
    )
)
_CLOSE_OTHERS = Sql(_OPEN.values(open=0, status=bindparam("become"), updated_at=bindparam("now")))


class _Begun(SnapshotFacts, kw_only=True):
    """The facts that matter of any operation on the server."""

    migration: str = ""


async def list_what_exists(ctx: DeleteContext) -> None:
    """List copies and claims. A migration that was interrupted between its claim and its record is known only to its
    operation."""

    async def body(tx: Tx) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row], Sequence[Row]]:
        server = {"server_id": ctx.server_id}
        still_open = await rows.fetch_all(tx, cell.migrations, **server, open=1) if ctx.rehearsing else []
        return (
            await tx.all(_COPIES, **server),
            await tx.all(_MIGRATIONS, **server),
            await tx.all(_OPERATIONS, **server),
            still_open,
        )

    copies, migrations, operations, still_open = await ctx.journal.read(body)
    facts, begun = ctx.facts, [msgspec.json.decode(row["facts"], type=_Begun) for row in operations]
    facts.open_migrations = [_open_move(row) for row in still_open]
    facts.copies = [(row["host"], row["copy"]) for row in copies]
    facts.consumers = sorted({row["id"] for row in migrations} | {one.migration for one in begun if one.migration})
    facts.volumes = ctx.row.volume_info is not None
    facts.buried = ctx.journal.name == CELL0 or ctx.row.hidden == LEAVING
    facts.images = images_begun(begun)


def _open_move(row: Row) -> OpenMove:
    return OpenMove(
        source_host=row["source_host"],
        source_copy=row["source_copy"],
        source_gone=bool(row["source_gone"]),
        old_flavor=row["old_flavor"],
        old_claimed=row["old_claimed"],
    )


async def recall(ctx: DeleteContext) -> None:
    """Fence other operations on a server that may be on its way out of cell0 or into it.

    From here on they cannot write; what they had begun is ended, and the server is where its row is.
    """
    server_id = ctx.server_id or ""

    async def body(tx: Tx) -> list[str]:
        await pass_fence_in_control(tx, server_id, ctx.turn, ctx.ordinal)
        if ctx.journal.name != CELL0:  # it was on its way there
            here = {"cell": ctx.journal.name}
            await rows.change(tx, control.server_mappings, here, server_id=server_id, cell=CELL0)
            return [CELL0]
        request = await rows.fetch(tx, control.build_requests, lock=True, server_id=server_id)
        if request is None:  # never begun, or this was committed and the answer was lost
            ended = await rows.fetch_all(tx, operations, server_id=server_id, superseded_by=ctx.operation_id)
            return [name for row in ended for name in places_of(op_from(row))]
        await rows.change(tx, control.server_mappings, {"cell": CELL0}, server_id=server_id)
        return await take_request(tx, request, ctx.operation_id, Delete(), ctx.world.clock.now())

    cells = await ctx.world.db.control.write(body)
    ctx.facts.cells = [name for name in cells if name != ctx.journal.name]


async def unmap(ctx: DeleteContext) -> None:
    """Remove the server's mapping in control, and its request spec, which may hold secrets. Repeating it is harmless:
    nothing newer can exist for a deleted server."""

    async def body(tx: Tx) -> None:
        await unmap_server(tx, ctx.server_id or "")
        await leave(tx, ctx.server_id or "")
        await rows.remove(tx, control.request_specs, server_id=ctx.server_id)

    await ctx.world.db.control.write(body)


def _gone(ctx: DeleteContext, result: StepResult) -> None:
    copy_gone(ctx, result)
    if ctx.row.runner_host == ctx.target.host:
        ctx.set_server(runner_host=None, runner_copy=None)


class Delete(Operation[DeleteFacts, Params]):
    facts_type = DeleteFacts
    params_type = Params
    name = "delete"
    action = "delete"
    task_state = "deleting"
    supersedes = True
    inherits = False
    notifications = (Notification("delete"),)

    def joins(self, subject: Subject[Params]) -> bool:
        return subject.live is not None and subject.live["kind"] == self.name

    def outlook(self, subject: Subject[Params], facts: DeleteFacts) -> JsonObject:
        server = subject.server
        assert server is not None
        removed = deleted_copies(server, facts.copies, facts.open_migrations)
        return outlook(None, DELETED, deleted_disks(server), removed=removed)

    def finish(self, ctx: DeleteContext) -> None:
        now = ctx.world.clock.now()
        ctx.set_server(
            vm_state=DELETED,
            deleted=1,
            hidden=SHOWN if ctx.facts.buried else ctx.row.hidden,
            terminated_at=now,
            power_state=0,
            host=None,
            runner_host=None,
            runner_copy=None,
        )

        async def close(tx: Tx, now: float) -> None:
            await tx.run(_CLOSE_FINISHED, server=ctx.server_id, become="confirmed", now=now)
            await tx.run(_CLOSE_OTHERS, server=ctx.server_id, become="failed", now=now)
            details = ctx.row.details
            sealed = {name: None for name in SEALED if getattr(details, name)}
            await edit_details(tx, ctx.server_id or "", sealed)
            for row in await tx.all(_WITH_SEALED, server=ctx.server_id):
                if columns := stripped(op_from(row), is_last=True):
                    await rows.change(tx, operations, columns, id=row["id"])

        ctx.in_transaction(close)

    steps = [
        Step(
            "list_what_exists", list_what_exists, on=CONTROL, plan=True, no_return=True, retry=FOREVER, only_rows=True
        ),
        Step("recall_rebuild", recall, on=IN_CELL0, retry=FOREVER, only_rows=True),
        Step("remove_rows", remove_rows, on=IN_CELL0, retry=FOREVER, only_rows=True),
        Step(
            "terminate_instance",
            remove_guest,
            on=EACH_COPY,
            record=_gone,
            when_silent=DEBT,
            when_declared=DEBT,
            retry=FOREVER,
            event="compute_terminate_instance",
        ),
        Step("discard_images", discard_images, on=WITH_IMAGES, retry=FOREVER),
        Step("deallocate_networks", release_ports, on=CONTROL, retry=FOREVER),
        Step("release_volumes", release_volumes, on=WITH_VOLUMES, retry=FOREVER),
        Step("release_claims", release_all, on=CONTROL, retry=FOREVER, claims=True),
        Step("unmap", unmap, on=CONTROL, retry=FOREVER, only_rows=True),
    ]
