"""Flavors: kept in the control database, visible to all or to named projects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.domain.json import decoded
from kilonova.domain.server import Flavor, to_json
from kilonova.records.access import USABLE, AccessList, viewer_of
from kilonova.records.kinds import Kind, Order
from kilonova.records.query import ALL, ListQuery, find, look_up
from kilonova.schema.tables.flavors import flavor_projects, flavor_seeds, flavors
from kilonova.store import rows
from kilonova.world import Clock, Ids, Row, Store, Tx

SEED = "classic"
CLASSIC = (  # id, name, vcpus, memory_mb, disk_gb
    ("1", "m1.tiny", 1, 512, 1),
    ("2", "m1.small", 1, 2048, 20),
    ("3", "m1.medium", 2, 4096, 40),
    ("4", "m1.large", 4, 8192, 80),
    ("5", "m1.xlarge", 8, 16384, 160),
)

_ACCESS = AccessList(flavors, "number", flavor_projects, "flavor_number")
FLAVOR = Kind(
    "flavor",
    "flavor",
    flavors,
    visible=_ACCESS.usable,
    filters={USABLE: lambda _: _ACCESS.usable},
    source=_ACCESS.source,
    order=(Order("number"),),
    follows=True,
    lost=lambda marker: Refused("bad_request", f"marker [{marker[:255]}] not found"),
)


class FlavorRecord(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    id: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    granted: bool = False  # the caller's project is on its access list
    description: str | None = None
    extra_specs: dict[str, str] = {}
    created_at: float = 0.0
    updated_at: float | None = None

    def shape(self) -> Flavor:
        """Return the copy of the flavor that a server keeps."""
        return Flavor(
            name=self.name,
            vcpus=self.vcpus,
            memory_mb=self.memory_mb,
            disk_gb=self.disk_gb,
            id=self.id,
            ephemeral_gb=self.ephemeral_gb,
            swap_mb=self.swap_mb,
            extra_specs=self.extra_specs,
        )


class NewFlavor(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    id: str = ""  # made when it is empty
    ephemeral_gb: int = 0
    swap_mb: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    description: str | None = None


class Flavors:
    def __init__(self, control: Store, clock: Clock, ids: Ids) -> None:
        self._control, self._clock, self._ids = control, clock, ids

    async def prepare(self) -> None:
        """Create the classic sizes, once in the life of a cloud: a deleted one does not return after a restart."""
        now = self._clock.now()

        async def body(tx: Tx) -> None:
            if not await rows.put(tx, flavor_seeds, unless_there=True, name=SEED, created_at=now):
                return
            for id_, name, vcpus, memory_mb, disk_gb in CLASSIC:
                new = NewFlavor(id=id_, name=name, vcpus=vcpus, memory_mb=memory_mb, disk_gb=disk_gb)
                await rows.put_row(tx, flavors, _row(new, now), unless_there=True)

        await self._control.write(body)

    async def find(self, flavor_id: str, *, caller: Caller) -> FlavorRecord:
        """Return a flavor that the caller may see."""

        async def body(tx: Tx) -> FlavorRecord:
            return await _visible(tx, flavor_id, caller)

        return await self._control.read(body, few=True)

    async def list_(self, caller: Caller, query: ListQuery = ALL) -> list[FlavorRecord]:
        """Return the flavors that the caller may see; an administrator sees all."""

        async def body(tx: Tx) -> Sequence[Row]:
            return await find(tx, FLAVOR, viewer_of(caller), query, project_id=caller.project_id)

        return [_flavor(row) for row in await self._control.read(body)]

    async def create(self, new: NewFlavor) -> FlavorRecord:
        now = self._clock.now()
        new = msgspec.structs.replace(new, id=new.id or self._ids.uuid())

        async def body(tx: Tx) -> FlavorRecord:
            if not await rows.put_row(tx, flavors, _row(new, now), unless_there=True):
                same_id = await rows.fetch(tx, flavors, id=new.id)
                what = f"name {new.name}" if same_id is None else f"ID {new.id}"
                raise Refused("exists", f"Flavor with {what} already exists.")
            row = await look_up(tx, FLAVOR, None, new.id, project_id="")
            assert row is not None
            return _flavor(row)

        return await self._control.write(body)

    async def describe(self, flavor_id: str, description: str | None, *, caller: Caller) -> FlavorRecord:
        values = {"description": description, "updated_at": self._clock.now()}

        async def body(tx: Tx) -> FlavorRecord:
            flavor = await _visible(tx, flavor_id, caller, lock=True)
            await rows.change(tx, flavors, values, number=flavor.number)
            return msgspec.structs.replace(flavor, **values)

        return await self._control.write(body)

    async def delete(self, flavor_id: str) -> None:
        async def body(tx: Tx) -> None:
            row = await rows.fetch(tx, flavors, lock=True, id=flavor_id)
            if row is None:
                raise _unknown(flavor_id)
            await _ACCESS.clear(tx, row["number"])
            await rows.remove(tx, flavors, number=row["number"])

        await self._control.write(body)

    # -- extra specs --------------------------------------------------------------------------------------------

    async def edit_specs(
        self, flavor_id: str, edit: Callable[[dict[str, str]], dict[str, str]], *, caller: Caller
    ) -> dict[str, str]:
        now = self._clock.now()

        async def body(tx: Tx) -> dict[str, str]:
            flavor = await _visible(tx, flavor_id, caller, lock=True)
            specs = edit(flavor.extra_specs)
            await rows.change(tx, flavors, {"extra_specs": to_json(specs), "updated_at": now}, number=flavor.number)
            return specs

        return await self._control.write(body)

    # -- who may use it -----------------------------------------------------------------------------------------

    async def projects(self, flavor_id: str, *, caller: Caller) -> list[str]:
        """Return the projects on the flavor's access list; a public flavor has none."""

        async def body(tx: Tx) -> list[str]:
            flavor = await _visible(tx, flavor_id, caller)
            if flavor.is_public:
                raise Refused("not_found", "Access list not available for public flavors.")
            return await _ACCESS.all(tx, flavor.number)

        return await self._control.read(body)

    async def grant(self, flavor_id: str, project: str, *, caller: Caller, only_private: bool) -> list[str]:
        async def body(tx: Tx) -> list[str]:
            flavor = await _visible(tx, flavor_id, caller, lock=True)
            if only_private and flavor.is_public:
                raise Refused("exists", "Can not add access to a public flavor.")
            if not await _ACCESS.add(tx, flavor.number, project):
                text = f"Flavor access already exists for flavor {flavor_id} and project {project} combination."
                raise Refused("exists", text)
            return await _ACCESS.all(tx, flavor.number)

        return await self._control.write(body)

    async def withdraw(self, flavor_id: str, project: str, *, caller: Caller) -> list[str]:
        async def body(tx: Tx) -> list[str]:
            flavor = await _visible(tx, flavor_id, caller, lock=True)
            if not await _ACCESS.remove(tx, flavor.number, project):
                raise Refused("not_found", f"Flavor access not found for {flavor_id} / {project} combination.")
            return await _ACCESS.all(tx, flavor.number)

        return await self._control.write(body)


