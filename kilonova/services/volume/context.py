"""The dependencies of every noun of the volume service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kilonova.domain.caller import Caller
from kilonova.schema.tables.volume import snapshots, volumes
from kilonova.services.volume.backends import Backends
from kilonova.services.volume.quotas import VolumeQuotas
from kilonova.services.volume.records import fetch_snapshot, fetch_volume
from kilonova.services.volume.types import Types
from kilonova.services.volume.volume import Snapshot, Volume, no_such_snapshot, no_such_volume
from kilonova.store import rows
from kilonova.world import Clock, Ids, Store, Tx

Closing = list[tuple[str, str]]  # backends and volumes
Close = Callable[[Iterable[tuple[str, str]]], Awaitable[None]]
Body = Callable[[Tx], Awaitable[Closing]]


class KeyDeriver(Protocol):
    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes that look random, the same for the same purpose."""


@dataclass(frozen=True)
class VolumeContext:
    control: Store
    clock: Clock
    ids: Ids
    seal: KeyDeriver
    quotas: VolumeQuotas
    types: Types
    backends: Backends
    wake: Callable[[], Awaitable[None]]  # tells the backends that there is work; lost, they find it by looking
    close: Close  # drops connections of these (backend, volume) that the records do not have any more

    async def detach(self, write: Callable[[Body], Awaitable[Closing]], body: Body) -> None:
        """Remove attachments: `body` voids their connections first (`attachment_steps.cut`) and is called again once
        those are dropped. Once the volume is free, no other writes to it. After a crash in between the same request
        goes on."""
        while closing := await write(body):
            await self.close(closing)

    def work(self, kind: str, value: str = "") -> dict[str, object]:
        """Columns of a volume whose backend shall do something."""
        piece = {"work": kind, "work_id": self.ids.uuid(), "work_tries": 0, "work_value": value}
        return {**piece, "updated_at": self.clock.now()}


def snapshot_work(context: VolumeContext, kind: str) -> dict[str, object]:
    """The same of a snapshot, whose tasks need no more to be told."""
    return {name: value for name, value in context.work(kind).items() if name != "work_value"}


async def visible_volume(tx: Tx, caller: Caller, volume_id: str, *, lock: bool = False) -> Volume:
    """Others do not exist for the caller."""
    found = await fetch_volume(tx, volume_id, lock=lock)
    if not found.is_visible_to(caller):
        raise no_such_volume(volume_id)
    return found


async def visible_snapshot(tx: Tx, caller: Caller, snapshot_id: str, *, lock: bool = False) -> Snapshot:
    found = await fetch_snapshot(tx, snapshot_id, lock=lock)
    if not found.is_visible_to(caller):
        raise no_such_snapshot(snapshot_id)
    return found


async def change_volume(tx: Tx, volume: Volume, values: Mapping[str, object]) -> Volume:
    await rows.change(tx, volumes, values, id=volume.id)
    return await fetch_volume(tx, volume.id)


async def change_snapshot(tx: Tx, snapshot: Snapshot, values: Mapping[str, object]) -> Snapshot:
    await rows.change(tx, snapshots, values, id=snapshot.id)
    return await fetch_snapshot(tx, snapshot.id)
