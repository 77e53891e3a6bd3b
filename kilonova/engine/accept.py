"""Accept a request in one transaction: the checks, the server's turn and task_state, the operation, its first step.

If `check` refuses, nothing is stored. The loser of a race gets `Refused` with the state that won (never a 500).
"""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Conflict, Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.operation import FORWARD
from kilonova.domain.params import Params
from kilonova.domain.server import Server
from kilonova.engine import journal as log
from kilonova.engine import records
from kilonova.engine.children import require_forward
from kilonova.engine.conclude import Next
from kilonova.engine.context import Newborn, Subject
from kilonova.engine.core import Engine, has_servers
from kilonova.engine.course import INHERIT, Begun, Course, End, Go, begin, inherit
from kilonova.engine.facts import OperationFacts
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyOperation, F, Operation, P
from kilonova.engine.notifications import Teller
from kilonova.engine.restored_copies import refuse_unless_settled
from kilonova.engine.secrets import forget, keep_sealed
from kilonova.engine.stuck_messages import standing
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import idempotency_keys, operations
from kilonova.store import rows
from kilonova.store.hosts import judge_host
from kilonova.store.statements import Sql
from kilonova.world import Body, Store, Tx

_OPEN_MIGRATION = Sql(
    select(cell.migrations)
    .where(cell.migrations.c.server_id == bindparam("server_id"), cell.migrations.c.open == 1)
    .order_by(cell.migrations.c.number.desc())
    .limit(1)
)


LOOKS = 20


class Overtaken(Conflict):
    """Another request seized the server between reading and writing it: look again."""


