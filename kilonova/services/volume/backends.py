"""The backends that store the files of volumes: one per data directory. Each sends a heartbeat; a new volume goes to
one that was heard lately and is not disabled."""

from __future__ import annotations

import msgspec
from sqlalchemy import Table, bindparam, func, select

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import snapshots, volume_backends, volumes
from kilonova.store import rows
from kilonova.store.marks import note_upkeep
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

SILENT_AFTER = 60.0  # seconds; as Cinder's service_down_time
POOL = "files"


_HELD = ("volume_count", "total_volume_gb", "snapshot_count", "total_snapshot_gb")


def _sums(table: Table) -> Sql:
    size = func.coalesce(func.sum(table.c.size), 0).label("size")
    statement = select(table.c.project_id, func.count().label("count"), size)
    return Sql(statement.where(table.c.backend == bindparam("backend")).group_by(table.c.project_id))


_VOLUMES, _SNAPSHOTS = _sums(volumes), _sums(snapshots)


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    disabled: bool
    disabled_reason: str | None
    total_gb: int
    free_gb: int
    seen_at: float
    is_up: bool

    @property
    def host(self) -> str:
        """Return the host name as in the list of services."""
        return host_of(self.id)

    @property
    def pool(self) -> str:
        return pool_of(self.id)


def host_of(backend_id: str) -> str:
    return f"kilonova-{backend_id[:8]}@{POOL}"


def pool_of(backend_id: str) -> str:
    return f"{host_of(backend_id)}#{POOL}"


class Backends:
    def __init__(self, control: Store, own: str = "") -> None:
        """`own`: the one whose files lie in this process' data directory; it is the first choice."""
        self._control, self.own = control, own

    async def beat(self, total_gb: int, free_gb: int) -> None:
        values = {"total_gb": total_gb, "free_gb": free_gb}
        new = {"id": self.own, "disabled": 0, "disabled_reason": None}

        async def body(tx: Tx) -> None:
            changed = (*values, "seen_at")
            await rows.put_or_change(tx, volume_backends, changed, ("created_at", "seen_at"), **new, **values)

        await self._control.write(body)
        note_upkeep(self._control)

    async def choose(self, tx: Tx) -> str:
        """Choose the backend of a new volume. Raise `Refused` if no volume service is up and enabled."""
        usable = [one for one in await self._all(tx) if one.is_up and not one.disabled]
        for one in usable:
            if one.id == self.own:
                return one.id
        if not usable:
            text = "No volume service is up and enabled; start one, or enable it: openstack volume service set --enable"
            raise Refused("no_backend", text)
        return max(usable, key=lambda one: (one.free_gb, one.id)).id

    async def all(self) -> list[Backend]:
        return await self._control.read(self._all)

    async def _all(self, tx: Tx) -> list[Backend]:
        now = await tx.now()
        backends = [_backend(row, now) for row in await rows.fetch_all(tx, volume_backends)]
        return sorted(backends, key=lambda one: one.id)

    async def held(self, backend_id: str) -> list[dict[str, str]]:
        """Return the usage of a backend: the total, then by project."""

        async def body(tx: Tx) -> list[dict[str, str]]:
            numbers: dict[str, dict[str, int]] = {"(total)": {}}
            for noun, statement in (("volume", _VOLUMES), ("snapshot", _SNAPSHOTS)):
                for row in await tx.all(statement, backend=backend_id):
                    for project in ("(total)", row["project_id"]):
                        mine = numbers.setdefault(project, {})
                        mine[f"{noun}_count"] = mine.get(f"{noun}_count", 0) + row["count"]
                        mine[f"total_{noun}_gb"] = mine.get(f"total_{noun}_gb", 0) + int(row["size"])
            return [
                {"project": project, **{name: str(mine.get(name, 0)) for name in _HELD}}
                for project, mine in numbers.items()
            ]

        return await self._control.read(body)

    async def set_disabled(self, host: str, disabled: bool, reason: str | None = None) -> None:
        async def body(tx: Tx) -> None:
            for one in await self._all(tx):
                if one.host == host:
                    values = {"disabled": int(disabled), "disabled_reason": reason if disabled else None}
                    await rows.change(tx, volume_backends, values, id=one.id)
                    return
            raise Refused("service_not_found", f"Service cinder-volume could not be found on host {host[:80]}.")

        await self._control.write(body)


def _backend(row: Row, now: float) -> Backend:
    return Backend(
        id=row["id"],
        disabled=bool(row["disabled"]),
        disabled_reason=row["disabled_reason"],
        total_gb=row["total_gb"],
        free_gb=row["free_gb"],
        seen_at=row["seen_at"],
        is_up=abs(now - row["seen_at"]) <= SILENT_AFTER,
    )
