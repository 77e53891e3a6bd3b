"""Cold migrate: move a server to another host; both copies are kept until the owner confirms or reverts.

select -> claim the destination (the source's claim moves to the migration) -> prep_resize on the destination
  -> resize_instance on the source (stop, send the disks) -> permission to run -> ports and volumes go there
  -> finish_resize on the destination
Any failure before the end is undone in reverse order: the server is as it was, where it was. A destination that was
powered on and then fell silent waits for an answer, a fence or the operator's word: silence alone moves nothing.
"""

from __future__ import annotations

from typing import ClassVar

from kilonova.domain.errors import Refused
from kilonova.domain.host import HostState
from kilonova.domain.json import JsonObject
from kilonova.domain.params import MoveParams, Params
from kilonova.domain.server import ACTIVE, RESIZED, STOPPED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import CONTROL, Notification, Operation, Step
from kilonova.operations.facts import MoveFacts
from kilonova.operations.steps.claim import claim_move
from kilonova.operations.steps.moving import (
    BIND_PORTS,
    CONNECT_VOLUMES,
    FINISH_RESIZE,
    PREP_RESIZE,
    RESIZE_INSTANCE,
    RESIZE_NOTIFICATION,
    SELECTION_EVENTS,
    claim_step,
    grant_step,
    wait_for_owner,
)
from kilonova.operations.steps.outlook import all_disks, outlook_of_move
from kilonova.operations.steps.ownership import give_to_destination, give_to_source
from kilonova.operations.steps.select import choose, unless_away
from kilonova.operations.steps.volumes import has_volumes
from kilonova.placement.traits import has_trait

SAME_HOST = "COMPUTE_SAME_HOST_COLD_MIGRATE"


async def select_destination(ctx: Context[MoveFacts, MoveParams]) -> None:
    """Note the candidates. The server stays on its host only where the host's driver says that it can do that."""
    source = ctx.facts.source
    stays = await unless_away(ctx, has_trait(ctx.world.db.placement, source, SAME_HOST))
    excluded = {} if stays else {source: "the server is already there"}
    await choose(ctx, ctx.row.flavor, [ctx.journal.name], excluded, ctx.params.host)
    ctx.facts.migration = ctx.facts.migration or ctx.world.ids.uuid()


def source_facts(subject: Subject[Params]) -> MoveFacts:
    """The first facts of a move. Raise `Refused` while the server has no host that answers."""
    server, host = subject.server, subject.host
    assert server is not None
    if server.host is None or host is None:
        raise Refused("not_ready", f"Instance {server.id} has no host yet")
    if not host.is_up:
        raise Refused("host_down", _unanswered(subject, host))
    return MoveFacts(
        source=server.host,
        source_copy=server.copy or 0,
        was=server.vm_state,
        ports=server.has_ports,
        volumes=has_volumes(server),
    )


def _unanswered(subject: Subject[Params], host: HostState) -> str:
    """Return the text for a host that does not answer; only administrators read its name."""
    if subject.cause.is_admin:
        return f"The server's host does not answer: {host.sentence}. Evacuate it if it is dead"
    assert subject.server is not None
    return f"The host of instance {subject.server.id} does not answer; try again when it is back"


class Migrate(Operation[MoveFacts, MoveParams]):
    facts_type = MoveFacts
    params_type = MoveParams
    name = "migrate"
    action = "migrate"
    task_state = "resize_prep"
    from_states = frozenset({ACTIVE, STOPPED})
    again_from = "cold_migrate"
    safe_message = "The server could not be migrated; it is as it was."
    notifications: ClassVar[tuple[Notification, ...]] = (RESIZE_NOTIFICATION,)
    task = "migrate_server"

    def check(self, subject: Subject[MoveParams]) -> MoveFacts:
        server, named = subject.server, subject.params.host
        assert server is not None
        if named and named == server.host:
            raise Refused("same_host", f"Instance {server.id} is already on {named}; name another host or none")
        if named and server.host is not None and subject.target is None:
            raise Refused("no_such_host", f"Compute host {named} could not be found.")
        return source_facts(subject)

    def outlook(self, subject: Subject[MoveParams], facts: MoveFacts) -> JsonObject:
        server = subject.server
        assert server is not None
        disks = all_disks(server, "kept", "re-created")
        return outlook_of_move(subject, facts, RESIZED, disks, server.flavor_document)

    def finish(self, ctx: Context[MoveFacts, MoveParams]) -> None:
        wait_for_owner(ctx)

    steps = [
        Step("cold_migrate", select_destination, on=CONTROL, plan=True, event=SELECTION_EVENTS),
        claim_step(claim_move, "migration"),
        PREP_RESIZE,
        RESIZE_INSTANCE,
        grant_step(give_to_destination, give_to_source),
        BIND_PORTS,
        CONNECT_VOLUMES,
        FINISH_RESIZE,
    ]
