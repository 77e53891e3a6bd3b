"""The view of the failure watch: the silent hosts of all cells with the evidence, its decision about each with the
reason, and its past actions. Also arm and disarm, by an administrator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, or_, select

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.failure_watch import KNOWN, Disarmed, Sight, Use, WatchDecision, decide, pause_after
from kilonova.domain.host import HostState, Observation, judge, longest
from kilonova.domain.json import JsonObject
from kilonova.engine.core import Engine
from kilonova.schema.tables.cell import hosts, observers, servers
from kilonova.services.compute.hosts import read_by_cell
from kilonova.store.failures import arm, disarm, disarmed, fenced_lately, is_ahead, newest_failures, open_failures
from kilonova.store.hosts import facts_of
from kilonova.store.restored_at import restored_at
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Tx

_RULES = ("automatic", "storm_percent", "storm_hosts", "storm_window", "fence_timeout")  # the command may hold a secret
LONGEST_DISARM = 30 * 24 * 3600.0
_NOT_HEARD = Sql(
    select(*hosts.c["name", "session", "last_seen", "forced_down", "fenced", "disabled", "draining", "returning"])
    .where(or_(hosts.c.last_seen < bindparam("before"), hosts.c.fenced.is_not(None), hosts.c.forced_down == 1))
    .order_by(hosts.c.name)
)
_COUNT = Sql(select(func.count().label("number")).select_from(hosts))
_SERVERS = Sql(
    select(servers.c.host, func.count().label("number"))
    .where(servers.c.deleted == 0, in_list(servers.c.host, "names"))
    .group_by(servers.c.host)
)
_OBSERVERS = Sql(select(observers.c.id, observers.c.since, observers.c.until))


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is not heard, or that was declared dead."""

    cell: str
    session: str | None
    state: HostState
    use: Use
    decision: WatchDecision | None = None  # None: an operator declared it dead, so there is nothing to find out

    @property
    def name(self) -> str:
        return self.state.name


class CellSight(msgspec.Struct, frozen=True):
    hosts: int
    not_heard: list[Silent]
    listened: float


class HostObservation(msgspec.Struct, frozen=True, kw_only=True):
    sight: Sight
    silent: dict[str, Silent]  # by host: not heard and not declared
    declared: dict[str, Silent]
    failures: dict[str, Row]  # by host: those that are open
    now: float  # by the control database's clock
    is_ahead: bool  # of that clock are times of records (law 16)


async def look(engine: Engine, worker: str = "") -> HostObservation:
    """Return what this watcher sees; without one, what the watcher sees that has listened for the longest time."""
    down_after, rules = engine.settings.default.service_down_time, engine.settings.ha

    async def records(tx: Tx) -> tuple[dict[str, Row], Disarmed | None, float, bool]:
        opened = {row["host"]: row for row in await open_failures(tx)}
        return opened, await disarmed(tx), await tx.now(), await is_ahead(tx)

    failures, disarming, now, ahead = await engine.world.db.control.read(records)

    async def read(store: Store) -> CellSight:
        return await store.read(lambda tx: _cell_sight(tx, store.name, down_after, worker))

    by_cell = await read_by_cell(engine.world.db, read)
    # After the cells: a host that was fenced while they were read is not silent there, and is counted here.
    lately = await engine.world.db.control.read(lambda tx: fenced_lately(tx, rules.storm_window))
    seen = [one for one in by_cell.values() if one is not None]
    not_heard = {one.name: one for cell in seen for one in cell.not_heard}
    declared = {name: one for name, one in not_heard.items() if one.state.declared}
    silent = {name: one for name, one in not_heard.items() if name not in declared}
    away = {name for name in lately if name in declared}
    maintained = sum(one.use.is_draining for one in silent.values())
    sight = Sight(
        hosts=sum(cell.hosts for cell in seen) - len(declared) - maintained + len(away),
        silent=len(silent) - maintained + len(away),
        came_back=len(lately - away - silent.keys()),
        blind=[name for name, cell_sight in by_cell.items() if cell_sight is None],
        listened=min((cell.listened for cell in seen if cell.hosts), default=0.0),
        disarmed=disarming,
    )
    decided = {
        name: msgspec.structs.replace(one, decision=_decided(engine, one, sight, failures.get(name), now))
        for name, one in silent.items()
    }
    return HostObservation(sight=sight, silent=decided, declared=declared, failures=failures, now=now, is_ahead=ahead)


