"""Rebuild from cell0: a server that never found a host is tried again under its id. Nova never had this.

(accepted in cell0, where it is building again) -> hold the volumes that it names
  -> rebuild_instance_in_cell0: one control transaction makes it a request without a cell again, and begins `place`
`place` goes on under the same operation id as for a new server, with everything that was asked for; it removes the row
in cell0, or, when there is still no room, buries the server there again.
"""

from __future__ import annotations

from typing import Any

from kilonova.domain.errors import Refused, Superseded
from kilonova.domain.server import BUILDING, ERROR, Server, from_json, to_json
from kilonova.engine.build_requests import kept_spec, put_request
from kilonova.engine.context import Context, Newborn, Subject
from kilonova.engine.details import edit_details
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, FOREVER, Facts, Operation, Step
from kilonova.operations.steps.volumes import hold_named, release_held
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.open import CELL0
from kilonova.world import Tx

# The reasons for a burial that may be gone by now: the Compute API rebuilds these. Our own REST tries any again.
PASSING = ("no_valid_host", "not_known", "quota_exceeded", "cancelled")


async def put_back(ctx: Context) -> Facts:
    """Accepting has changed the server, so this is undone even if nothing else was begun."""
    before, server_id = ctx.facts["before"], ctx.server_id or ""
    if ctx.facts["devices"]:
        await release_held(ctx)

    async def change(tx: Tx, now: float) -> None:
        await edit_details(tx, server_id, before["details"])

    ctx.set_server(vm_state=ERROR, name=before["name"], image_ref=before["image"], flavor=before["flavor"])
    ctx.in_transaction(change)
    return {}


async def return_to_control(ctx: Context) -> Facts:
    """Begin `place` in control. A concurrent delete fences the server in control first: then it stays in cell0."""
    begin = ctx.begin
    assert begin is not None

    async def body(tx: Tx) -> None:
        if await rows.fetch(tx, operations, id=ctx.operation_id) is None:
            await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
            params = await _unbury(ctx, tx)
            await begin(tx, ctx.world.db.control, _placing(ctx, params))

    await ctx.world.db.control.write(body)
    if ctx.wake is not None:
        await ctx.wake(ctx.world.db.control.name, ctx.operation_id)
    return {}


async def _unbury(ctx: Context, tx: Tx) -> dict[str, Any]:
    """Make it a request without a cell. Networks, destination and secrets travel with the operation, and come back to
    the request spec if it is buried again."""
    at_cell0: dict[str, Any] = {"server_id": ctx.server_id, "cell": CELL0, "queued_for_delete": 0}
    if not await rows.change(tx, control.server_mappings, {"cell": None}, **at_cell0):
        raise Superseded(f"server {ctx.server_id} has left {CELL0}")
    params = request_of(ctx.params["spec"], ctx.row)
    await rows.change(tx, control.request_specs, {"spec": kept_spec(params), "sealed": None}, server_id=ctx.server_id)
    await put_request(tx, ctx.server_id or "", ctx.turn, ctx.operation_id, params)
    return params


def request_of(spec: dict[str, Any], server: Server, wish: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the original request with the owner's changes since, and with those of `wish`."""
    params: dict[str, Any] = {
        **spec,
        "name": server.name,
        "image": server.image_ref,
        "flavor": from_json(server.flavor_document, {}),
        **(wish or {}),
    }
    return params | {"details": {**from_json(server.details_document, {}), **(wish or {}).get("details", {})}}


def _placing(ctx: Context, params: dict[str, Any]) -> Newborn:
    """Counting on from here: fences compare ordinals."""
    return Newborn(
        kind="place",
        id=ctx.operation_id,
        server_id=ctx.server_id or "",
        turn=ctx.turn,
        ordinal=ctx.ordinal,
        params=params,
        facts={"from_cell0": True, **({"devices": True} if params.get("volumes") else {})},
        cause=ctx.cause,
        sealed=ctx.sealed,
    )


class RebuildInCell0(Operation):
    name = "rebuild_in_cell0"
    action = "rebuild"
    task_state = "scheduling"
    from_states = frozenset({ERROR})
    safe_words = "The server could not be rebuilt; it is as it was."

    def check(self, subject: Subject) -> Facts:
        server, params = subject.server, subject.params
        assert server is not None
        if server.cell0_failure is None:
            text = f"Instance {server.id} cannot be rebuilt: it is in a cell and not in {CELL0}"
            raise Refused("not_for_want_of_a_host", text)
        if server.cell0_failure not in PASSING and not params.get("any_failure"):
            text = f"it did not fail for lack of a host, but for {server.cell0_failure}"
            advice = f"an administrator can retry it: kilonova unplaced retry {server.id}"
            raise Refused("not_for_want_of_a_host", f"Instance {server.id} cannot be rebuilt: {text}; {advice}")
        details = from_json(server.details_document, {})
        return {
            "server": server.id,
            "devices": bool(params["spec"].get("volumes")),
            "wish": {name: params[name] for name in ("name", "image", "flavor", "details") if name in params},
            "before": {
                "name": server.name,
                "image": server.image_ref,
                "flavor": server.flavor_document,
                "details": {name: details.get(name) for name in params.get("details", {})},
            },
        }

    async def accepted(self, tx: Tx, op: Op, subject: Subject, now: float) -> None:
        """The answer shows the server as it is going to be."""
        facts = op.facts
        wish = facts["wish"]
        await edit_details(tx, facts["server"], wish.get("details", {}))
        values: dict[str, Any] = {"vm_state": BUILDING}
        if "name" in wish:
            values["name"] = wish["name"]
        if "image" in wish:
            values["image_ref"] = wish["image"]
        if "flavor" in wish:
            values["flavor"] = to_json(wish["flavor"])
        await rows.change(tx, cell.servers, values, id=facts["server"])

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
