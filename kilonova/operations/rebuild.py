"""Rebuild: the server is made again from an image, on its host, under its id; claims and ports stay.

(the record has the new image as soon as it is accepted) -> the scheduler checks that the host may run another image
  -> a new copy is made beside the old one -> the old one stops (the new one gets its ephemeral disks, if the owner
  requested `preserve_ephemeral`) -> permission to run
  -> rebuild_instance starts the new copy, if the server was on -> from here on only forward: the old copy is removed
Any failure before the end is undone in reverse order: the old copy was never touched and runs as before.
A host without space for both disks reports that: make_copy makes nothing then, and once the old copy is off
  -> make_room removes it (from here on only forward) -> make_only_copy makes the new one in its place
"""

from __future__ import annotations

import msgspec

from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.domain.errors import Failed, NoValidHost, Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.params import RebuildParams
from kilonova.domain.server import ACTIVE, ERROR, POWER_SHUTDOWN, STOPPED
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.course import Problem
from kilonova.engine.details import edit_details
from kilonova.engine.journal import Op
from kilonova.engine.model import (
    CONTROL,
    DEBT,
    FAIL,
    FOREVER,
    IMAGE_TOKEN,
    WAIT,
    Notification,
    Operation,
    Step,
    StepTargets,
)
from kilonova.operations.facts import DESTINATION, SOURCE, RebuildFacts, RecordBefore
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
from kilonova.operations.steps.outlook import local_disks, outlook, root_disk, unchanged_volumes
from kilonova.operations.steps.ownership import give_runner
from kilonova.operations.steps.power import its_copy
from kilonova.operations.steps.select import unless_away
from kilonova.scheduler.request import ImageFacts, ResourceRequest
from kilonova.scheduler.verdict import Decision
from kilonova.world import Tx

# Restored with the image if the rebuild fails.
FOR_THE_GUEST = ("key_name", "public_key", "user_data", "personality", "trusted_image_certificates")
RebuildContext = Context[RebuildFacts, RebuildParams]
PRESERVING: StepTargets[RebuildFacts] = StepTargets(
    "destination", lambda facts: DESTINATION.targets(facts) if facts.preserve_ephemeral else []
)
REPLACED: StepTargets[RebuildFacts] = StepTargets(
    "source", lambda facts: SOURCE.targets(facts) if facts.room == INSTEAD else []
)
REPLACING: StepTargets[RebuildFacts] = StepTargets(
    "destination", lambda facts: DESTINATION.targets(facts) if facts.room == INSTEAD else []
)
LEFT: StepTargets[RebuildFacts] = StepTargets(
    "source", lambda facts: [] if facts.room == INSTEAD else SOURCE.targets(facts)
)
NO_WAY_BACK = "no_way_back"  # code: the old copy was removed first
GONE = "The server could not be rebuilt. Its host had no room for both disks, so the old one is gone: rebuild it again."
REFUSED = "No valid host was found. The server's host cannot run the image; the server is as it was."


async def check_image(ctx: RebuildContext) -> None:
    """Note the decision about the server's host. The same image runs there already."""
    facts, row = ctx.facts, ctx.row
    if facts.image == facts.before.image:
        return
    assert ctx.scheduler is not None
    request = ResourceRequest(
        flavor=row.flavor,
        image=ImageFacts(facts.image, facts.format, facts.properties),
        volume_backed=bool(facts.volume),
        server=row.id,
        project=row.project_id,
        wanted_host=facts.destination,
    )
    verdict = await unless_away(ctx, ctx.scheduler.judge_in_place(request, ctx.journal.name))
    decision = msgspec.to_builtins(verdict)
    if verdict.chosen is None:
        raise NoValidHost(_refusal(verdict, facts), details={"decision": decision})
    ctx.documents["decision"] = decision


def _refusal(decision: Decision, facts: RebuildFacts) -> str:
    reasons = "; ".join(f"{verdict.filter}: {verdict.sentence}" for verdict in decision.verdicts)
    text = f"No valid host was found. Image {facts.image} on {facts.destination}: {reasons or 'unknown host'}"
    return f"{text}; use {' or '.join(decision.changes)}" if decision.changes else text


def plan_copy(ctx: RebuildContext, result: StepResult) -> None:
    ctx.set_copy(ctx.facts.copy, ctx.facts.destination, "making")


