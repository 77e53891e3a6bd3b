"""Revert: back to the old copy on the source, and to the old flavor.

check_source (its copy is whole) -> (what the old flavor has more counts against the quota again)
  -> revert_resize on the destination (stop) -> (check_source_again, if the first check was left out)
  -> permission to run back to the source (from here on only forward)
  -> the claims swap back (never refused for capacity), ports and volumes go back to the source
  -> finish_revert_resize on the source -> the new copy is removed -> the old flavor is recorded
A source that does not report its copy whole ends the revert: the server can still be confirmed.
A destination that died waits for an operator's declaration (a guest may run there), then owes the removal. The source's
copy is then the only one, so the source is not asked first. If the destination answers after all, it has a copy to
lose: the source is asked once the guest is stopped, and unless its copy is whole, the guest runs again.
A source that cannot start its copy any more: ERROR there, and the new copy is removed all the same.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import ERROR, RESIZED
from kilonova.engine.accept import Ask
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.core import Engine
from kilonova.engine.course import Problem
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
    Target,
)
from kilonova.operations.checks.growth import check_growth, flavor_before
from kilonova.operations.confirm_resize import finished_migration, require_whole
from kilonova.operations.facts import DESTINATION, SOURCE, WITH_PORTS, WITH_VOLUMES, RevertFacts
from kilonova.operations.steps.claim import return_move
from kilonova.operations.steps.counting import GROWS_BACK, count_new, raise_to_old, record_old
from kilonova.operations.steps.guest import copy_gone, finish_guest, power_of, remove_guest, start_guest, stop_guest
from kilonova.operations.steps.migration import close_migration, mark_migration
from kilonova.operations.steps.outlook import copy_on, outlook, reverted_disks, share_of
from kilonova.operations.steps.ownership import give_resized_to_source
from kilonova.operations.steps.ports import bind_to_source
from kilonova.operations.steps.volumes import connect_to_source
from kilonova.world import Row, Tx

RevertContext = Context[RevertFacts, Params]

# Only where the destination has a copy that could be used instead.
CHECKED: StepTargets[RevertFacts] = StepTargets(
    "source", lambda facts: [] if facts.destination_down else SOURCE.targets(facts)
)
CHECK_SOURCE, CHECK_AGAIN = "check_source", "check_source_again"
NOT_CHECKED = (
    "The migration could not be reverted: the former copy is not complete, or its host does not answer; "
    "the server still waits to be confirmed or reverted."
)

# The destination was down when the revert was accepted, and has answered since.
CHECKED_AGAIN: StepTargets[RevertFacts] = StepTargets(
    "source",
    lambda facts: SOURCE.targets(facts) if facts.destination_down and facts.destination_stopped else [],
)

# From the point of no return on, whatever becomes of the source's copy.
LEFT_BEHIND: StepTargets[RevertFacts] = StepTargets(
    "destination", lambda facts: DESTINATION.targets(facts) if facts.given_back else []
)

# A cold migration has one flavor.
RESIZED_BACK: StepTargets[RevertFacts] = StepTargets(
    "control", lambda facts: [Target("")] if facts.new_flavor != facts.old_flavor else []
)
REVERTED: StepTargets[RevertFacts] = StepTargets(
    "control", lambda facts: RESIZED_BACK.targets(facts) if facts.given_back else []
)


async def check_whole(host: HostContext) -> StepResult:
    """Check the source's copy: only if it is complete is the destination's copy stopped and later removed."""
    return await require_whole(host, "confirm the migration: the server runs on a complete one")


def note_stopped(ctx: RevertContext, result: StepResult) -> None:
    """Note whether the destination itself reported that it stopped, or was declared down."""
    ctx.facts.destination_stopped = not result.waived


async def give_back(ctx: RevertContext) -> None:
    ctx.set_migration(ctx.facts.migration, status="reverted")
    await give_resized_to_source(ctx)
    ctx.facts.given_back = True


class RevertResize(Operation[RevertFacts, Params]):
    facts_type = RevertFacts
    params_type = Params
    name = "revert_resize"
    action = "revertResize"
    task_state = "resize_reverting"
    from_states = frozenset({RESIZED})
    version = 3
    safe_message = "The migration could not be reverted."
    notifications = (Notification("resize_revert"),)

    def check(self, subject: Subject[Params]) -> RevertFacts:
        facts = RevertFacts(**msgspec.structs.asdict(finished_migration(subject)))
        server, host, source = subject.server, subject.host, subject.source
        assert server is not None
        if facts.source_gone:
            text = f"Instance {server.id} cannot be reverted: its old copy is gone"
            raise Refused("source_gone", f"{text}; confirm the migration, or delete the instance")
        facts.destination_down = host is not None and host.status == "down"
        if source is not None and source.status == "down" and not facts.destination_down:
            text = f"The former host of instance {server.id} does not answer"
            raise Refused("host_down", f"{text}; confirm the migration, or revert it when the host is back")
        return facts

    async def admit(self, engine: Engine, ask: Ask, mapping: Row) -> None:
        """Refuse a revert whose old flavor exceeds the quota. The operation counts it in its first steps."""
        flavor = await flavor_before(engine, ask, mapping)
        if flavor is not None:
            await check_growth(engine, mapping, flavor)

    def message_for(self, problem: Problem) -> str:
        return NOT_CHECKED if problem.step in (CHECK_SOURCE, CHECK_AGAIN) else self.safe_message

    async def accepted(self, tx: Tx, op: Op, facts: RevertFacts, subject: Subject[Params], now: float) -> None:
        await mark_migration(tx, facts.migration, "reverting", now)

    def outlook(self, subject: Subject[Params], facts: RevertFacts) -> JsonObject:
        server = subject.server
        assert server is not None
        removed = copy_on(facts.destination, facts.copy, share_of(server))
        return outlook(facts.source, facts.was, reverted_disks(server, facts.old_flavor), removed=[removed])

    def joins(self, subject: Subject[Params]) -> bool:
        return subject.live is not None and subject.live["kind"] == self.name

    def finish(self, ctx: RevertContext) -> None:
        ctx.set_server(vm_state=ctx.facts.was, power_state=power_of(ctx.facts.was))
        close_migration(ctx, "reverted")

    def finish_undone(self, ctx: RevertContext) -> None:
        if ctx.facts.given_back:  # past the point of no return: the source's copy would not start
            ctx.set_server(vm_state=ERROR)
            close_migration(ctx, "error")
        else:
            ctx.set_migration(ctx.facts.migration, status="finished")

    steps = [
        Step(CHECK_SOURCE, check_whole, on=CHECKED, when_silent=FAIL),
        Step("raise_usage", raise_to_old, on=GROWS_BACK, undo=count_new),
        Step(
            "revert_resize",
            stop_guest,
            on=DESTINATION,
            undo=start_guest,
            record=note_stopped,
            undo_starts_guest=True,
            when_declared=DEBT,
            event="compute_revert_resize",
        ),
        Step(CHECK_AGAIN, check_whole, on=CHECKED_AGAIN, when_silent=FAIL),
        Step("grant_runner", give_back, on=CONTROL, no_return=True, only_rows=True),
        Step("return_claim", return_move, on=CONTROL, retry=FOREVER, claims=True),
        Step("bind_ports", bind_to_source, on=WITH_PORTS, retry=FOREVER),
        Step("connect_volumes", connect_to_source, on=WITH_VOLUMES, retry=FOREVER),
        Step(
            "finish_revert_resize",
            finish_guest,
            on=SOURCE,
            starts_guest=True,
            with_guest=True,
            retry=5,
            deadline=600.0,
            event="compute_finish_revert_resize",
        ),
        Step(
            "settle_destination",
            remove_guest,
            on=DESTINATION,
            record=copy_gone,
            when_silent=DEBT,
            when_declared=DEBT,
            retry=FOREVER,
        ),
        Step("record_flavor", record_old, on=RESIZED_BACK, retry=FOREVER, only_rows=True),
    ]
    ending = [
        Step("drop_destination", remove_guest, on=LEFT_BEHIND, record=copy_gone, when_silent=DEBT, when_declared=DEBT),
        Step("record_reverted", record_old, on=REVERTED, retry=FOREVER, only_rows=True),
    ]
