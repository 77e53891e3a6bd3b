"""Resize: give a server another flavor; both copies are kept until the owner confirms or reverts.

select -> (what the new flavor has more counts against the quota) -> claim the destination with the new flavor (the old
flavor's claim moves to the migration, on the same host too) -> prep_resize on the destination
  -> resize_instance on the source (stop, send the disks) -> permission to run, and the new flavor
  -> ports and volumes go there -> finish_resize on the destination (disks grow) -> the new flavor is recorded
Any failure before the end is undone in reverse order: the server is as it was, where it was, with its old flavor.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.params import ResizeParams
from kilonova.domain.server import ACTIVE, RESIZED, STOPPED, Flavor, flavor_document, flavor_from
from kilonova.engine.accept import Ask, params_of
from kilonova.engine.context import Context, Subject
from kilonova.engine.core import Engine
from kilonova.engine.course import Problem
from kilonova.engine.details import edit_details
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.operations.checks.growth import check_growth
from kilonova.operations.facts import ResizeFacts
from kilonova.operations.migrate import source_facts
from kilonova.operations.steps.claim import claim_resize
from kilonova.operations.steps.counting import GROWS, count_old, raise_to_new, record_new, record_old
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
from kilonova.operations.steps.outlook import boots_from_volume, outlook_of_move, resized_disks
from kilonova.operations.steps.ownership import give_resized_to_destination, give_resized_to_source
from kilonova.operations.steps.select import choose
from kilonova.world import Row, Tx

SAME_FLAVOR = "When resizing, instances must change flavor!"
ZERO_DISK = "Server disk was unable to be resized because: Resize to zero disk flavor is not allowed."


async def select_destination(ctx: Context[ResizeFacts, ResizeParams]) -> None:
    """Note the candidates. Its own host is one where `allow_resize_to_same_host` is set."""
    source = ctx.facts.source
    stays = ctx.settings.default.allow_resize_to_same_host
    excluded = (
        {} if stays else {source: "the server is already there; set allow_resize_to_same_host to resize it there"}
    )
    flavor = flavor_from(ctx.facts.new_flavor)
    await choose(ctx, flavor, [ctx.journal.name], excluded)
    ctx.facts.migration = ctx.facts.migration or ctx.world.ids.uuid()


def new_flavor(subject: Subject[ResizeParams]) -> Flavor:
    """Return the requested flavor, with the local disks that the server keeps.

    Raise `Refused` if the server cannot have it: only disks that are made again may shrink.
    """
    server = subject.server
    assert server is not None
    old, new = server.flavor, subject.params.flavor
    if _is_same(old, new):
        raise Refused("same_flavor", SAME_FLAVOR)
    if not boots_from_volume(server):
        if new.disk_gb == 0 and old.disk_gb != 0:
            raise Refused("disk_shrinks", ZERO_DISK)
        _check_size("root disk", old.disk_gb, new.disk_gb, new)
    _check_size("ephemeral disks", sum(old.ephemeral_disks), new.ephemeral_gb, new)
    return msgspec.structs.replace(new, ephemerals=old.ephemerals, requested_swap_mb=None)


def _is_same(old: Flavor, new: Flavor) -> bool:
    """Return True if both are the same flavor. A flavor that was deleted and created again has the same id and other
    sizes."""
    sizes = [(one.vcpus, one.memory_mb, one.disk_gb, one.ephemeral_gb, one.swap_mb) for one in (old, new)]
    if old.id or new.id:
        return old.id == new.id and sizes[0] == sizes[1]
    return sizes[0] == sizes[1] and old.extra_specs == new.extra_specs


def _check_size(disk: str, before: int, after: int, flavor: Flavor) -> None:
    if after < before:
        text = f"flavor {flavor.id or flavor.name}: the {disk} would shrink from {before} GB to {after} GB"
        raise Refused("disk_shrinks", f"{text}; use a flavor with at least {before} GB")


class Resize(Operation[ResizeFacts, ResizeParams]):
    facts_type = ResizeFacts
    params_type = ResizeParams
    name = "resize"
    action = "resize"
    task_state = "resize_prep"
    from_states = frozenset({ACTIVE, STOPPED})
    again_from = "cold_migrate"
    safe_message = "The server could not be resized; it is as it was."
    notifications = (RESIZE_NOTIFICATION,)
    task = "migrate_server"

    def check(self, subject: Subject[ResizeParams]) -> ResizeFacts:
        facts, server = source_facts(subject), subject.server
        assert server is not None
        return ResizeFacts(
            **msgspec.structs.asdict(facts),
            old_flavor=server.flavor_document,
            new_flavor=flavor_document(new_flavor(subject)),
        )

    async def admit(self, engine: Engine, ask: Ask, mapping: Row) -> None:
        await check_growth(engine, mapping, params_of(self, ask.params).flavor)

    async def accepted(self, tx: Tx, op: Op, facts: ResizeFacts, subject: Subject[ResizeParams], now: float) -> None:
        """Write `OS-DCF:diskConfig`, which is the owner's setting and stays even if the resize fails."""
        assert subject.server is not None
        chosen = subject.params.disk_config
        await edit_details(tx, subject.server.id, {} if chosen is None else {"disk_config": chosen})

    def message_for(self, problem: Problem) -> str:
        if problem.code == "quota_exceeded":
            return "The server could not be resized: the quota has no room for the new flavor; it is as it was."
        return self.safe_message

    def outlook(self, subject: Subject[ResizeParams], facts: ResizeFacts) -> JsonObject:
        assert subject.server is not None
        disks = resized_disks(subject.server, flavor_from(facts.new_flavor))
        return outlook_of_move(subject, facts, RESIZED, disks, facts.new_flavor)

    def finish(self, ctx: Context[ResizeFacts, ResizeParams]) -> None:
        wait_for_owner(ctx)

    steps = [
        Step("cold_migrate", select_destination, on=CONTROL, plan=True, event=SELECTION_EVENTS),
        Step("raise_usage", raise_to_new, on=GROWS, undo=count_old),
        claim_step(claim_resize, "resize"),
        PREP_RESIZE,
        RESIZE_INSTANCE,
        grant_step(give_resized_to_destination, give_resized_to_source),
        BIND_PORTS,
        CONNECT_VOLUMES,
        FINISH_RESIZE,
        Step("record_flavor", record_new, on=CONTROL, undo=record_old, retry=FOREVER, only_rows=True),
    ]