def _decided(engine: Engine, one: Silent, sight: Sight, failure: Row | None, now: float) -> WatchDecision:
    if failure is not None:
        is_due = now - failure["changed_at"] >= pause_after(failure["attempts"])
        if failure["state"] != "fence_failed" or not is_due:
            return WatchDecision(KNOWN, failure["sentence"] or failure["state"])
    return decide(one.state, one.use, sight, engine.settings.ha, engine.settings.default.service_down_time)


async def _cell_sight(tx: Tx, cell: str, down_after: float, worker: str) -> CellSight:
    now = await tx.now()
    seen = {row["id"]: Observation(row["since"], row["until"]) for row in await tx.all(_OBSERVERS)}
    best = longest(seen.values(), now, down_after)
    own = best if not worker else longest([seen[worker]], now, down_after) if worker in seen else None
    counted = await tx.one(_COUNT)
    silent = await tx.all(_NOT_HEARD, before=now - down_after)
    names = [row["name"] for row in silent]
    number = {row["host"]: row["number"] for row in await tx.all(_SERVERS, names=names)} if names else {}
    not_heard = [
        Silent(
            cell=cell,
            session=row["session"],
            state=judge(facts_of(row), best, now, down_after),
            use=Use(number.get(row["name"], 0), bool(row["draining"])),
        )
        for row in silent
    ]
    # Restored records say when hosts were heard before the backup: they prove no silence.
    since = max(own.since, await restored_at(tx)) if own is not None else now
    listened = 0.0 if own is None else max(0.0, own.until - since)
    return CellSight(counted["number"] if counted is not None else 0, not_heard, listened)


async def disarm_watch(engine: Engine, seconds: float, reason: str, cause: Cause) -> None:
    """Disarm the watch for that many seconds: it starts nothing new, and evacuations under way go on."""
    if not reason.strip():
        raise Refused("bad_request", "reason: it must not be empty; it is shown with the watch")
    if not 0 < seconds <= LONGEST_DISARM:
        raise Refused("bad_request", f"for {seconds:g} s: it must be more than 0 and at most 30 days")

    async def body(tx: Tx) -> None:
        await disarm(tx, seconds, reason, cause.user_id)

    await engine.write(engine.world.db.control, body)


async def arm_watch(engine: Engine) -> None:
    await engine.write(engine.world.db.control, arm)


async def watch_status(engine: Engine) -> JsonObject:
    """Return a report for people: armed or not, every silent host with evidence and decision, the newest records."""
    seen, rules = await look(engine), engine.settings.ha
    newest = await engine.world.db.control.read(newest_failures)
    sight = seen.sight
    return {
        "automatic": rules.automatic,
        "armed": sight.disarmed is None,
        "disarmed": None if sight.disarmed is None else msgspec.to_builtins(sight.disarmed),
        "rules": {name: getattr(rules, name) for name in _RULES},
        "hosts": sight.hosts,
        "silent": [_shown(one) for one in seen.silent.values()],
        "cells_away": [*sight.blind],
        "records": [failure_view(row) for row in newest],
    }


def _shown(one: Silent) -> JsonObject:
    assert one.decision is not None
    decision = {"decision": one.decision.outcome, "why": one.decision.sentence}
    evidence = {
        "servers": one.use.servers,
        "state": one.state.status,
        "evidence": one.state.sentence,
        "silent_seconds": round(one.state.silent),
    }
    return {"host": one.name, "cell": one.cell, **evidence, **decision}


def failure_view(row: Mapping[str, Any] | Row) -> JsonObject:
    names = ("id", "host", "cell", "state", "sentence", "evidence", "proof", "operation_id", "attempts")
    return {**{name: row[name] for name in names}, "created_at": row["created_at"], "changed_at": row["changed_at"]}