class IdempotencyKey(msgspec.Struct, frozen=True):
    """An explicit Idempotency-Key: the only way to make two requests one (law 10)."""

    key: str
    route: str
    body_hash: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an operation on a server in a cell."""

    kind: str
    server_id: str
    cause: Cause
    params: Params | JsonObject = {}  # a Struct of the operation's, or the document of one
    secrets: dict[str, str] = {}
    key: IdempotencyKey | None = None
    operation_id: str | None = None  # a child's id is stable, so that asking twice is harmless
    parent_id: str | None = None


class Accepted(msgspec.Struct, frozen=True):
    operation_id: str
    joined: bool = False  # it was already under way


async def accept(engine: Engine, journal: Store, ask: Ask) -> Accepted:
    operation_id = ask.operation_id or engine.world.ids.uuid()
    first = ""
    is_new = ask.operation_id is None  # an id that was just made cannot be stored yet

    async def body(tx: Tx) -> Accepted:
        nonlocal first, is_new
        looking, is_new = not is_new, False
        accepted, host = await _accept(engine, tx, journal, ask, operation_id, looking=looking)
        first = host or first  # found again after an unknown COMMIT: known from before
        return accepted

    accepted = await _until_still(engine, journal, body)
    if not accepted.joined:
        await engine.wake(journal.name, accepted.operation_id, first)
    return accepted


async def _until_still(engine: Engine, journal: Store, body: Body[Accepted]) -> Accepted:
    """Look again when another operation got the server in between; only a busy server can need that, and only a few
    times."""
    for _ in range(LOOKS):
        try:
            return await engine.write(journal, body)
        except Overtaken:
            await engine.world.clock.sleep(0.01)
    raise Refused("busy", "the server was modified concurrently too often; retry the request")


async def _accept(
    engine: Engine, tx: Tx, journal: Store, ask: Ask, operation_id: str, *, looking: bool
) -> tuple[Accepted, str]:
    """Return what was accepted and the host of the first step ("" for CONTROL). `looking`: it may exist already."""
    now = engine.world.clock.now()
    operation = engine.operation(ask.kind)
    earlier = await _earlier(tx, ask, operation_id, now) if looking else await claim_key(tx, ask, now)
    if earlier is not None:
        return earlier, ""
    if ask.parent_id is not None:
        await require_forward(tx, ask.parent_id)
    subject = await gather(engine, tx, ask, operation)
    if subject.live is not None and operation.joins(subject):
        await remember_key(tx, ask, subject.live["id"], now)
        return Accepted(subject.live["id"], joined=True), ""
    facts: OperationFacts = await admitted(tx, operation, subject)
    op = new_operation(operation, ask, subject, facts, operation_id)
    if subject.live is not None:
        old = log.op_from(subject.live)
        if _has_no_way_back(engine.operation(old.kind), old):
            old.course.stack = []
        op.course = await supersede(tx, old, operation, operation_id, now)
        await records.interrupted(tx, old, f"The operation was superseded by {operation.name}.", now)
        op.committed = not operation.inherits  # no operation would be left to undo the interrupted one
    await _seize(tx, operation, op, subject, now)
    if subject.live is not None and engine.settings.notifications.is_on:
        await Teller(engine, tx, journal, old).superseded()
    await operation.accepted(tx, op, facts, subject, now)
    first = await store_operation(engine, tx, journal, operation, op, ask, now)
    return Accepted(operation_id), first.target.host


async def store_operation(
    engine: Engine,
    tx: Tx,
    journal: Store,
    operation: AnyOperation,
    op: Op,
    ask: Ask,
    now: float,
    *,
    has_action: bool = False,
    worker: str | None = None,
) -> Go:
    """Store the operation, its first step and the rows that belong to them. A `worker` takes the step at once if it is
    a CONTROL step."""
    go = begin(operation, op.course, op.facts(operation))
    if isinstance(go, End):
        raise RuntimeError(f"operation {operation.name} has no step")
    kind = go.kind or op.kind
    step = engine.operation(kind).step(go.step)
    op.ordinal += 1
    taker = None if go.target.host else worker
    if taker:
        op.state, op.waiting_for = standing(op, go.way)
        op.committed = op.committed or step.no_return
    await log.insert(tx, op)
    await log.add_step(tx, op, step, go, taker)
    if operation.action and has_servers(journal) and not has_action:
        await records.action_started(tx, op, operation.action, now)
    if go.way == "do" and has_servers(journal):
        await records.events_started(tx, op, step.events, go.target.host, now)
    await engine.seal.put(tx, op.id, ask.secrets)
    await remember_key(tx, ask, op.id, now)
    if engine.settings.notifications.is_on:
        await Teller(engine, tx, journal, op).begun()
    return go


async def _earlier(tx: Tx, ask: Ask, operation_id: str, now: float) -> Accepted | None:
    """Return the operation of the same request: its commit was unknown (law 12), its id is stable, or it has the same
    key."""
    if await rows.fetch(tx, operations, id=operation_id) is not None:
        return Accepted(operation_id)  # our own: perhaps no worker was woken for it
    return await claim_key(tx, ask, now)


async def claim_key(tx: Tx, ask: Ask, now: float) -> Accepted | None:
    """Insert the request's key, or return the operation that already has it.

    If another request with the same key is still being accepted, the insert waits for it: otherwise this request would
    find the server busy and be refused.
    """
    if ask.key is None or await rows.put(tx, idempotency_keys, unless_there=True, **_key_row(ask.key, ask, "", now)):
        return None
    return await known_key(tx, ask)


async def remember_key(tx: Tx, ask: Ask, operation_id: str, now: float) -> None:
    """Record the key of a request that joined an operation, too: if it is sent again, the answer is that operation."""
    if ask.key is not None:
        values = _key_row(ask.key, ask, operation_id, now)
        await rows.put_or_change(tx, idempotency_keys, ("operation_id",), **values)


def _key_row(key: IdempotencyKey, ask: Ask, operation_id: str, now: float) -> dict[str, str | float | None]:
    return {
        "key": key.key,
        "user_id": ask.cause.user_id,
        "project_id": ask.cause.project_id,
        "route": key.route,
        "body_hash": key.body_hash,
        "operation_id": operation_id,
        "answer": None,
        "created_at": now,
    }


async def known_key(tx: Tx, ask: Ask) -> Accepted | None:
    if ask.key is None:
        return None
    user, project = ask.cause.user_id, ask.cause.project_id
    row = await rows.fetch(tx, idempotency_keys, key=ask.key.key, user_id=user, project_id=project, route=ask.key.route)
    if row is None:
        return None
    if row["body_hash"] != ask.key.body_hash:
        raise Refused(
            "idempotency_key_reused", f"Idempotency-Key {ask.key.key} was used with another body; use a new one"
        )
    return Accepted(row["operation_id"], joined=True)


def params_of(operation: Operation[F, P], params: Params | JsonObject) -> P:
    """Return the parameters as the operation's type. Raise `TypeError` if one is unknown: it would be lost."""
    if isinstance(params, operation.params_type):
        return params
    document = msgspec.to_builtins(params)
    if unknown := document.keys() - set(operation.params_type.__struct_fields__):
        raise TypeError(f"operation {operation.name} has no parameter {', '.join(sorted(unknown))}")
    return msgspec.convert(document, operation.params_type)


async def gather(engine: Engine, tx: Tx, ask: Ask, operation: Operation[F, P], *, lock: bool = True) -> Subject[P]:
    """Lock the live operation only; the server is seized by a compare-and-set on its turn. Finishing a step takes the
    two in the same order, so they cannot deadlock."""
    row = await rows.fetch(tx, cell.servers, id=ask.server_id)
    if row is None or row["deleted"]:
        raise Refused("not_found", f"Instance {ask.server_id} could not be found.")
    if row["hidden"] and ask.kind != "delete":
        raise Refused("busy", f"Instance {ask.server_id} is being built; wait until it has a host")
    seen = row["operation_id"]
    live = await rows.fetch(tx, operations, lock=lock, id=seen, live=1) if seen is not None else None
    server = Server.from_row(row)
    down_after = engine.settings.default.service_down_time
    params = params_of(operation, ask.params)
    named = params.host
    move = await tx.one(_OPEN_MIGRATION, server_id=ask.server_id)
    return Subject(
        server=server,
        host=await judge_host(tx, server.host, down_after) if server.host else None,
        target=await judge_host(tx, named, down_after) if named else None,
        migration=move,
        live=live,
        params=params,
        cause=ask.cause,
        source=await judge_host(tx, move["source_host"], down_after) if move is not None else None,
    )


