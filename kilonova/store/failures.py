"""Records of the failure watch. A record belongs to one watcher at a time, which does the next action; if that watcher
dies, another one takes the record after a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, or_, select, update

from kilonova.domain.failure_watch import OPEN_STATES, Disarmed
from kilonova.schema.tables.failures import failure_watch, host_failures
from kilonova.schema.tables.stores import this_store
from kilonova.settings import HaOptions
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Tx

SHOWN = 20  # records that a status shows besides the open ones
_ID = 1
_TAKE = Sql(
    update(host_failures)
    .where(
        host_failures.c.id == bindparam("failure"),
        host_failures.c.state == bindparam("in_state"),
        or_(
            host_failures.c.worker.is_(None),
            host_failures.c.taken_until < database_time(),
            host_failures.c.taken_until > database_time() + bindparam("longest"),  # the clock was set back (law 16)
        ),
    )
    .values(worker=bindparam("by"), taken_until=database_time() + bindparam("seconds"))
)
_OPEN = Sql(select(host_failures).where(host_failures.c.open == 1).order_by(host_failures.c.host))
_LATELY = Sql(
    select(host_failures.c.host)
    .where(
        or_(
            and_(host_failures.c.open == 1, host_failures.c.state == "fencing"),
            host_failures.c.fenced_at > database_time() - bindparam("seconds", type_=database_time.type),
        )
    )
    .distinct()
)
_AHEAD = {  # the clock was set back (law 16)
    "changed_at": host_failures.c.changed_at > database_time(),
    "fenced_at": host_failures.c.fenced_at > database_time(),
}
_IS_AHEAD = Sql(select(host_failures.c.id).where(or_(*_AHEAD.values())).limit(1))
_SET_BACK = [Sql(update(host_failures).where(ahead).values({name: database_time()})) for name, ahead in _AHEAD.items()]
_NEWEST = Sql(select(host_failures).order_by(host_failures.c.created_at.desc(), host_failures.c.id).limit(SHOWN))


async def disarmed(tx: Tx) -> Disarmed | None:
    """Return how the watch was disarmed; None if it may act."""
    row = await rows.fetch(tx, failure_watch, id=_ID)
    if row is None or (row["until"] is not None and row["until"] <= await tx.now()):
        return None
    return Disarmed(until=row["until"], reason=row["reason"], user_id=row["user_id"], said_at=row["said_at"])


async def disarm(tx: Tx, seconds: float | None, reason: str, user_id: str) -> None:
    """Disarm the watch until it is armed again, or for `seconds`; a time does not shorten the former."""
    await _lock(tx)
    row, now = await rows.fetch(tx, failure_watch, id=_ID), await tx.now()
    if row is not None and row["until"] is None and seconds is not None:
        return
    values = {"until": None if seconds is None else now + seconds, "reason": reason, "user_id": user_id}
    await rows.put_or_change(tx, failure_watch, (*values, "said_at"), id=_ID, **values, said_at=now)


async def arm(tx: Tx) -> None:
    await rows.remove(tx, failure_watch, id=_ID)


async def open_failures(tx: Tx) -> Sequence[Row]:
    return await tx.all(_OPEN)


async def newest_failures(tx: Tx) -> Sequence[Row]:
    return await tx.all(_NEWEST)


async def fenced_lately(tx: Tx, window: float) -> set[str]:
    """Return the hosts for which the fence command ran within the last `window` seconds, or runs; some may have come
    back."""
    return {row["host"] for row in await tx.all(_LATELY, seconds=window)}


async def is_ahead(tx: Tx) -> bool:
    """Return True if a record has a time in the future: until the clock has caught up nothing would be due, and its
    fence would count as recent."""
    return await tx.one(_IS_AHEAD) is not None


async def set_back(tx: Tx) -> None:
    """Set recorded times that are in the future to now."""
    for statement in _SET_BACK:
        await tx.run(statement)


async def is_armed(tx: Tx) -> bool:
    """Return whether the watch is armed, and lock that until this transaction ends."""
    await _lock(tx)
    return await disarmed(tx) is None


async def may_fence(tx: Tx, host: str, rules: HaOptions) -> bool:
    """Return whether one more fence command may begin: other watchers may have begun some since the decision."""
    return await is_armed(tx) and len(await fenced_lately(tx, rules.storm_window) - {host}) < rules.storm_hosts


async def _lock(tx: Tx) -> None:
    """Keep others from beginning an action or disarming the watch until this transaction ends."""
    await rows.fetch(tx, this_store, lock=True, id=1)


async def begin_failure(tx: Tx, values: Mapping[str, object], worker: str, seconds: float, rules: HaOptions) -> bool:
    """Insert a record of a host that has none yet, taken by this worker. Return False if another watcher was first, or
    no fence command may begin any more."""
    if not await may_fence(tx, str(values["host"]), rules):
        return False
    now = await tx.now()
    taken = {"worker": worker, "taken_until": now + seconds}
    unset = {"sentence": "", "proof": "", "fenced_at": None, "operation_id": None, "attempts": 0}
    times = {"created_at": now, "changed_at": now}
    values = {**values, "state": "fencing", **unset, **taken, **times, "open": 1}
    await rows.put(tx, host_failures, unless_there=True, **values)
    return await rows.fetch(tx, host_failures, id=values["id"], worker=worker) is not None


async def take_failure(tx: Tx, failure: Row, worker: str, seconds: float) -> bool:
    """Take the record. Return False if another watcher has it, or has done its work."""
    given = {"failure": failure["id"], "in_state": failure["state"], "by": worker, "seconds": seconds}
    return bool(await tx.run(_TAKE, **given, longest=seconds))


async def note_failure(tx: Tx, failure: str, worker: str, state: str, *, has_run: bool = False, **columns: Any) -> bool:
    """Record the result and release the record. False: it was taken over meanwhile. `has_run`: the fence command has
    run, or may have; even one that failed may have switched the host off."""
    values = {"state": state, **columns, "worker": None, "taken_until": None}
    if state not in OPEN_STATES:
        values["open"] = None
    stamped = ("changed_at", "fenced_at") if has_run else ("changed_at",)
    return bool(await rows.change(tx, host_failures, values, stamped, id=failure, worker=worker))
