"""The dependencies of every noun of the volume service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from kilonova.services.volume.backends import Backends
from kilonova.services.volume.quotas import VolumeQuotas
from kilonova.services.volume.types import Types
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
    wake: Callable[[], Awaitable[None]]  # wakes the backends; if it is lost, they find the work by their periodic query
    close: Close  # drops connections of these (backend, volume) that the records do not have any more

    async def detach(self, write: Callable[[Body], Awaitable[Closing]], body: Body) -> None:
        """Remove attachments. `body` voids their connections first (`attachment_steps.cut`) and is called again once
        those are dropped: the volume becomes free only when no former host can write to it. After a crash in between,
        the same request goes on."""
        while closing := await write(body):
            await self.close(closing)

    def work(self, kind: str, value: str = "") -> dict[str, object]:
        """Columns of a volume whose backend shall do something."""
        piece = {"work": kind, "work_id": self.ids.uuid(), "work_tries": 0, "work_value": value}
        return {**piece, "updated_at": self.clock.now()}


def snapshot_work(context: VolumeContext, kind: str) -> dict[str, object]:
    """Return the columns that request work on a snapshot: those of a volume, without a parameter."""
    return {name: value for name, value in context.work(kind).items() if name != "work_value"}
