"""A project's usage and limits; -1 is unlimited.

The usage is a row, written in the transaction that creates or deletes the record, so that a check costs the same
however much a project has. Gigabytes count volumes and snapshots. Each resource has a limit over all types and one per
type.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert as insert_or_add  # both engines understand its text

from kilonova.domain.errors import Refused
from kilonova.records.quotas import DEFAULT_CLASS, UNLIMITED, LimitRows, Limits, Quota, ServiceQuotas
from kilonova.schema.tables.volume import volume_class_limits, volume_limits, volume_types, volume_usage
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

VOLUMES, SNAPSHOTS, GIGABYTES = COUNTED = ("volumes", "snapshots", "gigabytes")
PER_VOLUME = "per_volume_gigabytes"
# Nothing of these can be made here; clients look for their limits.
ABSENT = ("backups", "backup_gigabytes", "groups")
DEFAULTS = {VOLUMES: 10, PER_VOLUME: -1, SNAPSHOTS: 10, GIGABYTES: 1000, "backups": 10, "backup_gigabytes": 1000}
DEFAULTS |= {"groups": 10}

Delta = Mapping[str, int]  # by resource

_USE = Sql(
    (
        _insert := insert_or_add(volume_usage).values(
            project_id=bindparam("project_id"),
            resource=bindparam("resource"),
            type_id=bindparam("type_id"),
            used=bindparam("more"),
        )
    )
    .on_conflict_do_update(
        index_elements=["project_id", "resource", "type_id"],
        set_={"used": volume_usage.c.used + _insert.excluded.used},
    )
    .returning(volume_usage.c.used)
)
_TYPE_NAMES = Sql(select(volume_types.c.id, volume_types.c.name))


class VolumeQuotas(ServiceQuotas):
    def __init__(self, control: Store, defaults: Mapping[str, int] | None = None) -> None:
        super().__init__(control, LimitRows(volume_limits, volume_class_limits), {**DEFAULTS, **(defaults or {})})

    async def charge(self, tx: Tx, project_id: str, type_id: str, delta: Delta) -> None:
        """Add to the usage. Raise `Refused` if more is taken than allowed; giving back is never refused.

        Rows are locked in one order, so that two charges cannot deadlock.
        """
        limits = await self._limits_of(tx, project_id) if any(more > 0 for more in delta.values()) else {}
        name = await _name_of(tx, type_id) if limits else ""
        for resource in COUNTED:
            more = delta.get(resource, 0)
            for of_type in ("", type_id) if more else ():
                used = await _use(tx, project_id, resource, of_type, more)
                limit = limits.get(f"{resource}_{name}" if of_type else resource, UNLIMITED)
                if more > 0 and 0 <= limit < used:
                    raise _exceeded(f"{resource}_{name}" if of_type else resource, more, used - more, limit)

    async def check_size(self, tx: Tx, project_id: str, size: int) -> None:
        """Check the size of one volume."""
        limit = (await self._limits_of(tx, project_id))[PER_VOLUME]
        if 0 <= limit < size:
            text = f"Requested volume size {size}G is larger than maximum allowed limit {limit}G."
            raise Refused("volume_too_large", text)

    async def show(self, project_id: str) -> dict[str, Quota]:
        """Return the quotas by resource, with those of each type."""

        async def body(tx: Tx) -> dict[str, Quota]:
            return await self._show(tx, project_id)

        return await self._control.read(body)

    async def _show(self, tx: Tx, project_id: str) -> dict[str, Quota]:
        limits = await self._limits_of(tx, project_id)
        types = {row["id"]: row["name"] for row in await tx.all(_TYPE_NAMES)}
        used: dict[str, int] = {}
        for row in await rows.fetch_all(tx, volume_usage, project_id=project_id):
            of_type = row["type_id"]
            if not of_type or of_type in types:
                used[f"{row['resource']}_{types[of_type]}" if of_type else row["resource"]] = row["used"]
        every = [*DEFAULTS, *(f"{resource}_{name}" for name in types.values() for resource in COUNTED)]
        return {name: Quota(limits.get(name, UNLIMITED), used.get(name, 0)) for name in every}

    async def known(self, tx: Tx) -> dict[str, int]:
        types = [row["name"] for row in await tx.all(_TYPE_NAMES)]
        per_type = {f"{resource}_{name}": UNLIMITED for name in types for resource in COUNTED}
        return {**self._configured, **per_type, **await self._limits.of_class(tx, DEFAULT_CLASS)}

    async def set(self, project_id: str, wanted: Mapping[str, int]) -> None:
        """Set all limits or none: one below the usage is refused."""

        async def body(tx: Tx) -> None:
            known = await self._show(tx, project_id)
            _check_known(wanted, known)
            for resource, limit in wanted.items():
                in_use = known[resource].in_use
                if 0 <= limit < in_use:
                    text = f"Quota {resource} limit must be equal or greater than existing resources. Current usage is"
                    raise Refused("bad_request", f"{text} {in_use} and the requested limit is {limit}.")
                await self._limits.put(tx, project_id, resource, limit)

        await self._control.write(body)

    async def set_class(self, name: str, limits: Limits) -> None:
        _check_known(limits, await self.defaults())
        await super().set_class(name, limits)

    async def _limits_of(self, tx: Tx, project_id: str) -> dict[str, int]:
        return (await self._limits.given(tx, project_id, self._configured)).all()


async def _use(tx: Tx, project_id: str, resource: str, type_id: str, more: int) -> int:
    """Add to the usage, and return it."""
    row = await tx.one(_USE, project_id=project_id, resource=resource, type_id=type_id, more=more)
    if row is None:
        raise RuntimeError("an upsert gives its row back")
    return int(row["used"])


async def _name_of(tx: Tx, type_id: str) -> str:
    row = await rows.fetch(tx, volume_types, id=type_id)
    return "" if row is None else str(row["name"])


def _check_known(wanted: Mapping[str, int], known: Mapping[str, object]) -> None:
    strange = sorted(set(wanted) - set(known))
    if strange:
        raise Refused("bad_request", f"Bad key(s) in quota set: {', '.join(strange)[:200]}")


def _exceeded(resource: str, more: int, used: int, limit: int) -> Refused:
    kind = resource.partition("_")[0]
    if kind == GIGABYTES:
        text = (
            f"Requested volume or snapshot exceeds allowed {resource} quota. Requested {more}G, quota is {limit}G and"
        )
        return Refused("over_quota", f"{text} {used}G has been consumed.")
    noun = kind.removesuffix("s").capitalize()
    return Refused(
        "over_quota",
        f"{noun}LimitExceeded: Maximum number of {kind} allowed ({limit}) exceeded for quota '{resource}'.",
    )
