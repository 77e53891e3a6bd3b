"""The dependencies of every module of Network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kilonova.services.network.locks import lock_project
from kilonova.services.network.quotas import NetworkQuotas
from kilonova.services.network.wakeups import Wakeups
from kilonova.world import Clock, Ids, Store, Tx


@dataclass(frozen=True)
class NetworkContext:
    control: Store
    clock: Clock
    ids: Ids
    quotas: NetworkQuotas
    wakeups: Wakeups | None = None

    async def charge(self, tx: Tx, project_id: str, kind: str, count: int) -> None:
        await lock_project(tx, project_id)
        await self.quotas.charge(tx, project_id, kind, count)

    def touched(self, kind: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Wake the hosts that these changes concern, after the commit."""
        if self.wakeups is not None:
            for record in records:
                self.wakeups.touch_record(kind, record)
