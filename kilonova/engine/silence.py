"""Steps of hosts that do not answer. Silence alone never moves permission to run (law 3): a step that may have left
a guest running waits, visibly, for an answer, a fence or the operator's word."""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import Superseded
from kilonova.domain.host import HostState
from kilonova.engine import journal as log
from kilonova.engine.conclude import Outcome, conclude
from kilonova.engine.core import Engine, has_servers
from kilonova.engine.course import Problem
from kilonova.engine.journal import Op
from kilonova.engine.model import DEBT, FAIL, WAIT, AnyStep
from kilonova.engine.run import pass_on
from kilonova.schema.tables.journal import STEP_IS_OPEN, operations, steps
from kilonova.store import rows
from kilonova.store.hosts import judge_all
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

_OPEN_ON_HOSTS = Sql(
    select(
        steps.c.operation_id,
        steps.c.ordinal,
        steps.c.host,
        steps.c.way,
        steps.c.name,
        steps.c.heir_of,
        steps.c.state,
        steps.c.taken_at,
        operations.c.kind,
        operations.c.facts,
        operations.c.state.label("operation_state"),
        operations.c.waiting_for,
    )
    .join(operations, operations.c.id == steps.c.operation_id)
    .where(STEP_IS_OPEN, steps.c.host != "")
)  # sorted by the reader: with ORDER BY, SQLite would scan all steps there ever were
_KIND = Sql(select(operations.c.id, operations.c.kind).where(operations.c.id == bindparam("id")))


class _Declared(msgspec.Struct):
    """The hosts that count as dead for an operation, among its facts."""

    declared: list[str] = []


def on_silence(step: AnyStep, way: str, state: HostState, declared: bool) -> str:
    """Return WAIT, FAIL or DEBT; a pure rule."""
    if declared:
        return DEBT if way == "undo" else step.when_declared
    if state.status != "down":
        return WAIT
    if way == "undo":
        return WAIT if step.starts_guest else DEBT
    return step.when_silent


async def watch_hosts(engine: Engine, journal: Store) -> None:
    """Look at every step that lies with a host; act on those whose host is not there or that take too long."""
    if not has_servers(journal):
        return

    async def body(tx: Tx) -> tuple[list[Row], dict[str, HostState], dict[str, str], float]:
        open_steps = sorted(await tx.all(_OPEN_ON_HOSTS), key=lambda row: (row["operation_id"], row["ordinal"]))
        states = await judge_all(tx, engine.settings.default.service_down_time) if open_steps else {}
        owners: dict[str, str] = {}
        for row in open_steps:
            if row["heir_of"]:
                owner = await tx.one(_KIND, id=row["heir_of"])
                owners[row["heir_of"]] = owner["kind"] if owner else row["kind"]
        return open_steps, states, owners, await tx.now() if open_steps else 0.0

    open_steps, states, owners, now = await journal.read(body)
    for row in open_steps:
        state = states.get(row["host"]) or HostState(row["host"], "unknown", f"{row['host']} is not known here")
        step = engine.operation(owners.get(row["heir_of"], row["kind"])).step(row["name"])
        await _look(engine, journal, row, step, state, now)


async def _look(engine: Engine, journal: Store, row: Row, step: AnyStep, state: HostState, now: float) -> None:
    facts = msgspec.json.decode(row["facts"], type=_Declared)
    declared = state.declared or row["host"] in facts.declared
    if state.is_up and not declared:
        await _in_time(engine, journal, row, step, state, now)
        return
    rule = on_silence(step, row["way"], state, declared)
    if rule == WAIT:
        text = (
            f"{row['host']} to answer about {step.name} ({state.sentence}). To go on without it, fence it or declare "
            f"it down: openstack compute service set --down {row['host']} nova-compute"
        )
        await set_waiting(engine, journal, row["operation_id"], row["ordinal"], text)
        return
    if rule == DEBT:
        outcome = Outcome(waived=state.sentence)
    else:
        text = f"{step.name} on {row['host']}: {state.sentence}"
        outcome = Outcome(problem=Problem(code="host_down", message=text, step=step.name, elsewhere=True, final=True))
    await _end(engine, journal, row, outcome)


async def _in_time(engine: Engine, journal: Store, row: Row, step: AnyStep, state: HostState, now: float) -> None:
    """Look at the deadline of a step whose host counts as present. It fails only steps that cannot have left a guest
    running or a shared disk open."""
    taken_for = now - row["taken_at"] if row["state"] == "taken" else 0.0
    if taken_for < 0.0:
        await _taken_now(engine, journal, row)
    overdue = taken_for > step.deadline
    if overdue and row["way"] == "do" and not step.starts_guest:
        text = f"{step.name} on {row['host']} did not end within {step.deadline:.0f} s"
        problem = Problem(code="deadline", message=text, step=step.name, elsewhere=True, final=True)
        await _end(engine, journal, row, Outcome(problem=problem))
    elif state.silent > _beats_missed(engine):
        text = f"{row['host']} to answer about {step.name}; last heard {state.silent:.0f} s ago"
        await set_waiting(engine, journal, row["operation_id"], row["ordinal"], text, only_say=True)
    elif row["waiting_for"] is not None:
        only_say = row["operation_state"] != "waiting"
        await set_waiting(engine, journal, row["operation_id"], row["ordinal"], None, only_say=only_say)


async def _taken_now(engine: Engine, journal: Store, row: Row) -> None:
    """Restart the step's deadline: the database's clock was set back since it was taken (law 16)."""
    keys = {"operation_id": row["operation_id"], "ordinal": row["ordinal"], "taken_at": row["taken_at"], "open": 1}

    async def body(tx: Tx) -> None:
        await rows.change(tx, steps, {}, ("taken_at",), **keys)

    await engine.write(journal, body)


def _beats_missed(engine: Engine) -> float:
    """Return the seconds after which at least one heartbeat is missing. That decides nothing (law 9), so the operation
    keeps its state; it only shows why nothing happens."""
    return 1.5 * engine.settings.default.report_interval + engine.flush_seconds


async def _end(engine: Engine, journal: Store, row: Row, outcome: Outcome) -> None:
    try:
        following = await conclude(engine, journal, row["operation_id"], row["ordinal"], outcome)
    except Superseded:
        return
    await pass_on(engine, journal, following)


async def set_waiting(
    engine: Engine, journal: Store, operation_id: str, ordinal: int, text: str | None, *, only_say: bool = False
) -> None:
    """Record what an operation waits for, or that it no longer waits; `only_say` leaves its state unchanged."""

    async def body(tx: Tx) -> None:
        op = await log.load(tx, operation_id, lock=True)
        if op is None or not op.is_live or op.ordinal != ordinal:
            return
        said = text or op.course.stuck or None
        if op.waiting_for == said:
            return
        was = op.state
        op.waiting_for = said
        if not only_say:
            op.state = "waiting" if said else _resumed(op)
        await log.save(tx, op, was, ordinal)

    await engine.write(journal, body)


def _resumed(op: Op) -> str:
    return "running" if op.course.mode in ("forward", "ending") else "undoing"


__all__ = ["DEBT", "FAIL", "WAIT", "on_silence", "set_waiting", "watch_hosts"]