async def restore_image(ctx: RebuildContext) -> None:
    """Restore the image. Accepting the rebuild has set it, so this is undone even if nothing else was begun."""
    facts, server_id = ctx.facts, ctx.server_id or ""

    async def change(tx: Tx, now: float) -> None:
        before = facts.before
        about: JsonObject = {
            "image_properties": before.properties,
            "image_format": before.format,
            "image_marker": before.marker,
        }
        await edit_details(tx, server_id, {**before.details, **about})

    ctx.set_server(image_ref=facts.before.image)
    ctx.in_transaction(change)
    ctx.forget_planned_copy(facts.copy, facts.destination)


async def make_copy(host: HostContext) -> StepResult:
    """Create a disk from the image and a definition, without starting it: the old copy runs, on the same share of the
    hardware.

    If the host has no space for both disks, only take the claim.
    """
    claim = take_claim(host, beside=host.facts.source_copy)
    keeps, of_copy = host.facts.preserve_ephemeral, host.facts.source_copy
    room = await host.driver.room_for_rebuild(host.spec, of_copy=of_copy, keeps_ephemeral=keeps, image=host.image)
    disk = await _make(host) if room == BESIDE else ""
    return StepResult(room=room, disk=disk, claim=claim)


def copy_or_room(ctx: RebuildContext, result: StepResult) -> None:
    copy_begun(ctx, result)
    is_full = result.room == INSTEAD and not ctx.facts.volume  # no root disk of a volume is on the host
    ctx.facts.room = INSTEAD if is_full else BESIDE


async def make_only_copy(host: HostContext) -> StepResult:
    """Create the only copy, after the old one was removed."""
    try:
        claim = take_claim(host)
        return StepResult(disk=await _make(host), claim=claim)
    except Failed as why:
        raise _without_way_back(host, why) from why


async def start_copy(host: HostContext) -> StepResult:
    try:
        return await start_guest(host)
    except Failed as why:
        raise _without_way_back(host, why) from why


def _without_way_back(host: HostContext, why: Failed) -> Failed:
    """Return the failure, with what has become of the old copy: the owner reads it."""
    if host.facts.room != INSTEAD:
        return why
    return Failed(NO_WAY_BACK, f"{why.code}: {why.message}; the old copy was removed first", final=why.final)


async def _make(host: HostContext) -> str:
    disk = await host.driver.ensure_disk(host.spec, image=host.image)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    return disk


def record_room(ctx: RebuildContext, result: StepResult) -> None:
    """Record the new copy as the server's, though it is not made yet: nothing else can ever run."""
    copy_gone(ctx, result)
    give_runner(ctx, ctx.facts.destination, ctx.facts.copy, "its host reported the old copy removed")
    ctx.set_server(copy=ctx.facts.copy)


async def preserve_ephemeral(host: HostContext) -> StepResult:
    """Copy the content of the ephemeral disks to the new copy's; the old copy is off."""
    await host.driver.ensure_ephemeral(host.spec, of_copy=host.facts.source_copy)
    return StepResult()


async def give_to_new(ctx: RebuildContext) -> None:
    facts = ctx.facts
    give_runner(ctx, facts.destination, facts.copy, "its host reported the old copy stopped")
    ctx.set_server(copy=facts.copy)


async def give_to_old(ctx: RebuildContext) -> None:
    facts = ctx.facts
    if facts.room == INSTEAD:
        return  # the old copy was removed
    give_runner(ctx, facts.source, facts.source_copy, "its host reported the new copy stopped")
    ctx.set_server(copy=facts.source_copy)


def rebuild_facts(subject: Subject[RebuildParams]) -> RebuildFacts:
    """The first facts, also of a server that boots from a volume (rebuild_volume.py). Raise `Refused` if it has not run
    before, or while its host does not answer."""
    server = subject.server
    assert server is not None
    if server.launched_at is None:
        raise Refused("invalid_state", f"Instance {server.id} is in an invalid state for 'rebuild'")
    here, details, params = its_copy(subject), server.details, subject.params
    return RebuildFacts(
        source=here.host,
        source_copy=here.copy,
        destination=here.host,
        copy=server.turn + 1,  # this operation's turn
        was=STOPPED if server.vm_state == STOPPED else ACTIVE,
        before=RecordBefore(
            image=server.image_ref,
            properties=details.image_properties,
            format=details.image_format,
            marker=details.image_marker,
            details={
                name: msgspec.to_builtins(getattr(details, name)) for name in FOR_THE_GUEST if name in params.details
            },
        ),
        image=params.image,
        format=params.image_format,
        marker=params.image_marker,
        properties=params.image_properties,
        preserve_ephemeral=params.preserve_ephemeral,
    )


