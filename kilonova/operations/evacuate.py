"""Evacuate: a server's host is dead, so the server gets a new copy elsewhere; the guest is started there, unless the
server ends `stopped`.

(undo the operation that was under way; if that brings the server back to a host that is dead as well, that host is the
source from then on) -> rebuild_server (choose the destination) -> claim the destination (the source's share stays, held
for the evacuation) -> grant_runner, with the proof (from here on it cannot be cancelled) -> ports and volumes go to the
destination: the source's connections to the volumes are invalid -> rebuild_instance there (the disk is taken over on
shared storage, else made again from the image) -> settle_source (it owes the removal of its copy)
A destination that fails is cleaned, permission goes back to the source, and another destination is tried. When none is
left, the source's copy, which was never touched, is adopted when its host returns. The source's share is freed when the
source is clean.
"""

from __future__ import annotations

import uuid

from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.params import MoveParams
from kilonova.domain.server import ACTIVE, ERROR, STOPPED
from kilonova.engine.context import Context, Subject
from kilonova.engine.debts import owe_removal
from kilonova.engine.journal import Op, op_from
from kilonova.engine.model import (
    CONTROL,
    IMAGE_TOKEN,
    Notification,
    Operation,
    Step,
    StepTargets,
    Target,
)
from kilonova.operations.facts import DESTINATION, EvacuateFacts
from kilonova.operations.steps.admission import admit_child
from kilonova.operations.steps.claim import claim_destination
from kilonova.operations.steps.former_host import note_former, require_proof
from kilonova.operations.steps.guest import copy_gone, copy_whole, power_of, rebuild_guest, remove_guest
from kilonova.operations.steps.migration import close_migration, open_migration, put_migration
from kilonova.operations.steps.outlook import evacuated_disks, outlook_of_move, share_storage
from kilonova.operations.steps.ownership import give_runner, require_away
from kilonova.operations.steps.ports import bind_to_destination, bind_to_source
from kilonova.operations.steps.select import choose, remember_tried
from kilonova.operations.steps.volumes import connect_to_destination, connect_to_source, has_volumes
from kilonova.placement import claims
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.world import Tx

EvacuateContext = Context[EvacuateFacts, MoveParams]

# Undoing the interrupted operation may have brought the server back to a living host: then nothing is left to do.
STILL_AWAY: StepTargets[EvacuateFacts] = StepTargets(
    "control", lambda facts: [] if facts.brought_back else [Target("")]
)
PORTS_AWAY: StepTargets[EvacuateFacts] = StepTargets(
    "control", lambda facts: STILL_AWAY.targets(facts) if facts.ports else []
)
VOLUMES_AWAY: StepTargets[EvacuateFacts] = StepTargets(
    "control", lambda facts: STILL_AWAY.targets(facts) if facts.volumes else []
)


async def select_destination(ctx: EvacuateContext) -> None:
    await note_former(ctx)
    facts = ctx.facts
    if facts.brought_back:
        return
    excluded, planned = {facts.source: "it is the dead source"}, ctx.params.planned
    cells, flavor = [ctx.journal.name], ctx.row.flavor
    await choose(ctx, flavor, cells, excluded, ctx.params.host, dead_host=facts.source, preferred=planned)
    if ctx.rehearsing:
        facts.shares_storage = await share_storage(ctx, facts.source, facts.candidates[0].host)
    # undoing the interrupted operation may have changed the current copy
    facts.source_copy = ctx.row.copy or 0


async def end_accepted(ctx: EvacuateContext) -> None:
    """End the record of the move that accepting it has made; it never got a claim."""
    migration = ctx.facts.migration

    async def change(tx: Tx, now: float) -> None:
        ended = {"status": "error", "updated_at": now}
        await rows.change(tx, cell.migrations, ended, id=migration, status="accepted")

    ctx.in_transaction(change)


