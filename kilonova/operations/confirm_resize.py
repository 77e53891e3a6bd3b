"""Confirm: the owner keeps the new copy; the old one and its claim are removed.

check_destination (its copy is whole) -> confirm_resize on the source (from here on only forward)
  -> drop what the migration held -> ACTIVE or SHUTOFF
A destination that does not report its copy whole ends the confirmation: the server can still go back. A source that is
down gets a debt and the operation goes on. If the source was declared gone, neither host is asked. A repeated request
while it runs joins the same operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, RESIZED, STOPPED
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.journal import Op
from kilonova.engine.model import (
    CONTROL,
    DEBT,
    FAIL,
    FOREVER,
    Notification,
    Operation,
    Step,
    StepTargets,
)
from kilonova.operations.facts import DESTINATION, SOURCE, MoveFacts, ResizeFacts
from kilonova.operations.steps.claim import drop_move
from kilonova.operations.steps.guest import copy_gone, power_of, remove_guest
from kilonova.operations.steps.migration import close_migration, mark_migration
from kilonova.operations.steps.outlook import all_disks, outlook, source_of_move
from kilonova.operations.steps.volumes import has_volumes
from kilonova.world import Tx

# The second and third without a live operation: that one was abandoned, and may be asked for again.
WAITS_FOR_OWNER = ("finished", "confirming", "reverting")


def finished_migration(subject: Subject[Params]) -> ResizeFacts:
    """Return the facts of the move that is to be confirmed or reverted."""
    move, server = subject.migration, subject.server
    assert server is not None
    if move is None or move["status"] not in WAITS_FOR_OWNER:
        raise Refused("not_resized", f"Instance {server.id} has not been resized.")
    return ResizeFacts(
        migration=move["id"],
        source=move["source_host"],
        source_copy=move["source_copy"],
        destination=move["dest_host"],
        copy=move["dest_copy"],
        was=move["old_vm_state"],
        old_flavor=move["old_flavor"],
        new_flavor=move["new_flavor"],
        source_claimed=move["old_claimed"],
        source_gone=bool(move["source_gone"]),
        ports=server.has_ports,
        volumes=has_volumes(server),
    )


LIVING_SOURCE: StepTargets[MoveFacts] = StepTargets(
    "source", lambda facts: [] if facts.source_gone else SOURCE.targets(facts)
)
# Only where the source has a copy that could be used instead.
CHECKED: StepTargets[MoveFacts] = StepTargets(
    "destination",
    lambda facts: [] if facts.source_gone or facts.dead_together else DESTINATION.targets(facts),
)


async def check_whole(host: HostContext) -> StepResult:
    """Check that the destination's copy is complete: only then the source's copy is removed."""
    return await require_whole(host, "revert the migration: its former host still has one")


async def require_whole(host: HostContext, instead: str) -> StepResult:
    """Raise `Failed` unless the step's host has a complete disk of the step's copy. `instead`: what to do then."""
    if not await host.driver.sees_disk(host.server, host.copy):
        text = f"host {host.host} has no complete disk of copy {host.copy} of server {host.server}"
        raise Failed("not_whole", f"{text}; {instead}", final=True)
    return StepResult()


def confirmed_state(was: str, power_state: int) -> str:
    """Return the state that the guest's power state implies, as in Nova. `was`: the state before the move.

    The guest may have ended without an order while the server waited for its owner, and is not checked a second time.
    """
    return {POWER_RUNNING: ACTIVE, POWER_SHUTDOWN: STOPPED}.get(power_state, was)


CONFIRMING: Sequence[Step[MoveFacts, Params]] = (
    Step("check_destination", check_whole, on=CHECKED, when_silent=FAIL),
    Step(
        "confirm_resize",
        remove_guest,
        on=LIVING_SOURCE,
        record=copy_gone,
        no_return=True,
        when_silent=DEBT,
        when_declared=DEBT,
        retry=FOREVER,
        event="compute_confirm_resize",
    ),
    Step("drop_claim", drop_move, on=CONTROL, retry=FOREVER, claims=True),
)


class ConfirmResize(Operation[ResizeFacts, Params]):
    facts_type = ResizeFacts
    params_type = Params
    name = "confirm_resize"
    action = "confirmResize"
    from_states = frozenset({RESIZED})
    version = 2
    notifications = (Notification("resize_confirm", on="source"),)
    safe_message = "The migration could not be confirmed; the server still waits to be confirmed or reverted."

    def check(self, subject: Subject[Params]) -> ResizeFacts:
        facts, server, host = finished_migration(subject), subject.server, subject.host
        assert server is not None and host is not None, "a server that was moved has a host"
        is_down = host.status == "down"
        # Both copies are on one host that was declared dead: nothing that could be used is given up, and the server has
        # to be confirmed before it can be evacuated.
        facts.dead_together = is_down and host.declared and facts.source == facts.destination
        if is_down and not facts.source_gone and not facts.dead_together:
            text = f"The host of instance {server.id} does not answer"
            raise Refused("host_down", f"{text}; revert the migration, or confirm it when the host is back")
        return facts

    async def accepted(self, tx: Tx, op: Op, facts: ResizeFacts, subject: Subject[Params], now: float) -> None:
        await mark_migration(tx, facts.migration, "confirming", now)

    def joins(self, subject: Subject[Params]) -> bool:
        return subject.live is not None and subject.live["kind"] == self.name

    def finish(self, ctx: Context[ResizeFacts, Params]) -> None:
        state = confirmed_state(ctx.facts.was, ctx.row.power_state)
        ctx.set_server(vm_state=state, power_state=power_of(state))
        close_migration(ctx, "confirmed")

    def finish_undone(self, ctx: Context[ResizeFacts, Params]) -> None:
        ctx.set_migration(ctx.facts.migration, status="finished")

    def outlook(self, subject: Subject[Params], facts: ResizeFacts) -> JsonObject:
        assert subject.server is not None
        disks = all_disks(subject.server, "kept", "kept")
        state = confirmed_state(facts.was, subject.server.power_state)
        return outlook(facts.destination, state, disks, removed=source_of_move(facts))

    steps = CONFIRMING
