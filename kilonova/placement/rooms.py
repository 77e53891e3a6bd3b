"""The first candidate with room: looked at before anything is written, so a refused one leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import or_, select

from kilonova.placement.groups import Standing
from kilonova.placement.ledger import CONSUMER, Rows, Slot
from kilonova.placement.outcomes import Refusal
from kilonova.placement.refusals import over_capacity, unit_fault
from kilonova.store.statements import Sql, in_list
from kilonova.store.tables.placement import inventories, resource_classes, resource_providers
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


class Candidate(msgspec.Struct, frozen=True):
    """A host's provider and what the server would hold there."""

    provider: str
    resources: dict[str, int]


@dataclass(slots=True, frozen=True)
class Shelf:
    """One resource class of a provider."""

    class_id: int
    capacity: int
    used: int
    min_unit: int
    max_unit: int
    step_size: int


@dataclass(slots=True)
class Room:
    provider: int
    uuid: str
    root: int
    accepting: bool
    shelves: dict[str, Shelf] = field(default_factory=dict)


@dataclass(slots=True)
class Choice:
    """The candidate taken (None: none fits), what it would hold, and why those before it were not."""

    room: Room | None = None
    rows: Rows = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


async def choose(
    tx: Tx, candidates: Sequence[Candidate], standing: Standing, *, own: Rows, lock: Iterable[int] | None = None
) -> Choice:
    """Try the candidates in order. `own` is given back by this claim, so it counts as free where it lies.

    With `lock`, all candidates and those providers are locked first, in the ledger's order: nobody else can take the
    room between this look and the write.
    """
    uuids = [candidate.provider for candidate in candidates]
    if lock is not None:
        await tx.all(LOCK_PROVIDERS, uuids=uuids, ids=sorted(lock))
    rooms = await read_rooms(tx, uuids)
    credit = {(provider, class_): amount for (provider, class_, _), amount in own.items()}
    choice = Choice()
    for candidate in candidates:
        room = rooms.get(candidate.provider)
        refusal = _refusal(candidate, room, standing, credit)
        if refusal is None and room is not None:
            choice.room, choice.rows = room, _rows(candidate, room)
            break
        if refusal is not None:
            choice.refused.append(refusal)
    return choice


async def read_rooms(tx: Tx, uuids: Sequence[str]) -> dict[str, Room]:
    rooms: dict[str, Room] = {}
    for row in await tx.all(READ_ROOMS, uuids=uuids):
        room = rooms.get(row["uuid"])
        if room is None:
            room = rooms[row["uuid"]] = Room(row["id"], row["uuid"], row["root_id"], bool(row["accepting"]))
        if row["name"] is not None:
            units = (row["min_unit"], row["max_unit"], row["step_size"])
            room.shelves[row["name"]] = Shelf(row["class_id"], row["capacity"], row["used"], *units)
    return rooms


def _rows(candidate: Candidate, room: Room) -> Rows:
    needs = _needs(candidate)
    return {(room.provider, room.shelves[name].class_id, CONSUMER): amount for name, amount in needs.items()}


def _needs(candidate: Candidate) -> dict[str, int]:
    """A flavor without a disk asks for 0 GB: that is no row at all."""
    return {name: amount for name, amount in candidate.resources.items() if amount}


def _refusal(candidate: Candidate, room: Room | None, standing: Standing, credit: Mapping[Slot, int]) -> Refusal | None:
    uuid = candidate.provider
    if room is None:
        return Refusal(uuid, "no_such_provider", f"there is no provider {uuid}")
    against = standing.refusal(room.root)
    if against:
        return Refusal(uuid, "group", f"provider {uuid}: {against}")
    raises = False
    for name, amount in sorted(_needs(candidate).items()):
        shelf = room.shelves.get(name)
        if shelf is None:
            return Refusal(uuid, "no_inventory", f"provider {uuid} has no {name}", name, amount)
        more = amount - credit.get((room.provider, shelf.class_id), 0)
        if more > 0:
            raises = True
            refusal = _no_room(uuid, name, amount, more, shelf)
            if refusal:
                return refusal
    if raises and not room.accepting:
        return Refusal(uuid, "not_accepting", f"provider {uuid} accepts no new claims")
    return None


def _no_room(uuid: str, name: str, amount: int, more: int, shelf: Shelf) -> Refusal | None:
    numbers = (name, amount, shelf.used, shelf.capacity)
    if shelf.used + more > shelf.capacity:
        return Refusal(uuid, "over_capacity", over_capacity(uuid, name, more, shelf.used, shelf.capacity), *numbers)
    fault = unit_fault(amount, shelf.min_unit, shelf.max_unit, shelf.step_size)
    if fault:
        return Refusal(uuid, "wrong_unit", f"provider {uuid}: {name} {fault}", *numbers)
    return None
