"""Hosts as recorded, and their states as judged by the database's clock."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from kilonova.domain.host import HostFacts, HostState, Observation, judge
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.cell import hosts, observers
from kilonova.world import Row, Tx

_ALL_HOSTS = Sql(select(hosts).order_by(hosts.c.name))
_ALL_OBSERVERS = Sql(select(observers.c.since, observers.c.until))
_RAISE_EPOCH = Sql(update(hosts).where(hosts.c.name == bindparam("host")).values(epoch=hosts.c.epoch + 1))


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


async def observation(tx: Tx) -> Observation | None:
    """The best of all observers: the one that has been receiving for the longest time up to now."""
    seen = [Observation(row["since"], row["until"]) for row in await tx.all(_ALL_OBSERVERS)]
    return max(seen, key=lambda o: (o.until - o.since, o.until), default=None)


async def judge_host(tx: Tx, name: str, down_after: float) -> HostState | None:
    row = await rows.fetch(tx, hosts, name=name)
    if row is None:
        return None
    return judge(facts_of(row), await observation(tx), await tx.now(), down_after)


async def judge_all(tx: Tx, down_after: float) -> dict[str, HostState]:
    """By name, in name order."""
    seen, now = await observation(tx), await tx.now()
    return {row["name"]: judge(facts_of(row), seen, now, down_after) for row in await tx.all(_ALL_HOSTS)}


async def all_hosts(tx: Tx) -> list[Row]:
    return list(await tx.all(_ALL_HOSTS))


async def raise_epoch(tx: Tx, host: str) -> None:
    """Something was decided about this host while it could not be asked: it must register again before it acts."""
    await tx.run(_RAISE_EPOCH, host=host)
