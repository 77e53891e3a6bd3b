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
    .where(hosts.c.name == bindparam("host"), hosts.c.session == bindparam("in_session"))
    .values(last_seen=bindparam("seen"))
)
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
    since: float | None = None
    last_heard: float = float("-inf")

    def hear(self, host: str, session: str) -> None:
        self.heard[host] = session
        self.last_heard = self.engine.world.clock.now()

    async def flush(self, echo_works: bool) -> None:
        """One transaction for all hosts heard since the last one."""
        heard, self.heard = self.heard, {}
        clock = self.engine.world.clock
        within = self.engine.limits.service_down_time / 2
        receiving = echo_works and (len(self.known) < 2 or clock.now() - self.last_heard <= within)

        async def body(tx: Tx) -> tuple[float, dict[str, tuple[str | None, int]]]:
            now = await tx.now()
            seen = [{"host": host, "in_session": session, "seen": now} for host, session in heard.items()]
            if seen:
                await tx.many(_SEEN, seen)
            since = self.since if receiving and self.since is not None else now
            await self._listening(tx, since, now)
            known = {
                row["name"]: (None if row["returning"] else row["session"], row["epoch"]) for row in await tx.all(_ALL)
            }
            return since, known

        try:
            self.since, self.known = await self.journal.write(body)
        except KilonovaError:
            self.since = None  # what was not recorded was not heard

    async def _listening(self, tx: Tx, since: float, now: float) -> None:
        values: dict[str, Any] = {"since": since, "until": now}
        if not await rows.change(tx, observers, values, id=self.engine.worker):
            await tx.run(_FORGET, before=now - FORGOTTEN_AFTER)
            await rows.put(tx, observers, id=self.engine.worker, **values)
