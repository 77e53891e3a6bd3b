"""A small cloud's books for tests: hosts by name, verbs with short arguments, and what is held afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import func, select

from kilonova.placement import books as records
from kilonova.placement import claims, inventories, writing
from kilonova.placement.claims import Fence, GroupRule, HostCandidate
from kilonova.schema.tables import placement as tables
from kilonova.store.statements import Sql, watermark
from kilonova.world import Store, Tx

SMALL = {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}
LARGE = {"VCPU": 4, "MEMORY_MB": 4096, "DISK_GB": 40}

GROUP_USE = Sql(
    select(tables.group_use.c.group_id, tables.group_use.c.server_id, tables.resource_providers.c.name)
    .join(tables.resource_providers, tables.resource_providers.c.id == tables.group_use.c.root_id)
    .order_by(tables.group_use.c.server_id, tables.resource_providers.c.name)
)
_NEWEST = select(func.max(tables.ledger.c.id)).group_by(tables.ledger.c.consumer)
LAST_LINES = Sql(select(tables.ledger).where(tables.ledger.c.id.in_(_NEWEST)))
ROWS = Sql(select(tables.allocations))
CONSUMERS = Sql(select(tables.consumers).order_by(tables.consumers.c.uuid))
PROVIDERS = Sql(select(tables.resource_providers))
WATERMARK = Sql(select(watermark().label("watermark")))
USED = Sql(
    select(
        tables.resource_classes.c.name,
        tables.inventories.c.used,
        tables.inventories.c.capacity,
        tables.resource_providers.c.name.label("host"),
    )
    .select_from(tables.inventories)
    .join(tables.resource_classes, tables.resource_classes.c.id == tables.inventories.c.class_id)
    .join(tables.resource_providers, tables.resource_providers.c.id == tables.inventories.c.provider_id)
)


class WallClock:
    def now(self) -> float:
        return time.time()


def provider_of(host: str) -> str:
    return f"provider-of-{host}"


class Books:
    """`turn` and `ordinal` of a verb grow by themselves unless they are given."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._ordinal = 0

    async def host(self, name: str, vcpu: int = 8, memory: int = 8192, disk: int = 80, ratio: float = 1.0) -> str:
        await inventories.ensure_provider(self.store, provider_of(name), name)
        report = {"VCPU": (vcpu, 0, ratio), "MEMORY_MB": (memory, 0, 1.0), "DISK_GB": (disk, 0, 1.0)}
        await inventories.set_inventory(self.store, provider_of(name), report)
        return name

    async def watermark(self) -> int:
        (row,) = await self.all(WATERMARK)
        number: int = row["watermark"]
        return number

    async def hosts(self, *names: str) -> None:
        for name in names:
            await self.host(name)

    def fence(self, server: str, at: tuple[int, int] | None = None) -> Fence:
        self._ordinal += 1
        turn, ordinal = at or (1, self._ordinal)
        return Fence(server, turn, ordinal)

    async def claim(
        self,
        server: str,
        *hosts: str,
        size: Mapping[str, int] = SMALL,
        group: GroupRule | None = None,
        at: tuple[int, int] | None = None,
    ) -> Any:
        return await claims.claim(self.store, self.fence(server, at), _on(hosts, size), group=group, **OWNER)

    async def claim_move(
        self,
        server: str,
        migration: str,
        *hosts: str,
        size: Mapping[str, int] = SMALL,
        group: GroupRule | None = None,
        at: tuple[int, int] | None = None,
    ) -> Any:
        fence, candidates = self.fence(server, at), _on(hosts, size)
        return await claims.claim_move(self.store, fence, migration, candidates, group=group, **OWNER)

    async def claim_evacuation(
        self,
        server: str,
        evacuation: str,
        *hosts: str,
        size: Mapping[str, int] = SMALL,
        group: GroupRule | None = None,
        at: tuple[int, int] | None = None,
    ) -> Any:
        fence, candidates = self.fence(server, at), _on(hosts, size)
        return await claims.claim_evacuation(self.store, fence, evacuation, candidates, group=group, **OWNER)

    async def return_move(self, server: str, migration: str, at: tuple[int, int] | None = None) -> Any:
        return await claims.return_move(self.store, self.fence(server, at), migration)

    async def drop_move(self, server: str, migration: str, at: tuple[int, int] | None = None) -> Any:
        return await claims.drop_move(self.store, self.fence(server, at), migration)

    async def drop_source(self, server: str, migration: str) -> Any:
        return await claims.drop_source(self.store, server, migration)

    async def return_evacuation(self, server: str, evacuation: str, at: tuple[int, int] | None = None) -> Any:
        return await claims.return_evacuation(self.store, self.fence(server, at), evacuation)

    async def drop_holder(self, server: str, evacuation: str) -> Any:
        return await claims.drop_holder(self.store, server, evacuation)

    async def release(self, server: str, *migrations: str, at: tuple[int, int] | None = None) -> Any:
        return await claims.release(self.store, self.fence(server, at), [server, *migrations])

    async def take_away(self, consumer: str) -> bool:
        """As a client of the API does (DELETE /allocations)."""
        return await writing.drop(self.store, consumer, "alice")

    async def accept(self, host: str, accepting: bool) -> bool:
        return await inventories.set_accepting(self.store, provider_of(host), accepting)

    async def all(self, statement: Sql) -> list[Any]:
        async def body(tx: Tx) -> list[Any]:
            return list(await tx.all(statement))

        return await self.store.read(body)

    async def held(self) -> records.Held:
        """Consumer → (host, holder) → class → amount."""
        return records.by_consumer(await self.store.read(records.read_allocations))

    async def places(self) -> dict[str, set[tuple[str, str]]]:
        """Consumer → {(host, holder)}: enough where all have the same size."""
        return {consumer: set(places) for consumer, places in (await self.held()).items()}

    async def used(self, host: str, resource_class: str = "VCPU") -> int:
        return next(
            row["used"] for row in await self.all(USED) if row["host"] == host and row["name"] == resource_class
        )

    async def counted(self) -> set[tuple[str, str]]:
        """(server, host) as the groups count them."""
        return {(row["server_id"], row["name"]) for row in await self.all(GROUP_USE)}

    async def consumers(self) -> dict[str, Any]:
        return {row["uuid"]: row for row in await self.all(CONSUMERS)}

    async def generation(self, host: str) -> int:
        return next(row["generation"] for row in await self.all(PROVIDERS) if row["name"] == host)

    async def check(self) -> None:
        assert await self.store.read(records.balance) == []
        await self._check_history()

    async def _check_history(self) -> None:
        """The last line of each consumer says what it holds now; and nothing is held that is not told."""
        told = {row["consumer"]: msgspec.json.decode(row["holds"]) for row in await self.all(LAST_LINES)}
        held: dict[str, list[list[Any]]] = {consumer: [] for consumer in told}
        for row in await self.all(ROWS):
            held.setdefault(row["consumer"], []).append([row[n] for n in ("provider_id", "class_id", "holder", "used")])
        assert {consumer: sorted(rows) for consumer, rows in held.items()} == told


OWNER = {"project": "demo", "user": "alice"}


def _on(hosts: tuple[str, ...], size: Mapping[str, int]) -> list[HostCandidate]:
    return [HostCandidate(provider_of(host), dict(size)) for host in hosts]
