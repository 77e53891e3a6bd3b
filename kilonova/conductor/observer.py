"""Heartbeats: written in batches, and with them how long this observer has been receiving without a gap (law 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import bindparam, delete, select, update

from kilonova.domain.errors import KilonovaError
from kilonova.engine.core import Engine
from kilonova.schema.tables.cell import hosts, observers
from kilonova.store import rows
from kilonova.store.marks import note_upkeep
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

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
QUIET_FLUSHES = 2  # while nothing is heard, one of this many is written
SLACK_SECONDS = 0.1
_ALL = Sql(select(*hosts.c["name", "session", "epoch", "returning", "last_seen"]))

Known = dict[str, tuple[str | None, int]]  # host: session and epoch


class Flushed(NamedTuple):
    now: float
    since: float
    known: Known
    has_news: bool


@dataclass
class Observer:
    """The heartbeats that one conductor hears from the hosts of one cell."""

    engine: Engine
    journal: Store
    heard: dict[str, tuple[str, float]] = field(default_factory=dict)  # host: session, and when; not recorded yet
    known: Known = field(default_factory=dict)
    since: float | None = None  # by the database's clock
    last_heard: float = float("-inf")  # by this process', as all below
    heard_at: dict[str, tuple[str, float]] = field(default_factory=dict)  # host: session, when
    flushed: tuple[float, float] | None = None  # the last time, by the database's clock and by this process'

    def hear(self, host: str, session: str) -> None:
        self.last_heard = self.engine.world.clock.monotonic()
        self.heard[host] = self.heard_at[host] = (session, self.last_heard)

    async def flush(self, echo_works: bool) -> bool:
        """Record all hosts heard since the last flush, in one transaction. Return True if one of them was silent for
        too long.

        Writes are avoided: a cell without hosts needs no observer, and in a quiet cell the observer is recorded only
        now and then.
        """
        heard, self.heard = self.heard, {}
        here, down_after = self.engine.world.clock.monotonic(), self.engine.settings.default.service_down_time
        receiving = echo_works and (len(self.known) < 2 or here - self.last_heard <= down_after / 2)
        if not heard and not await self._is_due(receiving, here):
            return False

        async def body(tx: Tx) -> Flushed:
            now = await tx.now()
            jumped = self._has_jumped(now, here)
            seen = self._seen(heard, now, here)
            before = await tx.all(_ALL)
            if jumped:
                seen = self._seen_lately(now, here)
                await tx.run(_NOT_AHEAD, now=now, silent=now - down_after)  # an observer that heard it will say so
            if seen:
                await tx.many(_SEEN, seen)
            follows = receiving and not jumped and self._follows(now)
            since = self.since if follows and self.since is not None else now
            await self._listening(tx, since, now)
            has_news = any(row["name"] in heard and now - row["last_seen"] > down_after for row in before)
            return Flushed(now, since, _known_in(before), has_news)

        try:
            flushed = await self.journal.write(body)
            note_upkeep(self.journal)
        except KilonovaError:  # too long a gap counts as not listening: see _follows
            self.heard = heard | self.heard  # recorded later, with the time when it was heard
            return False
        self.since, self.known, self.flushed = flushed.since, flushed.known, (flushed.now, here)
        self.heard_at = {host: self.heard_at[host] for host in self.known if host in self.heard_at}
        return flushed.has_news

    def _seen(self, heard: dict[str, tuple[str, float]], now: float, here: float) -> list[dict[str, str | float]]:
        """Return the hosts as seen at this flush, or earlier if an earlier flush failed to record them."""
        due = here - self.engine.flush_seconds
        return [
            {"host": host, "in_session": session, "seen": now - max(due - at, 0.0)}
            for host, (session, at) in heard.items()
        ]

    def _follows(self, now: float) -> bool:
        """Return True if this flush follows the last one without a gap.

        In a gap nothing was heard: this process hung, the machine was suspended, or the database was unreachable, so
        that nothing could be recorded (law 9). A single host would count as down after a gap, since no other host is
        heard to reveal it.
        """
        longest = max(self.engine.settings.default.service_down_time / 2, 3 * self.engine.flush_seconds)
        return self.flushed is not None and now - self.flushed[0] <= longest

    async def _is_due(self, receiving: bool, here: float) -> bool:
        """Return whether it is time to record how long this observer has been listening, though nothing was heard."""
        try:
            self.known = await self.journal.read(_known)
        except KilonovaError:
            return False
        if not receiving:
            self.since = None
        quiet = min(QUIET_FLUSHES * self.engine.flush_seconds, self.engine.settings.default.service_down_time / 8)
        return bool(self.known) and (self.flushed is None or here - self.flushed[1] > quiet - SLACK_SECONDS)

    def _has_jumped(self, now: float, here: float) -> bool:
        """Return whether the database's clock was set since the last flush, or this machine was asleep: then its times
        prove no silence (law 16)."""
        if self.flushed is None:
            return False
        there, then = self.flushed
        return abs((now - there) - (here - then)) > self.engine.settings.default.service_down_time / 4

    def _seen_lately(self, now: float, here: float) -> list[dict[str, str | float]]:
        """Return what was heard before the clock was set, in the time of the new clock."""
        return [
            {"host": host, "in_session": session, "seen": now - (here - then)}
            for host, (session, then) in self.heard_at.items()
            if here - then <= self.engine.settings.default.service_down_time
        ]

    async def _listening(self, tx: Tx, since: float, now: float) -> None:
        values = {"since": since, "until": now}
        if not await rows.change(tx, observers, values, id=self.engine.worker):
            await tx.run(_FORGET, before=now - FORGOTTEN_AFTER)
            await rows.put_row(tx, observers, {"id": self.engine.worker, **values})


async def _known(tx: Tx) -> Known:
    return _known_in(await tx.all(_ALL))


def _known_in(host_rows: Sequence[Row]) -> Known:
    return {row["name"]: (None if row["returning"] else row["session"], row["epoch"]) for row in host_rows}
