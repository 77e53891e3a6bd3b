"""Host aggregates and the zones they make: records in the control database.

A host may be in many aggregates, but all that name a zone must name the same one. Every change raises one version
number, which tells the holder of a copy (aggregate_book.py) that the copy is old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert as insert_or_else

from kilonova.domain.errors import Refused
from kilonova.domain.json import decoded
from kilonova.domain.server import to_json
from kilonova.records.kinds import Kind
from kilonova.records.query import find
from kilonova.schema.tables.host_aggregates import aggregate_hosts, aggregate_version, host_aggregates
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Clock, Ids, Row, Store, Tx

ZONE = "availability_zone"  # the key of metadata that makes an aggregate a zone

AGGREGATE = Kind("aggregate", "aggregate", host_aggregates)
_HOSTS = Sql(select(aggregate_hosts).order_by(aggregate_hosts.c.aggregate_id, aggregate_hosts.c.host))
_SAME_NAME = Sql(select(host_aggregates.c.id).where(host_aggregates.c.name == bindparam("name")))
_RAISE_VERSION = Sql(
    insert_or_else(aggregate_version)
    .values(id=1, version=1)
    .on_conflict_do_update(index_elements=["id"], set_={"version": aggregate_version.c.version + 1})
)


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    uuid: str
    name: str
    metadata: dict[str, str] = {}
    hosts: tuple[str, ...] = ()
    created_at: float = 0.0
    updated_at: float | None = None

    @property
    def zone(self) -> str | None:
        return self.metadata.get(ZONE)


class Aggregates:
    def __init__(self, control: Store, clock: Clock, ids: Ids) -> None:
        self._control, self._clock, self._ids = control, clock, ids

    async def all(self) -> list[Aggregate]:
        return await self._control.read(read_all)

    async def find(self, aggregate_id: int) -> Aggregate:
        async def body(tx: Tx) -> Aggregate:
            return await _find(tx, aggregate_id)

        return await self._control.read(body, few=True)

    async def create(self, name: str, zone: str | None) -> Aggregate:
        uuid, now = self._ids.uuid(), self._clock.now()

        async def body(tx: Tx) -> Aggregate:
            await _refuse_same_name(tx, name)
            await tx.run(_RAISE_VERSION)
            metadata = {ZONE: zone} if zone else {}
            document = to_json(metadata)
            await rows.put(
                tx, host_aggregates, uuid=uuid, name=name, metadata=document, created_at=now, updated_at=None
            )
            row = await rows.fetch(tx, host_aggregates, uuid=uuid)
            assert row is not None
            return _aggregate(row, ())

        return await self._control.write(body)

    async def change(
        self, aggregate_id: int, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> Aggregate:
        """Change the aggregate. A metadata key whose value is None is removed."""
        now = self._clock.now()

        async def body(tx: Tx) -> Aggregate:
            await tx.run(_RAISE_VERSION)  # first: two concurrent changes of zones wait for each other here
            before = await _find(tx, aggregate_id)
            new_name = before.name if name is None else name
            if new_name != before.name:
                await _refuse_same_name(tx, new_name)
            after = {key: value for key, value in {**before.metadata, **(metadata or {})}.items() if value is not None}
            await _refuse_two_zones(tx, before, after.get(ZONE), before.hosts)
            values = {"name": new_name, "metadata": to_json(after), "updated_at": now}
            await rows.change(tx, host_aggregates, values, id=aggregate_id)
            return await _find(tx, aggregate_id)

        return await self._control.write(body)

    async def delete(self, aggregate_id: int) -> None:
        async def body(tx: Tx) -> None:
            await tx.run(_RAISE_VERSION)
            aggregate = await _find(tx, aggregate_id)
            if aggregate.hosts:
                raise Refused(
                    "aggregate_in_use",
                    f"Cannot delete aggregate {aggregate_id}: it has {len(aggregate.hosts)} hosts; remove them first",
                )
            await rows.remove(tx, host_aggregates, id=aggregate_id)

        await self._control.write(body)

    async def add_host(self, aggregate_id: int, host: str) -> Aggregate:
        now = self._clock.now()

        async def body(tx: Tx) -> Aggregate:
            await tx.run(_RAISE_VERSION)
            aggregate = await _find(tx, aggregate_id)
            if host in aggregate.hosts:
                raise Refused("aggregate_host_exists", f"Aggregate {aggregate_id} already has host {host}.")
            await _refuse_two_zones(tx, aggregate, aggregate.zone, [host])
            await rows.put(tx, aggregate_hosts, aggregate_id=aggregate_id, host=host)
            await rows.change(tx, host_aggregates, {"updated_at": now}, id=aggregate_id)
            return await _find(tx, aggregate_id)

        return await self._control.write(body)

    async def check_host(self, aggregate_id: int, host: str) -> None:
        """Check that the host may be added, before placement hears of it."""

        async def body(tx: Tx) -> None:
            aggregate = await _find(tx, aggregate_id)
            await _refuse_two_zones(tx, aggregate, aggregate.zone, [host])

        await self._control.read(body)

    async def remove_host(self, aggregate_id: int, host: str) -> Aggregate:
        now = self._clock.now()

        async def body(tx: Tx) -> Aggregate:
            await tx.run(_RAISE_VERSION)
            await _find(tx, aggregate_id)
            if not await rows.remove(tx, aggregate_hosts, aggregate_id=aggregate_id, host=host):
                raise no_such_host(aggregate_id, host)
            await rows.change(tx, host_aggregates, {"updated_at": now}, id=aggregate_id)
            return await _find(tx, aggregate_id)

        return await self._control.write(body)


async def read_all(tx: Tx) -> list[Aggregate]:
    """Return all aggregates, sorted by id."""
    hosts: dict[int, list[str]] = {}
    for row in await tx.all(_HOSTS):
        hosts.setdefault(row["aggregate_id"], []).append(row["host"])
    return [_aggregate(row, hosts.get(row["id"], ())) for row in await find(tx, AGGREGATE, None)]


async def forget_host(tx: Tx, host: str) -> None:
    """Remove a host that leaves the cloud from its aggregates."""
    if await rows.remove(tx, aggregate_hosts, host=host):
        await tx.run(_RAISE_VERSION)


def no_such_host(aggregate_id: int, host: str) -> Refused:
    return Refused("no_such_host", f"Aggregate {aggregate_id} has no host {host[:255]}.")


async def _find(tx: Tx, aggregate_id: int) -> Aggregate:
    row = await rows.fetch(tx, host_aggregates, id=aggregate_id)
    if row is None:
        raise Refused("not_found", f"Aggregate {aggregate_id} could not be found.")
    hosts = [each["host"] for each in await rows.fetch_all(tx, aggregate_hosts, aggregate_id=aggregate_id)]
    return _aggregate(row, sorted(hosts))


def _aggregate(row: Row, hosts: Sequence[str]) -> Aggregate:
    return Aggregate(
        id=row["id"],
        uuid=row["uuid"],
        name=row["name"],
        metadata=decoded(row["metadata"], dict[str, str]),
        hosts=tuple(hosts),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


async def _refuse_same_name(tx: Tx, name: str) -> None:
    if await tx.one(_SAME_NAME, name=name) is not None:
        raise Refused("aggregate_exists", f"Aggregate {name} already exists.")


async def _refuse_two_zones(tx: Tx, of: Aggregate, zone: str | None, hosts: Sequence[str]) -> None:
    """Refuse if one of the hosts is in an aggregate of another zone."""
    if not zone:
        return
    wanted = set(hosts)
    for other in await read_all(tx):
        both = wanted.intersection(other.hosts)
        if other.id != of.id and other.zone not in (None, zone) and both:
            raise Refused(
                "zone_conflict",
                f"Host {min(both)} is already in availability zone {other.zone} by aggregate {other.name}; "
                f"a host has one zone, so it cannot be in {zone} too",
            )
