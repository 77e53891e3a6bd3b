"""The way in for operations about whole hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused, Unreachable
from kilonova.domain.host import HostState
from kilonova.domain.params import HostsParams
from kilonova.domain.whole_hosts import MIGRATE, SKIP
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey, claim_key, known_key, remember_key, store_operation
from kilonova.engine.core import Engine
from kilonova.engine.journal import Op
from kilonova.engine.submit import fresh
from kilonova.hosts.states import find_host
from kilonova.operations.steps.former_host import require_proof
from kilonova.operations.whole_hosts.drain_host import DrainHost, note_drained
from kilonova.operations.whole_hosts.evacuate_host import EvacuateHost, note_proofs
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.hosts import judge_all, judge_host
from kilonova.world import Store, Tx

Prepare = Callable[[Tx, Op], Awaitable[None]]


class Bulk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a request about whole hosts."""

    on_misfit: str = SKIP  # one of domain.whole_hosts.ON_MISFIT
    deadline: float | None = None  # seconds after which no more servers are begun
    accept_unfenced: bool = True  # of a host that only silence proves dead; our own API asks for it
    by: str = MIGRATE  # one of domain.whole_hosts.DRAIN_BY


Check = Callable[[Engine, Tx, Sequence[str], HostsParams], Awaitable[None]]


async def require_dead_all(engine: Engine, tx: Tx, hosts: Sequence[str], params: HostsParams) -> None:
    for host in hosts:
        require_proof(await require_dead(engine, tx, host), params.accept_unfenced)


async def require_living_all(engine: Engine, tx: Tx, hosts: Sequence[str], params: HostsParams) -> None:
    """Refuse dead hosts: their servers can neither be moved away nor home."""
    states = await judge_all(tx, engine.settings.default.service_down_time)
    for host in hosts:
        if host not in states:
            raise Refused("no_such_host", f"Compute host {host} could not be found.")
        if not states[host].is_up:
            raise Refused("host_down", f"{states[host].sentence}. Evacuate it if it is dead")


async def require_openable_all(engine: Engine, tx: Tx, hosts: Sequence[str], params: HostsParams) -> None:
    """Refuse dead or disabled hosts. The return ends a drain, but only an administrator enables a disabled host."""
    await require_living_all(engine, tx, hosts, params)
    for host in hosts:
        if await rows.fetch(tx, cell.hosts, name=host, disabled=1) is not None:
            raise Refused("host_disabled", f"host {host}: it is disabled; enable it first")


CHECKS: dict[str, Check] = {
    "evacuate_host": require_dead_all,
    "drain_host": require_living_all,
    "return_host": require_openable_all,
}
# A running operation is not disturbed; but a host may die while it is drained or returns.
EXCLUDED_BY = {"drain_host": ("return_host", "evacuate_host"), "return_host": ("drain_host", "evacuate_host")}


async def ask_for_hosts(
    engine: Engine,
    kind: str,
    hosts: Sequence[str],
    cause: Cause,
    key: IdempotencyKey | None = None,
    bulk: Bulk = Bulk(),  # noqa: B008 - it is frozen
) -> dict[str, Accepted]:
    """Request the operation for every server of these hosts, one operation per cell.

    All hosts are checked before the first request is accepted. If the same operation is already running, it is the
    result, and the hosts are not checked.
    """
    cells = await by_cell(engine, hosts)
    for journal, names in cells:

        async def body(tx: Tx, names: list[str] = names) -> None:
            if not await _is_known(tx, kind, names, cause, key):
                await CHECKS[kind](engine, tx, names, _params(names, bulk))

        await journal.read(body)
    return {journal.name: await _ask(engine, journal, kind, names, cause, key, bulk) for journal, names in cells}


async def _ask(
    engine: Engine,
    journal: Store,
    kind: str,
    names: Sequence[str],
    cause: Cause,
    key: IdempotencyKey | None,
    bulk: Bulk,
) -> Accepted:
    params = _params(names, bulk)
    ask = Ask(kind=kind, server_id="", cause=cause, params=params, key=key)

    async def prepare(tx: Tx, op: Op) -> None:
        await CHECKS[kind](engine, tx, names, params)
        if kind == "drain_host":
            await note_drained(tx, op.facts(DrainHost()), names)
        if kind == "evacuate_host":
            await note_proofs(tx, op.facts(EvacuateHost()), names, engine.settings.default.service_down_time)

    return await accept_for_hosts(engine, journal, ask, names, prepare)


def _params(names: Sequence[str], bulk: Bulk) -> HostsParams:
    return HostsParams(hosts=[*names], **msgspec.structs.asdict(bulk))


