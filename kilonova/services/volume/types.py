"""Types: what kind of volume one may ask for. A type is for all or for named projects; its extra specs say more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, or_, select

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.records.access import USABLE, AccessList, viewer_of
from kilonova.records.kinds import Kind
from kilonova.records.query import ListQuery, find
from kilonova.schema.tables.volume import (
    volume_default_types,
    volume_seeds,
    volume_type_projects,
    volume_types,
    volumes,
)
from kilonova.services.volume.listing import NEWEST
from kilonova.services.volume.volume import DEFAULT_TYPE, IS_TRUE, VolumeType, no_such_type
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Clock, Ids, Row, Store, Tx

_ACCESS = AccessList(volume_types, "id", volume_type_projects, "type_id")
_NAME_OR_ID: Any = bindparam("name_or_id")
_ONE = Sql(_ACCESS.source.where(or_(volume_types.c.id == _NAME_OR_ID, volume_types.c.name == _NAME_OR_ID)))
TYPE = Kind(
    "volume_type",
    "volume type",
    volume_types,
    visible=_ACCESS.usable,
    filters={USABLE: lambda _: _ACCESS.usable},
    source=_ACCESS.source,
    order=NEWEST,
    follows=True,
    lost=no_such_type,
)
_USED = Sql(select(func.count().label("used")).where(volumes.c.type_id == bindparam("type_id")))


class Types:
    def __init__(self, control: Store, clock: Clock, ids: Ids, default: str = DEFAULT_TYPE) -> None:
        """`default`: the name of the type of a volume that was requested without one."""
        self._control, self._clock, self._ids = control, clock, ids
        self._default = default

    async def prepare(self) -> None:
        """Create the first type, once in the life of a cloud."""
        now, type_id = self._clock.now(), self._ids.uuid()
        new = VolumeType(id=type_id, name=DEFAULT_TYPE, description="Default Volume Type", created_at=now)

        async def body(tx: Tx) -> None:
            if await rows.put(tx, volume_seeds, unless_there=True, name=DEFAULT_TYPE, created_at=now):
                await rows.put_row(tx, volume_types, _columns(new), unless_there=True)

        await self._control.write(body)

    async def find(self, caller: Caller, name_or_id: str) -> VolumeType:
        async def body(tx: Tx) -> VolumeType:
            return await self.visible(tx, caller, name_or_id)

        return await self._control.read(body, few=True)

    async def visible(self, tx: Tx, caller: Caller, name_or_id: str) -> VolumeType:
        """Return a type by its id or name; an id wins. Raise `Refused` for one that the caller may not see."""
        matches = [_type(row) for row in await tx.all(_ONE, name_or_id=name_or_id, project_id=caller.project_id)]
        for one in sorted(matches, key=lambda one: one.id != name_or_id):
            if one.is_visible_to(caller):
                return one
        raise no_such_type(name_or_id)

    async def default(self, caller: Caller) -> VolumeType:
        """Return the default type of the caller's project."""

        async def body(tx: Tx) -> VolumeType:
            return await self.default_of(tx, caller)

        return await self._control.read(body, few=True)

    async def default_of(self, tx: Tx, caller: Caller) -> VolumeType:
        row = await rows.fetch(tx, volume_default_types, project_id=caller.project_id)
        default = row["type_id"] if row is not None else self._default
        matches = await tx.all(_ONE, name_or_id=default, project_id=caller.project_id)
        if not matches:
            text = f"The default volume type {default} does not exist; create it, or set [volume] default_volume_type."
            raise Refused("default_type_missing", text)
        return _type(matches[0])

    async def list_(self, caller: Caller, wanted: ListQuery) -> list[VolumeType]:
        """Return the types that the caller may see."""

        async def body(tx: Tx) -> list[VolumeType]:
            page = await find(tx, TYPE, viewer_of(caller), wanted, project_id=caller.project_id)
            return [_type(row) for row in page]

        return await self._control.read(body)

    async def create(self, new: VolumeType) -> VolumeType:
        _check_specs(new.extra_specs)
        new = msgspec.structs.replace(new, id=self._ids.uuid(), created_at=self._clock.now())

        async def body(tx: Tx) -> VolumeType:
            if not await rows.put_row(tx, volume_types, _columns(new), unless_there=True):
                raise _exists(new.name)
            return new

        return await self._control.write(body)

    async def update(self, caller: Caller, type_id: str, changes: Mapping[str, Any]) -> VolumeType:
        values = {**changes, "updated_at": self._clock.now()}

        async def body(tx: Tx) -> VolumeType:
            old = await self._locked(tx, caller, type_id)
            new = msgspec.structs.replace(old, **values)
            same = await rows.fetch(tx, volume_types, name=new.name)
            if same is not None and same["id"] != old.id:
                raise _exists(new.name)
            await rows.change(tx, volume_types, _columns(new), id=old.id)
            return new

        return await self._control.write(body)

    async def delete(self, caller: Caller, type_id: str) -> None:
        """Delete a type; refused if volumes have it, or if it is a default."""

        async def body(tx: Tx) -> None:
            volume_type = await self._locked(tx, caller, type_id)
            if await _used(tx, volume_type.id):
                raise Refused("type_in_use", "Target volume type is still in use.")
            if volume_type.name == self._default or await rows.fetch_all(
                tx, volume_default_types, type_id=volume_type.id
            ):
                raise Refused("type_in_use", f"The volume type {volume_type.name} is a default and cannot be deleted.")
            await _ACCESS.clear(tx, volume_type.id)
            await rows.remove(tx, volume_types, id=volume_type.id)

        await self._control.write(body)

    # -- extra specs ----------------------------------------------------------------------------------------------

    async def edit_specs(
        self, caller: Caller, type_id: str, edit: Callable[[dict[str, str]], dict[str, str]]
    ) -> VolumeType:
        """Change the extra specs; not while volumes have the type, since they were made by the old ones."""
        now = self._clock.now()

        async def body(tx: Tx) -> VolumeType:
            old = await self._locked(tx, caller, type_id)
            specs = edit(old.extra_specs)
            if await _used(tx, old.id):
                raise Refused("type_in_use", "Volume Type is currently in use.")
            _check_specs(specs)
            new = msgspec.structs.replace(old, extra_specs=specs, updated_at=now)
            await rows.change(tx, volume_types, _columns(new), id=old.id)
            return new

        return await self._control.write(body)

    # -- who may use it -------------------------------------------------------------------------------------------

    async def projects(self, caller: Caller, type_id: str) -> list[str]:
        async def body(tx: Tx) -> list[str]:
            volume_type = await self.visible(tx, caller, type_id)
            if volume_type.is_public:
                raise Refused("type_access_not_found", "Access list not available for public volume types.")
            return await _ACCESS.all(tx, volume_type.id)

        return await self._control.read(body)

    async def grant(self, caller: Caller, type_id: str, project_id: str) -> None:
        async def body(tx: Tx) -> None:
            volume_type = await self._private(tx, caller, type_id)
            if not await _ACCESS.add(tx, volume_type.id, project_id):
                text = f"Volume type access for {type_id} / {project_id} combination already exists."
                raise Refused("type_access_exists", text)

        await self._control.write(body)

    async def withdraw(self, caller: Caller, type_id: str, project_id: str) -> None:
        async def body(tx: Tx) -> None:
            volume_type = await self._private(tx, caller, type_id)
            if not await _ACCESS.remove(tx, volume_type.id, project_id):
                text = f"Volume type access not found for {type_id} / {project_id} combination."
                raise Refused("type_access_not_found", text)

        await self._control.write(body)

    async def _private(self, tx: Tx, caller: Caller, type_id: str) -> VolumeType:
        volume_type = await self._locked(tx, caller, type_id)
        if volume_type.is_public:
            text = "Type access modification is not applicable to public volume type."
            raise Refused("invalid_type", f"Invalid volume type: {text}")
        return volume_type

    # -- defaults of projects -------------------------------------------------------------------------------------

    async def set_default(self, caller: Caller, project_id: str, name_or_id: str) -> VolumeType:
        async def body(tx: Tx) -> VolumeType:
            volume_type = await self.visible(tx, caller, name_or_id)
            values = {"project_id": project_id, "type_id": volume_type.id}
            await rows.put_or_change(tx, volume_default_types, ("type_id",), **values)
            return volume_type

        return await self._control.write(body)

    async def defaults(self) -> dict[str, str]:
        """Ids of types, by project."""

        async def body(tx: Tx) -> dict[str, str]:
            return {row["project_id"]: row["type_id"] for row in await rows.fetch_all(tx, volume_default_types)}

        return await self._control.read(body)

    async def drop_default(self, project_id: str) -> None:
        async def body(tx: Tx) -> None:
            await rows.remove(tx, volume_default_types, project_id=project_id)

        await self._control.write(body)

    async def _locked(self, tx: Tx, caller: Caller, type_id: str) -> VolumeType:
        await rows.fetch(tx, volume_types, lock=True, id=type_id)
        return await self.visible(tx, caller, type_id)


async def _used(tx: Tx, type_id: str) -> bool:
    row = await tx.one(_USED, type_id=type_id)
    return row is not None and row["used"] > 0


def _type(row: Row) -> VolumeType:
    return VolumeType(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        is_public=bool(row["is_public"]),
        extra_specs=msgspec.json.decode(row["extra_specs"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        granted=row["granted"] is not None,
    )


def _columns(one: VolumeType) -> dict[str, object]:
    values: dict[str, object] = msgspec.structs.asdict(one)
    del values["granted"]
    specs = msgspec.json.encode(one.extra_specs).decode()
    return {**values, "is_public": int(one.is_public), "extra_specs": specs}


def _check_specs(specs: Mapping[str, str]) -> None:
    if specs.get("multiattach") == IS_TRUE and specs.get("cacheable") == IS_TRUE:
        raise Refused("bad_request", "cacheable cannot be set with multiattach.")


def _exists(name: str) -> Refused:
    return Refused("type_exists", f"Volume Type {name} already exists.")


def no_such_spec(type_id: str, key: str) -> Refused:
    return Refused("type_spec_not_found", f"Volume Type {type_id} has no extra specs with key {key[:255]}.")