async def claim_evacuation(ctx: EvacuateContext) -> None:
    await claim_destination(ctx, claims.claim_evacuation, ctx.facts.source)


async def return_claim(ctx: EvacuateContext) -> None:
    if ctx.facts.migration:
        await claims.return_evacuation(ctx.world.db.placement, ctx.fence, ctx.facts.migration)


def claim_returned(ctx: EvacuateContext, result: StepResult) -> None:
    close_migration(ctx, "failed")
    if ctx.facts.destination:
        ctx.forget_planned_copy(ctx.facts.copy, ctx.facts.destination)
    remember_tried(ctx)


async def give_to_destination(ctx: EvacuateContext) -> None:
    facts = ctx.facts
    await require_away(ctx, facts.source)
    give_runner(ctx, facts.destination, facts.copy, facts.proof)
    if facts.child:
        admit_child(ctx, facts.destination)


async def give_back_to_source(ctx: EvacuateContext) -> None:
    """Give permission to run back to the source: the destination reported its copy removed, or was declared down and
    owes it."""
    source = ctx.facts.source
    give_runner(ctx, source, ctx.facts.source_copy, "the destination's copy is gone or declared down")

    async def change(tx: Tx, now: float) -> None:
        await raise_epoch(tx, source)  # it may be back already and must hear that its copy counts again

    ctx.in_transaction(change)


async def leave_debt(ctx: EvacuateContext) -> None:
    """Record as debts every copy that the source has, and its share of the claim: they go when it returns or is
    declared gone."""
    facts, server_id = ctx.facts, ctx.server_id or ""

    async def change(tx: Tx, now: float) -> None:
        source = facts.source
        left = await rows.fetch_all(tx, cell.copies, server_id=server_id, host=source)
        for copy in sorted({facts.source_copy, *(row["copy"] for row in left)}):
            after = {"evacuation": facts.migration} if copy == facts.source_copy else None
            await owe_removal(tx, source, server_id, copy, ctx.operation_id, now, after)
            await rows.change(tx, cell.copies, {"state": "leaving"}, server_id=server_id, host=source, copy=copy)

    ctx.in_transaction(change)


def _target_state(was: str, *, stopped: bool) -> str:
    """`stopped`: what ran is not started again, its owner does that. What was broken is shown to work."""
    return STOPPED if was == STOPPED or (stopped and was != ERROR) else ACTIVE