async def evacuate_host(
    engine: Engine,
    journal: Store,
    hosts: str | Sequence[str],
    cause: Cause,
    key: IdempotencyKey | None = None,
    bulk: Bulk = Bulk(),  # noqa: B008 - it is frozen
) -> Accepted:
    """Request the evacuation of every server of dead hosts of one cell, in one operation."""
    names = [hosts] if isinstance(hosts, str) else sorted(set(hosts))
    return await _ask(engine, journal, "evacuate_host", names, cause, key, bulk)


async def is_running_already(
    engine: Engine, kind: str, hosts: Sequence[str], cause: Cause, key: IdempotencyKey | None
) -> bool:
    """Return whether a running operation, or the one of this key, is the answer: then nothing is judged again."""
    for journal, names in await by_cell(engine, hosts):

        async def body(tx: Tx, names: list[str] = names) -> bool:
            return await _is_known(tx, kind, names, cause, key)

        if await journal.read(body):
            return True
    return False


async def _is_known(tx: Tx, kind: str, names: Sequence[str], cause: Cause, key: IdempotencyKey | None) -> bool:
    known = await known_key(tx, Ask(kind=kind, server_id="", cause=cause, key=key)) if key is not None else None
    return known is not None or await _running_for(tx, kind, names) is not None


async def known_for_hosts(engine: Engine, cause: Cause, key: IdempotencyKey | None) -> dict[str, Accepted]:
    """Return the operations of an earlier request with this key, by cell; its hosts may be removed (law 10)."""
    ask = Ask(kind="", server_id="", cause=cause, key=key)
    accepted: dict[str, Accepted] = {}

    async def body(tx: Tx) -> Accepted | None:
        return await known_key(tx, ask)

    for journal in engine.world.db.journals() if key is not None else ():
        try:
            known = await journal.read(body)
        except Unreachable:
            continue
        accepted |= {} if known is None else {journal.name: known}
    return accepted


async def by_cell(engine: Engine, hosts: Sequence[str]) -> list[tuple[Store, list[str]]]:
    """The hosts by their cells, in the order of names."""
    cells: dict[str, tuple[Store, list[str]]] = {}
    for host in sorted(set(hosts)):
        journal, _ = await find_host(engine, host)
        cells.setdefault(journal.name, (journal, []))[1].append(host)
    return [cells[name] for name in sorted(cells)]


async def accept_for_hosts(
    engine: Engine, journal: Store, ask: Ask, names: Sequence[str], prepare: Prepare
) -> Accepted:
    """Accept an operation about whole hosts. Asked again while it runs: the same operation. `prepare` checks and adds
    to the operation, in the same transaction, with the hosts' records locked."""
    operation_id = engine.world.ids.uuid()

    async def body(tx: Tx) -> Accepted:
        if await rows.fetch(tx, operations, id=operation_id) is not None:
            return Accepted(operation_id, joined=True)
        now = engine.world.clock.now()
        known = await claim_key(tx, ask, now)
        if known is not None:
            return known
        for host in names:  # in the order of names: of two requests at once the second finds the first's
            await rows.fetch(tx, cell.hosts, lock=True, name=host)
        running = await _running_for(tx, ask.kind, names)
        if running is not None:
            await remember_key(tx, ask, running, now)
            return Accepted(running, joined=True)
        op = fresh(engine, ask, operation_id, turn=0)
        await prepare(tx, op)
        await store_operation(engine, tx, journal, engine.operation(ask.kind), op, ask, now)
        return Accepted(operation_id)

    accepted = await engine.write(journal, body)
    await engine.wake(journal.name, accepted.operation_id)
    return accepted


async def require_dead(engine: Engine, tx: Tx, host: str) -> HostState:
    """Return the state of a host that is down. Raise `Refused` if it is not."""
    state = await judge_host(tx, host, engine.settings.default.service_down_time)
    if state is None:
        raise Refused("no_such_host", f"Compute host {host} could not be found.")
    if state.status != "down":
        code = "host_unknown" if state.status == "unknown" else "host_still_up"
        raise Refused(code, f"host {host} is not down: {state.sentence}")
    return state


async def _running_for(tx: Tx, kind: str, hosts: Sequence[str]) -> str | None:
    """Return the live operation of this kind about exactly these hosts. There are never many of them."""
    for other in (kind, *EXCLUDED_BY.get(kind, ())):
        for row in await rows.fetch_all(tx, operations, kind=other, live=1):
            taken = set(msgspec.json.decode(row["params"], type=HostsParams).names) & set(hosts)
            if taken == set(hosts) and other == kind:
                return str(row["id"])
            if taken:
                instead = "ask for the other hosts" if other == kind else "wait for it, or cancel it"
                named = f"operation {row['id']} ({other}) is about {', '.join(sorted(taken))}"
                raise Refused("busy", f"{named}; {instead}")
    return None
