"""Rebuild from cell0: a server that never found a host is scheduled again under its id. Nova never had this.

(accepted in cell0, where it is building again) -> hold the volumes that it names
  -> rebuild_instance_in_cell0: one control transaction makes it a request without a cell again, and begins `place`
`place` goes on under the same operation id as for a new server, with the complete request; it removes the row in cell0,
or, if there is still no capacity, buries the server there again.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.errors import Refused, Superseded
from kilonova.domain.json import json_object
from kilonova.domain.params import RetryParams, ServerSpec
from kilonova.domain.server import BUILDING, ERROR, Server, flavor_document
from kilonova.engine.build_requests import put_request, stored_spec
from kilonova.engine.context import Context, Newborn, Subject
from kilonova.engine.details import edit_details
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.operations.facts import CreateFacts, RecordBefore, RetryFacts
from kilonova.operations.steps.volumes import hold_named, release_held
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.open_stores import CELL0
from kilonova.world import Tx

RetryContext = Context[RetryFacts, RetryParams]

# The reasons for a burial that may be gone by now: the Compute API rebuilds these. Our own REST tries any again.
PASSING = ("no_valid_host", "not_known", "quota_exceeded", "cancelled")


async def put_back(ctx: RetryContext) -> None:
    """Put the server back. Accepting has changed it, so this is undone even if nothing else was begun."""
    before, server_id = ctx.facts.before, ctx.server_id or ""
    if ctx.facts.devices:
        await release_held(ctx)

    async def change(tx: Tx, now: float) -> None:
        await edit_details(tx, server_id, before.details)

    ctx.set_server(vm_state=ERROR, name=before.name, image_ref=before.image, flavor=before.flavor)
    ctx.in_transaction(change)


async def return_to_control(ctx: RetryContext) -> None:
    """Begin `place` in control. A concurrent delete fences the server in control first: then it stays in cell0."""
    begin = ctx.begin
    assert begin is not None

    async def body(tx: Tx) -> None:
        if await rows.fetch(tx, operations, id=ctx.operation_id) is None:
            await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
            spec = await _unbury(ctx, tx)
            await begin(tx, ctx.world.db.control, _placing(ctx, spec))

    await ctx.world.db.control.write(body)
    if ctx.wake is not None:
        await ctx.wake(ctx.world.db.control.name, ctx.operation_id)


async def _unbury(ctx: RetryContext, tx: Tx) -> ServerSpec:
    """Make it a request without a cell. Networks, destination and secrets travel with the operation, and come back to
    the request spec if it is buried again."""
    at_cell0: dict[str, object] = {"server_id": ctx.server_id, "cell": CELL0, "queued_for_delete": 0}
    if not await rows.change(tx, control.server_mappings, {"cell": None}, **at_cell0):
        raise Superseded(f"server {ctx.server_id} has left {CELL0}")
    spec = request_of(ctx.params.spec, ctx.row)
    await rows.change(tx, control.request_specs, {"spec": stored_spec(spec), "sealed": None}, server_id=ctx.server_id)
    await put_request(tx, ctx.server_id or "", ctx.turn, ctx.operation_id, spec)
    return spec


def request_of(spec: ServerSpec, server: Server, changes: RetryParams | None = None) -> ServerSpec:
    """Return the original request with the owner's changes since, and with `changes`."""
    name, image, flavor = server.name, server.image_ref, server.flavor
    document = json_object(server.details_document)
    if changes is not None:
        name = name if changes.name is None else changes.name
        image = image if changes.image is None else changes.image
        flavor, document = changes.flavor or flavor, {**document, **changes.details}
    details = msgspec.convert(document, Details)
    return msgspec.structs.replace(spec, name=name, image=image, flavor=flavor, details=details)


def _placing(ctx: RetryContext, spec: ServerSpec) -> Newborn:
    """Return `place` to begin. Its ordinals continue from here: fences compare them."""
    return Newborn(
        kind="place",
        id=ctx.operation_id,
        server_id=ctx.server_id or "",
        turn=ctx.turn,
        ordinal=ctx.ordinal,
        params=spec,
        facts=CreateFacts(from_cell0=True, devices=bool(spec.volumes)),
        cause=ctx.cause,
        sealed=ctx.sealed,
    )


class RebuildInCell0(Operation[RetryFacts, RetryParams]):
    facts_type = RetryFacts
    params_type = RetryParams
    name = "rebuild_in_cell0"
    action = "rebuild"
    task_state = "scheduling"
    from_states = frozenset({ERROR})
    safe_message = "The server could not be rebuilt; it is as it was."

    def check(self, subject: Subject[RetryParams]) -> RetryFacts:
        server, params = subject.server, subject.params
        assert server is not None
        if server.cell0_failure is None:
            text = f"Instance {server.id} cannot be rebuilt: it is in a cell and not in {CELL0}"
            raise Refused("not_for_want_of_a_host", text)
        if server.cell0_failure not in PASSING and not params.any_failure:
            text = f"it did not fail for lack of a host, but for {server.cell0_failure}"
            advice = f"an administrator can retry it: kilonova unplaced retry {server.id}"
            raise Refused("not_for_want_of_a_host", f"Instance {server.id} cannot be rebuilt: {text}; {advice}")
        details = server.details
        return RetryFacts(
            devices=bool(params.spec.volumes),
            before=RecordBefore(
                name=server.name,
                image=server.image_ref,
                flavor=server.flavor_document,
                details={name: msgspec.to_builtins(getattr(details, name)) for name in params.details},
            ),
        )

    async def accepted(self, tx: Tx, op: Op, facts: RetryFacts, subject: Subject[RetryParams], now: float) -> None:
        """Write the new server's values, so that the response shows them already."""
        params, server_id = subject.params, op.server_id or ""
        await edit_details(tx, server_id, params.details)
        values = {"vm_state": BUILDING}
        if params.name is not None:
            values["name"] = params.name
        if params.image is not None:
            values["image_ref"] = params.image
        if params.flavor is not None:
            values["flavor"] = flavor_document(params.flavor)
        await rows.change(tx, cell.servers, values, id=server_id)

    steps = [
        Step("hold_volumes", hold_named, on=CONTROL, undo=put_back),
        Step(
            "rebuild_instance_in_cell0",
            return_to_control,
            on=CONTROL,
            no_return=True,
            retry=FOREVER,
            with_secrets=True,
            only_rows=True,
        ),
    ]
