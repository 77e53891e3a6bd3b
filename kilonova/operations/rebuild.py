"""Rebuild: the owner makes the server anew from an image, on its host, under its id; claims and ports stay.

(the image is the server's as soon as it is accepted) -> the scheduler says whether the host may run another image
  -> a new copy is made beside the old one -> the old one stops -> permission to run
  -> rebuild_instance starts the new copy, if the server was on -> from here on only forward: the old copy goes
Any failure before the end is undone in reverse order: the old copy was never touched and runs as before.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import NoValidHost, Refused
from kilonova.domain.server import ACTIVE, ERROR, STOPPED, from_json
from kilonova.domain.volume import server_volumes
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.course import Problem
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
from kilonova.operations.steps.select import unless_away
from kilonova.scheduler.request import Image, ResourceRequest
from kilonova.scheduler.verdict import Decision
from kilonova.store import rows
from kilonova.store.tables import cell
from kilonova.world import Tx

FOR_THE_GUEST = ("key_name", "user_data", "trusted_image_certificates")  # go back with the image
REFUSED = "No valid host was found. The server's host cannot run the image; the server is as it was."


async def check_image(ctx: Context) -> Facts:
    """Facts: the decision about the server's host. The same image runs there already."""
    facts, row = ctx.facts, ctx.row
    if facts["image"] == facts["before"]["image"]:
        return {}
    assert ctx.scheduler is not None
    request = ResourceRequest(
        flavor=row.flavor,
        image=Image(facts["image"], facts["format"], facts["properties"]),
        volume_backed="volume" in facts,
        server=row.id,
        project=row.project_id,
        wanted_host=facts["destination"],
    )
    found = await unless_away(ctx, ctx.scheduler.judge_in_place(request, ctx.journal.name))
    decision = msgspec.to_builtins(found)
    if found.chosen is None:
        raise NoValidHost(_refusal(found, facts), details={"decision": decision})
    return {"decision": decision}


def _refusal(decision: Decision, facts: Facts) -> str:
    reasons = "; ".join(f"{verdict.filter}: {verdict.sentence}" for verdict in decision.verdicts)
    told = f"No valid host was found. Image {facts['image']} on {facts['destination']}: {reasons or 'unknown host'}"
    return f"{told}; use {' or '.join(decision.changes)}" if decision.changes else told


def plan_copy(ctx: Context, result: Facts) -> None:
    ctx.set_copy(ctx.facts["copy"], ctx.facts["destination"], "making")


async def restore_image(ctx: Context) -> Facts:
    """Accepting the rebuild has set it, so this is undone even if nothing else was begun."""
    facts, server_id = ctx.facts, ctx.server_id or ""

    async def change(tx: Tx, now: float) -> None:
        before = facts["before"]
        about = {"image_properties": before["properties"], "image_format": before.get("format", "")}
        await edit_details(tx, server_id, {**before.get("details", {}), **about})

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


def rebuild_facts(subject: Subject) -> Facts:
    """The first facts, also of a server that boots from a volume (rebuild_volume.py). Raise `Refused` if it has not run
    before, or while its host does not answer."""
    server = subject.server
    assert server is not None
    if server.launched_at is None:
        raise Refused("invalid_state", f"Instance {server.id} is in an invalid state for 'rebuild'")
    facts, details = its_copy(subject), from_json(server.details, {})
    requested = subject.params.get("details", {})
    return {
        "source": facts["host"],
        "source_copy": facts["copy"],
        "destination": facts["host"],
        "copy": server.turn + 1,  # this operation's turn
        "was": STOPPED if server.vm_state == STOPPED else ACTIVE,
        "server": server.id,
        "before": {
            "image": server.image_ref,
            "properties": details.get("image_properties", {}),
            "format": details.get("image_format", ""),
            "details": {name: details.get(name) for name in FOR_THE_GUEST if name in requested},
        },
        "image": subject.params["image"],
        "format": subject.params.get("image_format", ""),
        "properties": subject.params.get("image_properties", {}),
        "wish": {name: subject.params[name] for name in ("name", "details") if name in subject.params},
    }


class Rebuild(Operation):
    name = "rebuild"
    action = "rebuild"
    task_state = "rebuilding"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})
    safe_words = "The server could not be rebuilt; it is as it was."

    def check(self, subject: Subject) -> Facts:
        server = subject.server
        assert server is not None
        if from_json(server.details, {}).get("volume_backed"):
            raise Refused("volume_backed", f"Instance {server.id} boots from a volume: use rebuild_volume")
        return rebuild_facts(subject)

    async def accepted(self, tx: Tx, op: Op, subject: Subject, now: float) -> None:
        """The answer shows the new image already. Name, metadata and the like are the owner's word and stay, however
        the rebuild ends; what the guest is made of (`FOR_THE_GUEST`) goes back with the image."""
        facts = op.facts
        wish = facts["wish"]
        about = {"image_properties": facts["properties"], "image_format": facts["format"]}
        await edit_details(tx, facts["server"], {**wish.get("details", {}), **about})
        named = {"name": wish["name"]} if "name" in wish else {}
        await rows.change(tx, cell.servers, {**named, "image_ref": facts["image"]}, id=facts["server"])

    def words_for(self, problem: Problem) -> str:
        return REFUSED if problem.code == "no_valid_host" else self.safe_words

    def outlook(self, subject: Subject, facts: Facts) -> Facts:
        root = {"disk": "root", "fate": "re-created", "from_image": facts["image"]}
        server = subject.server
        volumes = server_volumes(server.volume_info) if server is not None else []
        kept = [{"disk": one.device, "fate": "kept", "volume": one.volume_id} for one in volumes]
        return {"host": facts["destination"], "disks": [root, *kept], "claims": {}}

    def settle(self, ctx: Context) -> None:
        was = ctx.facts["was"]
        ctx.set_server(vm_state=was, power_state=power_of(was), launched_at=ctx.world.clock.now())

    steps = [
        Step(
            "rebuild_server",
            check_image,
            on=CONTROL,
            undo=restore_image,
            record=plan_copy,
            plan=True,
            event="rebuild_server",
            only_rows=True,
        ),
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
