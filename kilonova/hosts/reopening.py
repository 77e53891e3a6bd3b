"""Hosts that stay closed without a recorded reason.

A provider is closed before that is recorded, and opened only when its host registers. A process that died or hung in
between may leave a closed host that sends heartbeats as if all were well and gets no server. If two checks in a row
find it so, with nothing changed between them, the host is called back: it registers, which opens it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from sqlalchemy import select

from kilonova.domain.host import judge
from kilonova.domain.json import as_text, json_object, texts
from kilonova.engine.core import Engine
from kilonova.placement.inventories import closed_providers
from kilonova.schema.tables.cell import debts, hosts
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.hosts import facts_of, raise_epoch
from kilonova.store.statements import Sql, in_list
from kilonova.world import Store, Tx

logger = logging.getLogger(__name__)
LEAST_BETWEEN_LOOKS = 60.0  # seconds
CLOSING = ("drain_host", "host_gone")  # operations that close hosts before they record it
_HOSTS = Sql(
    select(
        *hosts.c["name", "provider_id", "session", "epoch", "registration", "last_seen"],
        *hosts.c["forced_down", "fenced", "disabled", "draining", "returning"],
    ).order_by(hosts.c.name)
)
_OWING = Sql(select(debts.c.host).distinct())
_CLOSING = Sql(select(operations.c.params).where(operations.c.live == 1, in_list(operations.c.kind, "kinds")))

Standing = tuple[str | None, int, int | None]  # session, epoch and registration: every action on a host changes one


def seconds_between_looks(engine: Engine) -> float:
    """Return a time longer than a fence command may take: a host is closed while that runs."""
    return max(LEAST_BETWEEN_LOOKS, 2 * engine.settings.ha.fence_timeout)


class Reopening:
    """The reopening of hosts by one conductor, for all cells."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._closed: dict[str, dict[str, Standing]] = {}  # by cell and host, at the last look

    def forget(self) -> None:
        """Forget what was seen: another conductor looks after this now, so it was not the last look."""
        self._closed.clear()

    async def look(self, journal: Store) -> None:
        before = self._closed.pop(journal.name, {})  # where a database does not answer nothing is known (law 18)
        providers = await closed_providers(self._engine.world.db.placement)
        unexplained: dict[str, Standing] = {}
        if providers:
            unexplained = await journal.read(lambda tx: self._unexplained(tx, providers))
        self._closed[journal.name] = unexplained
        for host, standing in unexplained.items():
            if before.get(host) == standing:
                await self._call_back(journal, host, standing, providers)

    async def _unexplained(self, tx: Tx, providers: Collection[str]) -> dict[str, Standing]:
        """Return, by name, the hosts that are up and that no record keeps closed."""
        now, down_after = await tx.now(), self._engine.settings.default.service_down_time
        closed = [row for row in await tx.all(_HOSTS) if row["provider_id"] in providers]
        up = [row for row in closed if judge(facts_of(row), None, now, down_after).may_receive]
        if not up:
            return {}
        busy = {row["host"] for row in await tx.all(_OWING)}
        for row in await tx.all(_CLOSING, kinds=[*CLOSING]):
            params = json_object(row["params"])
            busy |= {as_text(params.get("host")), *texts(params.get("hosts"))}
        return {
            row["name"]: (row["session"], row["epoch"], row["registration"]) for row in up if row["name"] not in busy
        }

    async def _call_back(self, journal: Store, host: str, standing: Standing, providers: Collection[str]) -> None:
        async def body(tx: Tx) -> bool:
            await rows.fetch(tx, hosts, lock=True, name=host)  # it does not change before this transaction ends
            if (await self._unexplained(tx, providers)).get(host) != standing:
                return False
            await raise_epoch(tx, host)
            return True

        if await self._engine.write(journal, body):
            reason = "it is up and takes no servers, and no record says why"
            logger.warning("closed host called back: host=%s cell=%s reason=%r", host, journal.name, reason)
            await self._engine.wake(journal.name, "", host)
