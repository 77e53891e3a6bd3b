"""Heartbeats: written in batches, and with them how long this observer has been receiving without a gap (law 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from kilonova.domain.errors import KilonovaError
from kilonova.engine.core import Engine
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.cell import hosts, observers
from kilonova.world import Store, Tx

_SEEN = Sql(
    update(hosts)
    .where(
        hosts.c.name == bindparam("host"),
        hosts.c.session == bindparam("in_session"),
        hosts.c.last_seen < bindparam("seen"),  # another conductor may have heard it later
    )
    .values(last_seen=bindparam("seen"))
)
_NOT_AHEAD = Sql(update(hosts).where(hosts.c.last_seen > bindparam("now")).values(last_seen=bindparam("silent")))
FORGOTTEN_AFTER = 3600.0  # seconds; conductors that are gone
_FORGET = Sql(delete(observers).where(observers.c.until < bindparam("before")))
_ALL = Sql(select(hosts.c.name, hosts.c.session, hosts.c.epoch, hosts.c.returning))


@dataclass
class Observer:
    """What one conductor hears of the hosts of one cell."""

    engine: Engine
    journal: Store
    heard: dict[str, str] = field(default_factory=dict)  # host: session, since the last flush
    known: dict[str, tuple[str | None, int]] = field(default_factory=dict)  # host: session and epoch
    since: float | None = None  # by the database's clock
    last_heard: float = float("-inf")  # by this process', as all below
    heard_at: dict[str, tuple[str, float]] = field(default_factory=dict)  # host: session, when
    flushed: tuple[float, float] | None = None  # the last time, by the database's clock and by this process'

    def hear(self, host: str, session: str) -> None:
        self.heard[host] = session
        self.last_heard = self.engine.world.clock.monotonic()
        self.heard_at[host] = (session, self.last_heard)

    async def flush(self, echo_works: bool) -> None:
        """One transaction for all hosts heard since the last one."""
        heard, self.heard = self.heard, {}
        here = self.engine.world.clock.monotonic()
        within = self.engine.limits.service_down_time / 2
        receiving = echo_works and (len(self.known) < 2 or here - self.last_heard <= within)

        async def body(tx: Tx) -> tuple[float, float, dict[str, tuple[str | None, int]]]:
            now = await tx.now()
            jumped = self._has_jumped(now, here)
            seen = [{"host": host, "in_session": session, "seen": now} for host, session in heard.items()]
            if jumped:
                seen = self._seen_lately(now, here)
                await tx.run(_NOT_AHEAD, now=now, silent=now - 2 * within)  # whoever heard it will say so
            if seen:
                await tx.many(_SEEN, seen)
            since = self.since if receiving and not jumped and self.since is not None else now
            await self._listening(tx, since, now)
            known = {
                row["name"]: (None if row["returning"] else row["session"], row["epoch"]) for row in await tx.all(_ALL)
            }
            return now, since, known

        try:
            now, self.since, self.known = await self.journal.write(body)
            self.flushed = (now, here)
            self.heard_at = {host: self.heard_at[host] for host in self.known if host in self.heard_at}
        except KilonovaError:
            self.since = None  # what was not recorded was not heard

    def _has_jumped(self, now: float, here: float) -> bool:
        """The database's clock was set since the last flush, or this machine was asleep: what it says of the past
        proves no silence (law 16)."""
        if self.flushed is None:
            return False
        there, then = self.flushed
        return abs((now - there) - (here - then)) > self.engine.limits.service_down_time / 4

    def _seen_lately(self, now: float, here: float) -> list[dict[str, Any]]:
        """What was heard before the clock was set, as the clock says it now."""
        return [
            {"host": host, "in_session": session, "seen": now - (here - then)}
            for host, (session, then) in self.heard_at.items()
            if here - then <= self.engine.limits.service_down_time
        ]

    async def _listening(self, tx: Tx, since: float, now: float) -> None:
        values: dict[str, Any] = {"since": since, "until": now}
        if not await rows.change(tx, observers, values, id=self.engine.worker):
            await tx.run(_FORGET, before=now - FORGOTTEN_AFTER)
            await rows.put(tx, observers, id=self.engine.worker, **values)
