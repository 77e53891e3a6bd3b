"""The first candidate with room: looked at before anything is written, so a refused one leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import or_, select

from kilonova.placement.groups import GroupPlacement
from kilonova.placement.ledger import CONSUMER, Rows, Slot
from kilonova.placement.outcomes import Refusal
from kilonova.placement.refusals import over_capacity, unit_fault
from kilonova.schema.tables.placement import inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

READ_ROOMS = Sql(
    select(
        resource_providers.c.id,
        resource_providers.c.uuid,
        resource_providers.c.root_id,
        resource_providers.c.accepting,
        resource_classes.c.name,
        inventories.c.class_id,
        inventories.c.capacity,
        inventories.c.used,
        inventories.c.min_unit,
        inventories.c.max_unit,
        inventories.c.step_size,
    )
    .select_from(resource_providers)
    .outerjoin(inventories, inventories.c.provider_id == resource_providers.c.id)
    .outerjoin(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(in_list(resource_providers.c.uuid, "uuids"))
)
LOCK_PROVIDERS = Sql(
    select(resource_providers.c.id)
    .where(or_(in_list(resource_providers.c.uuid, "uuids"), in_list(resource_providers.c.id, "ids")))
    .order_by(resource_providers.c.id)
    .with_for_update()
)


class HostCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host, by its root provider, what the server would hold there, and what of other providers: those of its tree,
    or that share with it."""

    provider: str
    resources: dict[str, int]
    others: dict[str, dict[str, int]] = {}  # by provider

    def parts(self) -> dict[str, dict[str, int]]:
        """By provider, the host's own first. A flavor without a disk asks for 0 GB: that is no row at all."""
        both = {self.provider: self.resources, **self.others}
        return {uuid: {name: n for name, n in resources.items() if n} for uuid, resources in both.items()}


@dataclass(slots=True, frozen=True)
class ClassCapacity:
    """One resource class of a provider."""

    class_id: int
    capacity: int
    used: int
    min_unit: int
    max_unit: int
    step_size: int


@dataclass(slots=True)
class ProviderCapacity:
    provider: int
    uuid: str
    root: int
    accepting: bool
    shelves: dict[str, ClassCapacity] = field(default_factory=dict)


@dataclass(slots=True)
class CandidateChoice:
    """The candidate taken (None: none fits), what it would hold, and why those before it were not."""

    room: ProviderCapacity | None = None
    rows: Rows = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


async def choose(
    tx: Tx,
    candidates: Sequence[HostCandidate],
    standing: GroupPlacement,
    *,
    own: Rows,
    lock: Iterable[int] | None = None,
) -> CandidateChoice:
    """Try the candidates in order. `own` is given back by this claim, so it counts as free where it lies.

    With `lock`, all candidates and those providers are locked first, in the ledger's order: nobody else can take the
    room between this look and the write.
    """
    uuids = list(dict.fromkeys(uuid for candidate in candidates for uuid in candidate.parts()))
    if lock is not None:
        await tx.all(LOCK_PROVIDERS, uuids=uuids, ids=sorted(lock))
    rooms = await read_rooms(tx, uuids)
    return first_fitting(candidates, rooms, standing, own)


def first_fitting(
    candidates: Sequence[HostCandidate],
    rooms: Mapping[str, ProviderCapacity],
    standing: GroupPlacement,
    own: Rows | None = None,
) -> CandidateChoice:
    credit = {(provider, class_): amount for (provider, class_, _), amount in (own or {}).items()}
    choice = CandidateChoice()
    for candidate in candidates:
        refusal = _refusal(candidate, rooms, standing, credit)
        if refusal is None:
            choice.room, choice.rows = rooms[candidate.provider], _rows(candidate, rooms)
            break
        choice.refused.append(refusal)
    return choice


async def read_rooms(tx: Tx, uuids: Sequence[str]) -> dict[str, ProviderCapacity]:
    rooms: dict[str, ProviderCapacity] = {}
    for row in await tx.all(READ_ROOMS, uuids=uuids):
        room = rooms.get(row["uuid"])
        if room is None:
            room = rooms[row["uuid"]] = ProviderCapacity(row["id"], row["uuid"], row["root_id"], bool(row["accepting"]))
        if row["name"] is not None:
            units = (row["min_unit"], row["max_unit"], row["step_size"])
            room.shelves[row["name"]] = ClassCapacity(row["class_id"], row["capacity"], row["used"], *units)
    return rooms


def _rows(candidate: HostCandidate, rooms: Mapping[str, ProviderCapacity]) -> Rows:
    return {
        (rooms[uuid].provider, rooms[uuid].shelves[name].class_id, CONSUMER): amount
        for uuid, resources in candidate.parts().items()
        for name, amount in resources.items()
    }


def _refusal(
    candidate: HostCandidate,
    rooms: Mapping[str, ProviderCapacity],
    standing: GroupPlacement,
    credit: Mapping[Slot, int],
) -> Refusal | None:
    parts = candidate.parts()
    for uuid in parts:
        if uuid not in rooms:
            return Refusal(uuid, "no_such_provider", f"there is no provider {uuid}")
    host = rooms[candidate.provider]
    against = standing.refusal(host.root)
    if against:
        return Refusal(host.uuid, "group", f"provider {host.uuid}: {against}")
    raised = []
    for uuid, resources in parts.items():
        for name, amount in sorted(resources.items()):
            more, refusal = _look(rooms[uuid], name, amount, credit)
            if refusal is not None:
                return refusal
            raised += [host, rooms[uuid]] if more > 0 else []
    return next((_closed(room) for room in raised if not room.accepting), None)


def _look(room: ProviderCapacity, name: str, amount: int, credit: Mapping[Slot, int]) -> tuple[int, Refusal | None]:
    """By how much its use would rise, and why it cannot."""
    shelf = room.shelves.get(name)
    if shelf is None:
        return amount, Refusal(room.uuid, "no_inventory", f"provider {room.uuid} has no {name}", name, amount)
    more = amount - credit.get((room.provider, shelf.class_id), 0)
    return more, _no_room(room.uuid, name, amount, more, shelf) if more > 0 else None


def _closed(room: ProviderCapacity) -> Refusal:
    return Refusal(room.uuid, "not_accepting", f"provider {room.uuid} accepts no new claims")


def _no_room(uuid: str, name: str, amount: int, more: int, shelf: ClassCapacity) -> Refusal | None:
    numbers = (name, amount, shelf.used, shelf.capacity)
    if shelf.used + more > shelf.capacity:
        return Refusal(uuid, "over_capacity", over_capacity(uuid, name, more, shelf.used, shelf.capacity), *numbers)
    fault = unit_fault(amount, shelf.min_unit, shelf.max_unit, shelf.step_size)
    if fault:
        return Refusal(uuid, "wrong_unit", f"provider {uuid}: {name} {fault}", *numbers)
    return None
