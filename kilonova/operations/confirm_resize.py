"""Confirm: the owner keeps the new copy; the old one and its claim go.

confirm_resize on the source (from here on only forward) -> drop what the migration held -> ACTIVE or SHUTOFF
A source that is away owes the removal and the operation goes on; one that was declared gone is not asked. Asking again
while it runs is the same operation.
"""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.server import RESIZED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import CONTROL, DEBT, FOREVER, SOURCE, Facts, Operation, Place, Step
from kilonova.operations.steps.claim import drop_move
from kilonova.operations.steps.guest import copy_gone, power_of, remove_guest
from kilonova.operations.steps.migration import close_migration
from kilonova.operations.steps.ports import has_ports
from kilonova.operations.steps.volumes import has_volumes


def finished_migration(subject: Subject) -> Facts:
    """Facts of the move that is to be confirmed or reverted."""
    move, server = subject.migration, subject.server
    assert server is not None
    if move is None or move["status"] != "finished":
        raise Refused("not_resized", f"Instance {server.id} has not been resized.")
    return {
        "migration": move["id"],
        "source": move["source_host"],
        "source_copy": move["source_copy"],
        "destination": move["dest_host"],
        "copy": move["dest_copy"],
        "was": move["old_vm_state"],
        "old_flavor": move["old_flavor"],
        "source_claimed": move["old_claimed"],
        "source_gone": bool(move["source_gone"]),
        "ports": has_ports(server),
        "volumes": has_volumes(server),
    }


LIVING_SOURCE = Place("source", lambda facts: [] if facts.get("source_gone") else SOURCE.targets(facts))


class ConfirmResize(Operation):
    name = "confirm_resize"
    action = "confirmResize"
    from_states = frozenset({RESIZED})
    safe_words = "The migration could not be confirmed."

    def check(self, subject: Subject) -> Facts:
        return finished_migration(subject)

    def joins(self, subject: Subject) -> bool:
        return subject.live is not None and subject.live["kind"] == self.name

    def settle(self, ctx: Context) -> None:
        ctx.set_server(vm_state=ctx.facts["was"], power_state=power_of(ctx.facts["was"]))
        close_migration(ctx, "confirmed")

    steps = [
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
    ]
