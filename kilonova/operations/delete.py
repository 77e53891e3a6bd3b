"""Delete: takes over from anything, and works from what is recorded (copies, claims), not from what it interrupted.

plan -> (in cell0: a rebuild that has begun is recalled, what it inserted elsewhere is removed; of a failed build: what
  it has put into cell0 is removed)
  -> terminate_instance on every host that holds a copy (a silent host owes it) -> discard images that were being made
  of it -> release ports
  and volumes (those that go with it are deleted) -> release all claims -> unmap
The server is gone from the API when this ends; a host that was away removes its copy when it returns.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, or_, select, update

from kilonova.domain.details import SEALED
from kilonova.domain.server import DELETED, LEAVING, SHOWN, from_json
from kilonova.engine.build_requests import places_of, take_request
from kilonova.engine.context import Context, Subject
from kilonova.engine.details import edit_details
from kilonova.engine.journal import op_from, stripped
from kilonova.engine.model import (
    CONTROL,
    DEBT,
    EACH_COPY,
    FOREVER,
    Facts,
    Notification,
    Operation,
    Step,
    StepTargets,
    Target,
)
from kilonova.operations.delete_unplaced import remove_rows
from kilonova.operations.steps.claim import release_all
from kilonova.operations.steps.guest import copy_gone, remove_guest
from kilonova.operations.steps.images import WITH_IMAGES, discard_images, images_begun
from kilonova.operations.steps.outlook import deleted_copies, deleted_disks, outlook
from kilonova.operations.steps.ports import release_ports
from kilonova.operations.steps.volumes import WITH_VOLUMES, release_volumes
from kilonova.quota.usage import unmap_server
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.services.compute.server_groups import leave
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.open import CELL0
from kilonova.store.statements import Sql
from kilonova.world import Tx

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
HELD_BY = ("source_host", "source_copy", "source_gone", "old_flavor", "old_claimed")  # an open migration
IN_CELL0 = StepTargets("control", lambda facts: [Target("")] if facts.get("buried") else [])  # or on its way there
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


async def list_what_exists(ctx: Context) -> Facts:
    """A migration that was interrupted between its claim and its record is known to its operation only."""

    async def body(tx: Tx) -> Facts:
        copies = await tx.all(_COPIES, server_id=ctx.server_id)
        migrations = await tx.all(_MIGRATIONS, server_id=ctx.server_id)
        begun = [from_json(row["facts"], {}) for row in await tx.all(_OPERATIONS, server_id=ctx.server_id)]
        consumers = {row["id"] for row in migrations} | {facts["migration"] for facts in begun if "migration" in facts}
        still_open = (
            await rows.fetch_all(tx, cell.migrations, server_id=ctx.server_id, open=1) if ctx.rehearsing else []
        )
        return {
            **(
                {"open_migrations": [{name: row[name] for name in HELD_BY} for row in still_open]}
                if ctx.rehearsing
                else {}
            ),
            "copies": [[row["host"], row["copy"]] for row in copies],
            "consumers": sorted(consumers),
            "volumes": ctx.row.volume_info is not None,
            "buried": ctx.journal.name == CELL0 or ctx.row.hidden == LEAVING,
            "images": images_begun(begun),
        }

    return await ctx.journal.read(body)


async def recall(ctx: Context) -> Facts:
    """It may be on its way out of cell0 or into it, by somebody who has not heard of this. From here on the fence stops
    that; what was begun before is ended, and the server is where its row is."""
    server_id = ctx.server_id or ""

    async def body(tx: Tx) -> list[str]:
        await pass_fence_in_control(tx, server_id, ctx.turn, ctx.ordinal)
        if ctx.journal.name != CELL0:  # it was on its way there
            here = {"cell": ctx.journal.name}
            await rows.change(tx, control.server_mappings, here, server_id=server_id, cell=CELL0)
            return [CELL0]
        request = await rows.fetch(tx, control.build_requests, lock=True, server_id=server_id)
        if request is None:  # never begun, or this was committed and nobody heard of it
            ended = await rows.fetch_all(tx, operations, server_id=server_id, superseded_by=ctx.operation_id)
            return [name for row in ended for name in places_of(op_from(row))]
        await rows.change(tx, control.server_mappings, {"cell": CELL0}, server_id=server_id)
        return await take_request(tx, request, ctx.operation_id, Delete(), ctx.world.clock.now())

    return {"cells": [name for name in await ctx.world.db.control.write(body) if name != ctx.journal.name]}


async def unmap(ctx: Context) -> Facts:
    """Remove the server's mapping in control, and its request spec, which may hold secrets. Repeating it is harmless:
    nothing newer can exist for a deleted server."""

    async def body(tx: Tx) -> None:
        await unmap_server(tx, ctx.server_id or "")
        await leave(tx, ctx.server_id or "")
        await rows.remove(tx, control.request_specs, server_id=ctx.server_id)

    await ctx.world.db.control.write(body)
    return {}


def _gone(ctx: Context, result: dict[str, Any]) -> None:
    copy_gone(ctx, result)
    if ctx.row.runner_host == ctx.target.host:
        ctx.set_server(runner_host=None, runner_copy=None)


class Delete(Operation):
    name = "delete"
    action = "delete"
    task_state = "deleting"
    supersedes = True
    inherits = False
    notifications = (Notification("delete"),)

    def check(self, subject: Subject) -> Facts:
        return {}

    def joins(self, subject: Subject) -> bool:
        return subject.live is not None and subject.live["kind"] == self.name

    def outlook(self, subject: Subject, facts: Facts) -> Facts:
        server = subject.server
        assert server is not None
        removed = deleted_copies(server, facts["copies"], facts["open_migrations"])
        return outlook(None, DELETED, deleted_disks(server), removed=removed)

    def settle(self, ctx: Context) -> None:
        now = ctx.world.clock.now()
        ctx.set_server(
            vm_state=DELETED,
            deleted=1,
            hidden=SHOWN if ctx.facts.get("buried") else ctx.row.hidden,
            terminated_at=now,
            power_state=0,
            host=None,
            runner_host=None,
            runner_copy=None,
        )

        async def close(tx: Tx, now: float) -> None:
            await tx.run(_CLOSE_FINISHED, server=ctx.server_id, become="confirmed", now=now)
            await tx.run(_CLOSE_OTHERS, server=ctx.server_id, become="failed", now=now)
            sealed = {name: None for name in SEALED if getattr(ctx.row.details, name)}
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
