"""Expire ledger lines, Idempotency-Keys and failure watch records, in small transactions and by the databases' own
clocks (law 16). The purge removes all of them, the audit only the first two."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, delete, select, tuple_

from kilonova.schema.tables.failures import failure_watch, host_failures
from kilonova.schema.tables.journal import idempotency_keys
from kilonova.schema.tables.placement import consumers, ledger
from kilonova.store.statements import Sql, database_time, in_list
from kilonova.world import Store, Tx

DAY = 86400.0
LEAST_DAYS = 1.0  # that everything stays: a conductor that wakes up late still meets its fence (law 1)
KEY_DAYS = 7.0  # that an Idempotency-Key is remembered: longer than any client repeats a request
BATCH = 500

AGO: Any = database_time() - bindparam("seconds", type_=database_time.type)
_KEY = [idempotency_keys.c[name] for name in ("key", "user_id", "project_id", "route")]
_FORGET_KEYS = Sql(
    delete(idempotency_keys).where(
        tuple_(*_KEY).in_(select(*_KEY).where(idempotency_keys.c.created_at < AGO).limit(BATCH))
    )
)
_OLD_LINES = Sql(
    select(ledger.c.id)
    .where(ledger.c.id > bindparam("after"), ledger.c.at < AGO, ledger.c.consumer.not_in(select(consumers.c.uuid)))
    .order_by(ledger.c.id)
    .limit(BATCH)
)
# A consumer may hold something again by now; all of its history is worth reading then.
_FORGET_LINES = Sql(
    delete(ledger).where(in_list(ledger.c.id, "ids"), ledger.c.consumer.not_in(select(consumers.c.uuid)))
)
# Open: the host has not come back. A lie is a finding while it keeps the watch disarmed.
_IS_FINDING = (host_failures.c.state == "lied") & select(failure_watch.c.id).where(
    failure_watch.c.until.is_(None)
).exists()
_OLD_FAILURES = [
    host_failures.c.created_at < AGO,  # as it changed later: an index has this one
    host_failures.c.changed_at < AGO,
    host_failures.c.open.is_(None),
    ~_IS_FINDING,
]
_FORGET_FAILURES = Sql(
    delete(host_failures).where(host_failures.c.id.in_(select(host_failures.c.id).where(*_OLD_FAILURES).limit(BATCH)))
)


async def forget_keys(journal: Store) -> int:
    """Return how many were removed."""
    total = 0

    async def body(tx: Tx) -> int:
        return await tx.run(_FORGET_KEYS, seconds=KEY_DAYS * DAY)

    while count := await journal.write(body):
        total += count
    return total


async def forget_failures(control: Store, days: float) -> int:
    """Remove the records of the failure watch that ended this many days ago, at least one; return their number."""
    total, seconds = 0, max(days, LEAST_DAYS) * DAY

    async def body(tx: Tx) -> int:
        return await tx.run(_FORGET_FAILURES, seconds=seconds)

    while count := await control.write(body):
        total += count
    return total


async def forget_ledger(placement: Store, days: float) -> int:
    """Remove the lines of consumers without allocations, at least a day old; return their number."""
    total, after, seconds = 0, 0, max(days, LEAST_DAYS) * DAY

    while True:

        async def look(tx: Tx, after: int = after) -> list[int]:
            return [row["id"] for row in await tx.all(_OLD_LINES, seconds=seconds, after=after)]

        ids = await placement.read(look)
        if not ids:
            return total

        async def remove(tx: Tx, ids: list[int] = ids) -> int:
            return await tx.run(_FORGET_LINES, ids=ids)

        total += await placement.write(remove)
        after = ids[-1]