class Evacuate(Operation[EvacuateFacts, MoveParams]):
    facts_type = EvacuateFacts
    params_type = MoveParams
    name = "evacuate"
    action = "evacuate"
    task_state = "rebuilding"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})
    supersedes = True
    again_from = "rebuild_server"
    safe_message = "The server could not be evacuated; it is as it was."
    notifications = (
        Notification("evacuate", has_phases=False, sender="api"),
        Notification("rebuild_scheduled", begins="grant_runner", has_phases=False, sender="conductor"),
        Notification("rebuild", begins="grant_runner", fails_from="grant_runner", on="destination"),
    )
    task = "rebuild_server"

    def check(self, subject: Subject[MoveParams]) -> EvacuateFacts:
        server, host, named = subject.server, subject.host, subject.params.host
        assert server is not None
        if server.host is None or host is None or server.copy is None:
            raise Refused("no_host", f"Instance {server.id} has no host to be evacuated from")
        if host.status == "unknown":
            raise Refused("host_unknown", host.sentence)
        if host.is_up:
            raise Refused("host_still_up", f"Compute service of {server.host} is still in use: {host.sentence}")
        require_proof(host, subject.params.accept_unfenced)
        if named == server.host:
            raise Refused("same_host", f"Compute host {named} is the host to evacuate from; name another host or none")
        if named and subject.target is None:
            raise Refused("no_such_host", f"Compute host {named} could not be found.")
        if subject.live is not None and subject.live["kind"] == self.name:
            raise Refused("busy", f"Instance {server.id} is already being evacuated to another target")
        proof = f"{host.sentence}; evacuation asked for by {subject.cause.user_id} ({subject.cause.request_id})"
        return EvacuateFacts(
            source=server.host,
            source_copy=server.copy,
            was=server.vm_state,
            ends=_target_state(server.vm_state, stopped=subject.params.stopped),
            shared=None if server.details.volume_backed else subject.params.shared,
            declared=[server.host],
            down=[state.name for state in (host, subject.source) if state is not None and state.status == "down"],
            proof=proof,
            child=subject.params.child,
            ports=server.has_ports,
            volumes=has_volumes(server),
        )

    def joins(self, subject: Subject[MoveParams]) -> bool:
        """Return whether the same or no target is requested: then it is the same operation (law 10)."""
        live, server = subject.live, subject.server
        if live is None or server is None or live["kind"] != self.name:
            return False
        running = op_from(live)
        requested, wanted = subject.params.host, running.params(self).host
        return running.facts(self).source == server.host and requested in (None, wanted)

    async def accepted(self, tx: Tx, op: Op, facts: EvacuateFacts, subject: Subject[MoveParams], now: float) -> None:
        """Write the record of the move, and raise the source's epoch: whatever it still sends is outdated."""
        server = subject.server
        assert server is not None
        facts.migration = str(uuid.uuid5(uuid.UUID(op.id), "migration"))
        state = {"status": "accepted", "dest_host": subject.params.host, "open": 0}
        await put_migration(tx, "evacuation", server, op.id, facts, op.cause, now, **state)
        await raise_epoch(tx, facts.source)

    def outlook(self, subject: Subject[MoveParams], facts: EvacuateFacts) -> JsonObject:
        """Return the outlook of the move; the disks are kept only if the destination sees them."""
        server, host = subject.server, subject.host
        assert server is not None and host is not None
        disks = evacuated_disks(server, is_shared=facts.shares_storage)
        outlook = outlook_of_move(subject, facts, facts.ends, disks, server.flavor_document)
        return {**outlook, "proof": facts.proof, "proven_by": host.proven_by}

    def finish(self, ctx: EvacuateContext) -> None:
        facts = ctx.facts
        if facts.brought_back:
            ctx.set_migration(facts.migration, status="cancelled", open=0)
            return
        ended = facts.ends
        ctx.set_server(
            vm_state=ended,
            host=facts.destination,
            copy=facts.copy,
            claimed=facts.claimed,
            power_state=power_of(ended),
            launched_at=ctx.world.clock.now(),
        )
        ctx.set_migration(facts.migration, status="done")

    steps = [
        Step("rebuild_server", select_destination, on=CONTROL, undo=end_accepted, plan=True, event="rebuild_server"),
        Step(
            "claim",
            claim_evacuation,
            on=STILL_AWAY,
            undo=return_claim,
            record=open_migration("evacuation", "pre-migrating"),
            record_undo=claim_returned,
            tries_elsewhere=True,
            claims=True,
        ),
        Step(
            "grant_runner",
            give_to_destination,
            on=STILL_AWAY,
            undo=give_back_to_source,
            no_return=True,
            deadline=60.0,
            only_rows=True,
        ),
        Step("bind_ports", bind_to_destination, on=PORTS_AWAY, undo=bind_to_source),
        Step("connect_volumes", connect_to_destination, on=VOLUMES_AWAY, undo=connect_to_source),
        Step(
            "rebuild_instance",
            rebuild_guest,
            on=DESTINATION,
            undo=remove_guest,
            record=copy_whole,
            record_undo=copy_gone,
            starts_guest=True,
            undo_debt=True,
            tries_elsewhere=True,
            with_guest=True,
            with_secrets=True,
            tokens=(IMAGE_TOKEN,),
            deadline=600.0,
            task_state="rebuild_spawning",
            event="compute_rebuild_instance",
        ),
        Step("settle_source", leave_debt, on=STILL_AWAY),
    ]