def details_of_image(facts: RebuildFacts) -> JsonObject:
    return {"image_properties": facts.properties, "image_format": facts.format, "image_marker": facts.marker}


class Rebuild(Operation[RebuildFacts, RebuildParams]):
    facts_type = RebuildFacts
    params_type = RebuildParams
    name = "rebuild"
    action = "rebuild"
    task_state = "rebuilding"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})
    safe_message = "The server could not be rebuilt; it is as it was."
    notifications = (
        Notification("rebuild_scheduled", begins="make_copy", has_phases=False, sender="conductor"),
        Notification("rebuild", begins="make_copy", fails_from="make_copy"),
    )
    task = "rebuild_server"

    def check(self, subject: Subject[RebuildParams]) -> RebuildFacts:
        server = subject.server
        assert server is not None
        if server.details.volume_backed:
            raise Refused("volume_backed", f"Instance {server.id} boots from a volume: use rebuild_volume")
        return rebuild_facts(subject)

    async def accepted(self, tx: Tx, op: Op, facts: RebuildFacts, subject: Subject[RebuildParams], now: float) -> None:
        """Write the new image, so that the response shows it already.

        Name, metadata and the like are the owner's change and stay, even if the rebuild fails; the guest's data
        (`FOR_THE_GUEST`) is restored with the image.
        """
        params, about = subject.params, details_of_image(facts)
        named = {} if params.name is None else {"name": params.name}
        await edit_details(tx, op.server_id or "", {**params.details, **about}, image_ref=facts.image, **named)

    def message_for(self, problem: Problem) -> str:
        return {"no_valid_host": REFUSED, NO_WAY_BACK: GONE}.get(problem.code, self.safe_message)

    def outlook(self, subject: Subject[RebuildParams], facts: RebuildFacts) -> JsonObject:
        fate = "kept" if facts.preserve_ephemeral else "re-created"
        server = subject.server
        assert server is not None
        local = local_disks(server.flavor, fate)
        disks = [root_disk("re-created", facts.image), *local, *unchanged_volumes(server)]
        return outlook(facts.destination, facts.was, disks)

    def finish(self, ctx: RebuildContext) -> None:
        was = ctx.facts.was
        ctx.set_server(vm_state=was, power_state=power_of(was), launched_at=ctx.world.clock.now())

    def finish_undone(self, ctx: RebuildContext) -> None:
        if ctx.facts.room == INSTEAD and ctx.server is not None and ctx.server.copy == ctx.facts.copy:
            ctx.set_server(vm_state=ERROR, power_state=POWER_SHUTDOWN)

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
            record=copy_or_room,
            record_undo=copy_gone,
            when_silent=FAIL,
            undo_debt=True,
            with_guest=True,
            with_secrets=True,
            tokens=(IMAGE_TOKEN,),
            deadline=600.0,
            task_state="rebuild_block_device_mapping",
        ),
        Step("stop_old_copy", stop_guest, on=SOURCE, undo=start_guest, undo_starts_guest=True),
        Step("preserve_ephemeral", preserve_ephemeral, on=PRESERVING, with_guest=True, deadline=3600.0),
        Step(
            "make_room",
            remove_guest,
            on=REPLACED,
            record=record_room,
            no_return=True,
            when_silent=WAIT,
            when_declared=DEBT,
            retry=FOREVER,
        ),
        Step(
            "make_only_copy",
            make_only_copy,
            on=REPLACING,
            record=copy_whole,
            retry=5,
            with_guest=True,
            with_secrets=True,
            tokens=(IMAGE_TOKEN,),
            deadline=600.0,
        ),
        Step("grant_runner", give_to_new, on=CONTROL, undo=give_to_old, only_rows=True, at_once=True),
        Step(
            "rebuild_instance",
            start_copy,
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
            on=LEFT,
            record=copy_gone,
            no_return=True,
            when_silent=DEBT,
            when_declared=DEBT,
            retry=FOREVER,
        ),
    ]