async def admitted(tx: Tx, operation: Operation[F, P], subject: Subject[P]) -> F:
    """Return the facts that the operation begins with. Raise `Refused` if it may not begin now."""
    server = subject.server
    if server is None:
        raise Refused("not_found", "the server could not be found")
    _check_state(operation, subject, server)
    if server.turn_floor:
        await refuse_unless_settled(tx, operation, server)
    return operation.check(subject)


def _check_state(operation: AnyOperation, subject: Subject[Params], server: Server) -> None:
    """Make the checks that every operation has."""
    verb = operation.action or operation.name
    if subject.live is not None and not operation.supersedes:
        state = f"task_state {server.task_state}" if server.task_state else f"operation {subject.live['kind']}"
        raise Refused(
            "busy",
            f"Cannot '{verb}' instance {server.id} while it is in {state}",
            operation=subject.live["id"],
            kind=subject.live["kind"],
        )
    if subject.live is not None and subject.live["kind"] == "delete" and operation.name != "delete":
        raise Refused("busy", f"Cannot '{verb}' instance {server.id} while it is in task_state deleting")
    if operation.from_states and server.vm_state not in operation.from_states:
        raise Refused(
            "invalid_state", f"Cannot '{verb}' instance {server.id} while it is in vm_state {server.vm_state}"
        )


def new_operation(operation: Operation[F, P], ask: Ask, subject: Subject[P], facts: F, operation_id: str) -> Op:
    return Op(
        id=operation_id,
        kind=operation.name,
        version=operation.version,
        server_id=ask.server_id,
        turn=(subject.server.turn if subject.server else 0) + 1,
        state="accepted",
        ordinal=0,
        committed=False,
        course=Course(),
        known_params=subject.params,
        known_facts=facts,
        cause=ask.cause,
        request_id=ask.cause.request_id,
        parent_id=ask.parent_id,
    )


async def supersede(tx: Tx, old: Op, operation: AnyOperation, heir: str, now: float) -> Course:
    """End the live operation in favour of its heir, who inherits what has to be undone (law 7)."""
    was, ordinal = old.state, old.ordinal
    old.state, old.superseded_by, old.waiting_for = "superseded", heir, None
    await log.save(tx, old, was, ordinal)
    await log.end_step(tx, old.id, ordinal, "dropped")
    await forget(tx, old.id)
    stack: list[Begun] = inherit(old.course.stack, old.id, old.kind) if operation.inherits else []
    return Course(mode=INHERIT, stack=stack) if stack else Course()


def _has_no_way_back(operation: AnyOperation, op: Op) -> bool:
    """Return whether a step of no return was taken; it may be done although its report is missing (law 8)."""
    if not op.committed or op.course.mode != FORWARD:
        return False
    step = operation.step(op.course.at)
    return step.no_return and step.undo is None


async def _seize(tx: Tx, operation: AnyOperation, op: Op, subject: Subject[Params], now: float) -> None:
    """Compare-and-set: the turn moves, and the server belongs to this operation. Both are compared: `hand_over` gives
    the server to `build` in the same turn."""
    server = subject.server
    owner = None if server is None else server.operation_id
    values = {
        "turn": op.turn,
        "operation_id": op.id,
        "task_state": operation.task_state,
        "updated_at": now,
    }
    if not await rows.change(tx, cell.servers, values, id=op.server_id, turn=op.turn - 1, operation_id=owner):
        raise Overtaken(f"server {op.server_id} was modified concurrently")


async def begin_operation(engine: Engine, tx: Tx, journal: Store, born: Newborn) -> Next:
    """Start an operation on behalf of another one, in a transaction of the journal that will own it."""
    operation = engine.operation(born.kind)
    op = Op(
        id=born.id,
        kind=operation.name,
        version=operation.version,
        server_id=born.server_id,
        turn=born.turn,
        state="accepted",
        ordinal=born.ordinal,
        committed=False,
        course=Course(stack=[Begun(name, "", 0) for name in born.begun]),
        known_params=born.params,
        known_facts=born.facts,
        cause=born.cause,
        request_id=born.cause.request_id,
    )
    ask = Ask(kind=born.kind, server_id=born.server_id, cause=born.cause)
    now = engine.world.clock.now()
    worker = engine.worker if born.is_mine and engine.on_mine is not None else None
    go = await store_operation(engine, tx, journal, operation, op, ask, now, has_action=born.has_action, worker=worker)
    await keep_sealed(tx, op.id, born.sealed)
    step = operation.step(go.step)
    if step.task_state and born.server is not None:
        await rows.change(tx, cell.servers, {"task_state": step.task_state}, id=op.server_id, turn=op.turn)
    if worker:
        op.created_at = await tx.now()
    return Next(op, step, go, born.server)
