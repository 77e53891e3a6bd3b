"""Hosts as recorded, and their states as judged by the database's clock."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from kilonova.domain.host import HostFacts, HostState, Observation, judge, longest
from kilonova.schema.tables.cell import hosts, observers
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

UNKNOWN_IDENTITY = ""  # its record was created again by an operator: the key of the next registration is the host's

_ALL_HOSTS = Sql(select(hosts).order_by(hosts.c.name))
_ALL_OBSERVERS = Sql(select(observers.c.since, observers.c.until))
_RAISE_EPOCH = Sql(update(hosts).where(hosts.c.name == bindparam("host")).values(epoch=hosts.c.epoch + 1))
_CALL_BACK = Sql(update(hosts).where(hosts.c.name == bindparam("host")).values(epoch=hosts.c.epoch + 1, returning=1))
ONE_MORE_FAILED = Sql(
    update(hosts).where(hosts.c.name == bindparam("host")).values(failed_builds=hosts.c.failed_builds + 1)
)
NONE_FAILED = Sql(
    update(hosts).where(hosts.c.name == bindparam("host"), hosts.c.failed_builds > 0).values(failed_builds=0)
)


def facts_of(row: Row) -> HostFacts:
    return HostFacts(
        name=row["name"],
        last_seen=row["last_seen"],
        forced_down=bool(row["forced_down"]),
        fenced=row["fenced"] is not None,
        disabled=bool(row["disabled"]),
        draining=bool(row["draining"]),
        returning=bool(row["returning"]),
    )


async def observation(tx: Tx, now: float, down_after: float) -> Observation | None:
    """Return the longest observation of a living observer; that of a dead one proves nothing."""
    seen = [Observation(row["since"], row["until"]) for row in await tx.all(_ALL_OBSERVERS)]
    return longest(seen, now, down_after)


async def judge_host(tx: Tx, name: str, down_after: float) -> HostState | None:
    row = await rows.fetch(tx, hosts, name=name)
    if row is None:
        return None
    now = await tx.now()
    silent = now - row["last_seen"] > down_after  # only then does it matter which observer was listening
    return judge(facts_of(row), await observation(tx, now, down_after) if silent else None, now, down_after)


async def judge_all(tx: Tx, down_after: float) -> dict[str, HostState]:
    """Return the states of all hosts by name, in name order."""
    now = await tx.now()
    seen = await observation(tx, now, down_after)
    return {row["name"]: judge(facts_of(row), seen, now, down_after) for row in await tx.all(_ALL_HOSTS)}


async def all_hosts(tx: Tx) -> list[Row]:
    return list(await tx.all(_ALL_HOSTS))


async def raise_epoch(tx: Tx, host: str) -> None:
    """Raise the host's epoch after a decision made while it did not answer: it must register again before it acts."""
    await tx.run(_RAISE_EPOCH, host=host)


async def call_back(tx: Tx, host: str) -> None:
    """Raise the epoch of a host that owes something: until it has registered and paid it is not a destination, although
    it may be heard before that (law 7)."""
    await tx.run(_CALL_BACK, host=host)