async def _visible(tx: Tx, flavor_id: str, caller: Caller, *, lock: bool = False) -> FlavorRecord:
    if lock:
        await rows.fetch(tx, flavors, lock=True, id=flavor_id)
    row = await look_up(tx, FLAVOR, viewer_of(caller), flavor_id, project_id=caller.project_id)
    if row is None:
        raise _unknown(flavor_id)
    return _flavor(row)


def _row(new: NewFlavor, now: float) -> dict[str, object]:
    values = msgspec.structs.asdict(new)
    return values | {"is_public": int(new.is_public), "extra_specs": "{}", "created_at": now}


def _flavor(row: Row) -> FlavorRecord:
    return FlavorRecord(
        number=row["number"],
        id=row["id"],
        name=row["name"],
        vcpus=row["vcpus"],
        memory_mb=row["memory_mb"],
        disk_gb=row["disk_gb"],
        ephemeral_gb=row["ephemeral_gb"],
        swap_mb=row["swap_mb"],
        rxtx_factor=row["rxtx_factor"],
        is_public=bool(row["is_public"]),
        granted=row["granted"] is not None,
        description=row["description"],
        extra_specs=decoded(row["extra_specs"], dict[str, str]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _unknown(flavor_id: str) -> Refused:
    return Refused("not_found", f"Flavor {flavor_id[:255]} could not be found.")


def no_such_spec(flavor_id: str, key: str) -> Refused:
    return Refused("not_found", f"Flavor {flavor_id} has no extra specs with key {key[:255]}.")
