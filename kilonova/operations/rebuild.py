"""Rebuild: the owner makes the server anew from an image, on its host, under its id; claims and ports stay.

(the image is the server's as soon as it is accepted) -> a new copy is made beside the old one -> the old one stops
  -> permission to run
  -> rebuild_instance starts the new copy, if the server was on -> from here on only forward: the old copy goes
Any failure before the end is undone in reverse order: the old copy was never touched and runs as before.
"""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.server import ACTIVE, ERROR, STOPPED, from_json
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, DEBT, DESTINATION, FAIL, FOREVER, SOURCE, Facts, Operation, Step
from kilonova.operations.steps.details import edit_details
from kilonova.operations.steps.guest import (
    copy_begun,
    copy_gone,
    copy_whole,
    power_of,
    remove_guest,
    start_guest,
    stop_guest,
    take_claim,
)
from kilonova.operations.steps.ownership import give_runner
from kilonova.operations.steps.power import its_copy
from kilonova.store import rows
from kilonova.store.tables import cell
from kilonova.world import Tx


async def plan_copy(ctx: Context) -> Facts:
    ctx.set_copy(ctx.facts["copy"], ctx.facts["destination"], "making")
    return {}


async def restore_image(ctx: Context) -> Facts:
    """Accepting the rebuild has set it, so this is undone even if nothing else was begun."""
    facts, server_id = ctx.facts, ctx.server_id or ""

    async def change(tx: Tx, now: float) -> None:
        before = facts["before"]
        about = {"image_properties": before["properties"], "image_format": before.get("format", "")}
        await edit_details(tx, server_id, about)

    ctx.set_server(image_ref=facts["before"]["image"])
    ctx.in_transaction(change)
    ctx.forget_planned_copy(facts["copy"], facts["destination"])
    return {}


async def make_copy(host: HostContext) -> Facts:
    """A disk from the image and a definition; not started: the old copy runs, on the same share of the hardware."""
    taken = take_claim(host, beside=host.facts["source_copy"])
    made = await host.driver.ensure_disk(host.spec)
    await host.driver.ensure_defined(host.spec)
    return {"disk": made, **taken}


async def give_to_new(ctx: Context) -> Facts:
    facts = ctx.facts
    give_runner(ctx, facts["destination"], facts["copy"], "its host reported the old copy stopped")
    ctx.set_server(copy=facts["copy"])
    return {}


async def give_to_old(ctx: Context) -> Facts:
    facts = ctx.facts
    give_runner(ctx, facts["source"], facts["source_copy"], "its host reported the new copy stopped")
    ctx.set_server(copy=facts["source_copy"])
    return {}


class Rebuild(Operation):
    name = "rebuild"
    action = "rebuild"
    task_state = "rebuilding"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})
    safe_words = "The server could not be rebuilt; it is as it was."

    def check(self, subject: Subject) -> Facts:
        server = subject.server
        assert server is not None
        if server.launched_at is None:
            raise Refused("invalid_state", f"Instance {server.id} is in an invalid state for 'rebuild'")
        facts = its_copy(subject)
        if from_json(server.details, {}).get("volume_backed"):
            text = f"Instance {server.id} boots from a volume, which a rebuild would overwrite; create a new server"
            raise Refused("volume_backed", text)
        return {
            "source": facts["host"],
            "source_copy": facts["copy"],
            "destination": facts["host"],
            "copy": server.turn + 1,  # this operation's turn
            "was": STOPPED if server.vm_state == STOPPED else ACTIVE,
            "server": server.id,
            "before": {
                "image": server.image_ref,
                "properties": from_json(server.details, {}).get("image_properties", {}),
                "format": from_json(server.details, {}).get("image_format", ""),
            },
            "image": subject.params["image"],
            "format": subject.params.get("image_format", ""),
            "properties": subject.params.get("image_properties", {}),
            "wish": {name: subject.params[name] for name in ("name", "details") if name in subject.params},
        }

    async def accepted(self, tx: Tx, op: Op, subject: Subject, now: float) -> None:
        """The answer shows the new image already. Name, metadata and the like are the owner's word and stay, however
        the rebuild ends."""
        facts = op.facts
        wish = facts["wish"]
        about = {"image_properties": facts["properties"], "image_format": facts["format"]}
        await edit_details(tx, facts["server"], {**wish.get("details", {}), **about})
        named = {"name": wish["name"]} if "name" in wish else {}
        await rows.change(tx, cell.servers, {**named, "image_ref": facts["image"]}, id=facts["server"])

    def settle(self, ctx: Context) -> None:
        was = ctx.facts["was"]
        ctx.set_server(vm_state=was, power_state=power_of(was), launched_at=ctx.world.clock.now())

    steps = [
        Step("rebuild_server", plan_copy, on=CONTROL, undo=restore_image, event="rebuild_server", only_rows=True),
        Step(
            "make_copy",
            make_copy,
            on=DESTINATION,
            undo=remove_guest,
            record=copy_begun,
            record_undo=copy_gone,
            when_silent=FAIL,
            undo_debt=True,
            with_secrets=True,
            deadline=600.0,
            task_state="rebuild_block_device_mapping",
        ),
        Step("stop_old_copy", stop_guest, on=SOURCE, undo=start_guest, undo_starts_guest=True),
        Step("grant_runner", give_to_new, on=CONTROL, undo=give_to_old, only_rows=True),
        Step(
            "rebuild_instance",
            start_guest,
            on=DESTINATION,
            undo=stop_guest,
            record=copy_whole,
            starts_guest=True,
            deadline=600.0,
            task_state="rebuild_spawning",
            event="compute_rebuild_instance",
        ),
        Step(
            "remove_old_copy",
            remove_guest,
            on=SOURCE,
            record=copy_gone,
            no_return=True,
            when_silent=DEBT,
            when_declared=DEBT,
            retry=FOREVER,
        ),
    ]
