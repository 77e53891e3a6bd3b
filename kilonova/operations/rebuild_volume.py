"""Rebuild of a server that boots from a volume: its guest is made again on its host; claims, ports and volumes stay.

As rebuild.py, but the root disk is not the host's. Up to 2.92 the volume keeps its content. From 2.93 on an image
replaces it, while no guest has it open:
the old copy stops -> reimage_volume (from here on it cannot be cancelled) -> await_image -> permission to run
  -> rebuild_instance starts the new copy
The volume's old content stays until the new one is whole. A failure after that is undone as far as the guest goes: the
old copy runs again, from the new content.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Failed, NotYet, Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.params import RebuildParams
from kilonova.domain.volume import VolumeState
from kilonova.engine.context import Subject
from kilonova.engine.course import Problem
from kilonova.engine.details import edit_details
from kilonova.engine.journal import Op
from kilonova.engine.model import Step, StepTargets, Target
from kilonova.operations.facts import RebuildFacts
from kilonova.operations.rebuild import (
    REPLACED,
    REPLACING,
    Rebuild,
    RebuildContext,
    check_image,
    plan_copy,
    rebuild_facts,
)
from kilonova.operations.steps.fenced import fence_of
from kilonova.operations.steps.outlook import outlook, unchanged_volumes
from kilonova.operations.steps.volumes import service_of
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx

REIMAGING: StepTargets[RebuildFacts] = StepTargets("control", lambda facts: [Target("")] if facts.reimage else [])
AFTER = ("grant_runner", "rebuild_instance")  # steps that find the volume re-imaged
LOOKED_AT_AGAIN = 0.5  # seconds


async def reimage(ctx: RebuildContext) -> None:
    facts = ctx.facts
    await service_of(ctx).reimage(fence_of(ctx), attachment_id=facts.attachment, image_id=facts.image)


async def await_image(ctx: RebuildContext) -> None:
    state = await _worked(ctx)
    if state is None:
        raise Failed("volume_failed", f"volume {ctx.facts.volume}: it was deleted", final=True)
    if state.reason:
        raise Failed("volume_failed", f"volume {state.id}: {state.reason}", final=True)


async def await_end(ctx: RebuildContext) -> None:
    """Wait until the content is replaced: until then no guest may open the volume, whichever operation starts it."""
    await _worked(ctx)


async def _worked(ctx: RebuildContext) -> VolumeState | None:
    state = await _state(ctx)
    if state is not None and state.work:
        raise NotYet(f"volume {state.id}, which is {state.status}", LOOKED_AT_AGAIN)
    return state


async def _state(ctx: RebuildContext) -> VolumeState | None:
    """Return the volume's state. None: an administrator removed the attachment."""
    try:
        return await service_of(ctx).state(ctx.facts.volume)
    except Refused:
        return None


async def restore_details(ctx: RebuildContext) -> None:
    """Restore the details, except that those of the image describe what the volume holds now."""
    facts, server_id = ctx.facts, ctx.server_id or ""
    before = facts.before
    state = await _state(ctx)
    held = state.image_metadata if state is not None else {}

    async def change(tx: Tx, now: float) -> None:
        about: JsonObject = {
            "image_properties": held or before.properties,
            "image_format": held.get("disk_format") or before.format,
        }
        await edit_details(tx, server_id, {**before.details, **about})

    ctx.in_transaction(change)
    ctx.forget_planned_copy(facts.copy, facts.destination)


class RebuildVolume(Rebuild):
    name = "rebuild_volume"
    safe_message = "The server could not be rebuilt; it is as it was."

    def check(self, subject: Subject[RebuildParams]) -> RebuildFacts:
        server = subject.server
        assert server is not None
        facts = rebuild_facts(subject)
        root = next((one for one in server.volumes if one.is_root), None)
        if root is None:
            raise Refused("not_volume_backed", f"Instance {server.id} does not boot from a volume")
        facts.before = msgspec.structs.replace(facts.before, image=subject.params.image_before)
        facts.volume, facts.attachment, facts.reimage = root.volume_id, root.attachment_id, subject.params.reimage
        return facts

    async def accepted(self, tx: Tx, op: Op, facts: RebuildFacts, subject: Subject[RebuildParams], now: float) -> None:
        """Record the image in the details: the volume has it, not the server."""
        params, server_id = subject.params, op.server_id or ""
        about: JsonObject = {"image_properties": facts.properties, "image_format": facts.format}
        await edit_details(tx, server_id, {**params.details, **about})
        if params.name is not None:
            await rows.change(tx, cell.servers, {"name": params.name}, id=server_id)

    def message_for(self, problem: Problem) -> str:
        if problem.step in AFTER:
            return "The server could not be rebuilt. If its volume was re-imaged, it holds the new image."
        return super().message_for(problem)

    def outlook(self, subject: Subject[RebuildParams], facts: RebuildFacts) -> JsonObject:
        assert subject.server is not None
        lost = {"fate": "re-created", "from_image": facts.image}
        disks = [
            {**disk, **lost} if facts.reimage and disk["volume"] == facts.volume else disk
            for disk in unchanged_volumes(subject.server)
        ]
        return outlook(facts.destination, facts.was, disks)

    steps = [
        Step(
            "rebuild_server",
            check_image,
            on=Rebuild.steps[0].on,
            undo=restore_details,
            record=plan_copy,
            plan=True,
            event="rebuild_server",
            only_rows=True,
        ),
        *Rebuild.steps[1:3],
        Step("reimage_volume", reimage, on=REIMAGING, undo=await_end, no_return=True),
        Step("await_image", await_image, on=REIMAGING),
        *(step for step in Rebuild.steps[3:] if step.on not in (REPLACED, REPLACING)),
    ]
