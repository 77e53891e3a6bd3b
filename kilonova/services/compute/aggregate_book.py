"""All aggregates in memory. They are read again only after a change: one small query checks their version."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from kilonova.schema.tables.host_aggregates import aggregate_version
from kilonova.services.compute.aggregates import Aggregate, read_all
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

_VERSION = Sql(select(aggregate_version.c.version))
NEVER = -1


class AggregateBook:
    def __init__(self, control: Store, default_zone: str = "nova") -> None:
        self._control = control
        self.default_zone = default_zone
        self.version = NEVER  # of the aggregates here
        self.aggregates: Sequence[Aggregate] = ()
        self.of_host: dict[str, list[Aggregate]] = {}
        self._zones: dict[str, str] = {}

    async def sync(self) -> AggregateBook:
        """Read the aggregates again if they have changed. Afterwards every change committed before this call is
        visible."""
        row = await self._control.ask(_VERSION)
        version = row["version"] if row is not None else 0
        if version != self.version:
            self.take(version, await self._control.read(_read))
        return self

    def take(self, version: int, aggregates: Sequence[Aggregate]) -> None:
        """`version` may be older than they are: then the next look reads them once more."""
        self.version, self.aggregates = version, aggregates
        self.of_host = {}
        for aggregate in aggregates:
            for host in aggregate.hosts:
                self.of_host.setdefault(host, []).append(aggregate)
        self._zones = {host: aggregate.zone for aggregate in aggregates if aggregate.zone for host in aggregate.hosts}

    def zone_of(self, host: str) -> str:
        return self._zones.get(host, self.default_zone)


async def _read(tx: Tx) -> Sequence[Aggregate]:
    return await read_all(tx)
