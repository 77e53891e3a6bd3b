"""Cold migrate: move a stopped copy to another host; both copies are kept until the owner confirms or reverts.

select -> claim the destination (the source's claim moves to the migration) -> prep_resize on the destination
  -> resize_instance on the source (stop, send the disk) -> permission to run -> ports and volumes go there
  -> finish_resize on the destination
Any failure before the end is undone in reverse order: the server is as it was, where it was. A destination that was
powered on and then fell silent waits for an answer, a fence or the operator's word: silence alone moves nothing.
"""

from __future__ import annotations

from typing import Any

from kilonova.domain.errors import Refused
from kilonova.domain.server import ACTIVE, RESIZED, STOPPED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import CONTROL, DESTINATION, FAIL, SOURCE, Facts, Operation, Step
from kilonova.operations.steps.claim import claim_move, return_move
from kilonova.operations.steps.guest import (
    copy_begun,
    copy_gone,
    copy_whole,
    finish_guest,
    power_of,
    prepare_guest,
    remove_guest,
    stop_and_send,
    stop_guest,
)
from kilonova.operations.steps.migration import close_migration, open_migration
from kilonova.operations.steps.ownership import give_to_destination, give_to_source
from kilonova.operations.steps.ports import WITH_PORTS, bind_to_destination, bind_to_source, has_ports
from kilonova.operations.steps.select import choose, remember_tried
from kilonova.operations.steps.volumes import WITH_VOLUMES, connect_to_destination, connect_to_source, has_volumes


async def select_destination(ctx: Context) -> Facts:
    source = ctx.facts["source"]
    excluded = {} if ctx.limits.allow_resize_to_same_host else {source: "the server is already there"}
    found = await choose(ctx, ctx.row.flavor, [ctx.journal.name], excluded, ctx.params.get("host"))
    return {**found, "migration": ctx.facts.get("migration") or ctx.world.ids.uuid()}


def claim_returned(ctx: Context, result: dict[str, Any]) -> None:
    close_migration(ctx, "error")
    if ctx.facts.get("destination"):
        ctx.forget_planned_copy(ctx.facts["copy"], ctx.facts["destination"])
    remember_tried(ctx, result)


def migrating(ctx: Context, result: dict[str, Any]) -> None:
    copy_begun(ctx, result)
    ctx.set_migration(status="migrating")


class Migrate(Operation):
    name = "migrate"
    action = "migrate"
    task_state = "resize_prep"
    from_states = frozenset({ACTIVE, STOPPED})
    again_from = "cold_migrate"
    safe_words = "The server could not be migrated; it is as it was."

    def check(self, subject: Subject) -> Facts:
        server, host, named = subject.server, subject.host, subject.params.get("host")
        assert server is not None
        if server.host is None or host is None:
            raise Refused("not_ready", f"Instance {server.id} has no host yet")
        if named == server.host:
            raise Refused("same_host", f"Instance {server.id} is already on {named}; name another host or none")
        if named and subject.target is None:
            raise Refused("no_such_host", f"Compute host {named} could not be found.")
        if not host.is_up:
            raise Refused("host_down", f"The server's host does not answer: {host.sentence}. Evacuate it if it is dead")
        return {
            "source": server.host,
            "source_copy": server.copy,
            "was": server.vm_state,
            "ports": has_ports(server),
            "volumes": has_volumes(server),
        }

    def settle(self, ctx: Context) -> None:
        ctx.set_server(vm_state=RESIZED, power_state=power_of(ctx.facts["was"]), launched_at=ctx.world.clock.now())
        ctx.set_migration(status="finished")

    steps = [
        Step("cold_migrate", select_destination, on=CONTROL, plan=True, event="cold_migrate"),
        Step(
            "claim",
            claim_move,
            on=CONTROL,
            undo=return_move,
            record=open_migration("migration", "pre-migrating"),
            record_undo=claim_returned,
            tries_elsewhere=True,
            claims=True,
        ),
        Step(
            "prep_resize",
            prepare_guest,
            on=DESTINATION,
            undo=remove_guest,
            record=migrating,
            record_undo=copy_gone,
            when_silent=FAIL,
            undo_debt=True,
            tries_elsewhere=True,
            event="compute_prep_resize",
        ),
        Step(
            "resize_instance",
            stop_and_send,
            on=SOURCE,
            undo=finish_guest,
            undo_starts_guest=True,
            deadline=3600.0,
            task_state="resize_migrating",
            event="compute_resize_instance",
        ),
        Step(
            "grant_runner",
            give_to_destination,
            on=CONTROL,
            undo=give_to_source,
            task_state="resize_migrated",
            only_rows=True,
        ),
        Step("bind_ports", bind_to_destination, on=WITH_PORTS, undo=bind_to_source),
        Step("connect_volumes", connect_to_destination, on=WITH_VOLUMES, undo=connect_to_source),
        Step(
            "finish_resize",
            finish_guest,
            on=DESTINATION,
            undo=stop_guest,
            record=copy_whole,
            starts_guest=True,
            deadline=600.0,
            task_state="resize_finish",
            event="compute_finish_resize",
        ),
    ]
