"""Inventories as clients of the API write them, each under the provider's lock: one class or all, by generation.

Unlike a host's own report (inventories.py) such a write is refused if it would remove resources in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.placement import providers
from kilonova.placement.classes import class_ids, known_ids
from kilonova.placement.inventories import READ_OFFERS, Offer, capacity, write_offers
from kilonova.placement.names import in_order, unknown_classes
from kilonova.placement.providers import Provider
from kilonova.schema.tables.placement import inventories, resource_classes
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

DEFAULTS: Offer = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 2147483647,
    "step_size": 1,
    "allocation_ratio": 1.0,
}
FIELDS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
Offers = Mapping[str, Offer]  # by class
INVENTORIES = Sql(
    select(inventories, resource_classes.c.name)
    .join(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(inventories.c.provider_id == bindparam("provider"))
    .order_by(resource_classes.c.id)
)


def offer(given: Mapping[str, int | float]) -> Offer:
    """Return the inventory with its defaults and its capacity."""
    numbers: Offer = {name: int(given.get(name, DEFAULTS.get(name, 0))) for name in FIELDS[:-1]}  # JSON's 8.0 is 8
    ratio = float(given.get("allocation_ratio", 1.0))
    return numbers | {
        "allocation_ratio": ratio,
        "capacity": capacity(int(numbers["total"]), int(numbers["reserved"]), ratio),
    }


async def read(store: Store, uuid: str) -> tuple[Provider, Sequence[Row]]:
    async def body(tx: Tx) -> tuple[Provider, Sequence[Row]]:
        provider = await providers.find(tx, uuid)
        return provider, await tx.all(INVENTORIES, provider=provider.id)

    return await store.read(body, few=True)


async def replace(store: Store, uuid: str, generation: int | None, offers: Offers) -> int:
    """Replace the provider's inventories. Return its new generation."""

    async def body(tx: Tx) -> int:
        await providers.find(tx, uuid)  # an unknown provider is reported before an unknown class
        ids = await _class_ids(tx, offers)
        provider = await providers.lock(tx, uuid, generation)
        await settle(tx, provider, {ids[name]: each for name, each in offers.items()})
        return provider.generation + 1

    return await store.write(body)


async def settle(tx: Tx, provider: Provider, wanted: Mapping[int, Offer]) -> None:
    """Replace the inventories by these, by class id. Refuse to remove one in use. The caller holds the provider's
    row."""
    offers = await _offers(tx, provider)
    gone = offers.keys() - wanted.keys()
    in_use = [offers[class_]["name"] for class_ in gone if offers[class_]["held"]]
    if in_use:
        raise Refused("inventory_in_use", _in_use(provider, in_use))
    await write_offers(tx, provider.id, gone, wanted)


async def add(store: Store, uuid: str, name: str, wanted: Offer) -> int:
    async def body(tx: Tx) -> int:
        await providers.find(tx, uuid)
        ids = await _class_ids(tx, [name])
        provider = await providers.lock(tx, uuid)
        if ids[name] in await _offers(tx, provider):
            raise Refused("inventory_exists", f"Update conflict: {uuid} already has an inventory of {name}")
        await write_offers(tx, provider.id, set(), {ids[name]: wanted})
        return provider.generation + 1

    return await store.write(body)


async def change(store: Store, uuid: str, generation: int, name: str, wanted: Offer) -> int:
    async def body(tx: Tx) -> int:
        await providers.find(tx, uuid)
        ids = await _class_in_address(tx, name)
        provider = await providers.lock(tx, uuid, generation)
        if ids[name] not in await _offers(tx, provider):
            text = f"No inventory record with resource class {name} for resource provider {uuid}"
            raise Refused("missing_inventory", text)
        await write_offers(tx, provider.id, set(), {ids[name]: wanted})
        return provider.generation + 1

    return await store.write(body)


async def remove(store: Store, uuid: str, name: str) -> None:
    async def body(tx: Tx) -> None:
        await providers.find(tx, uuid)
        ids = await _class_in_address(tx, name)
        provider = await providers.lock(tx, uuid)
        inventory = (await _offers(tx, provider)).get(ids[name])
        if inventory is None:
            raise Refused("no_such_inventory", f"No inventory of class {name} found for delete")
        if inventory["held"]:
            text = f"Unable to delete inventory of class {name}: {_in_use(provider, [name])}"
            raise Refused("one_inventory_in_use", text)
        await write_offers(tx, provider.id, {ids[name]}, {})

    await store.write(body)


async def _class_ids(tx: Tx, names: Iterable[str]) -> dict[str, int]:
    try:
        return await known_ids(tx, names)
    except Refused as why:
        raise Refused(why.code, f"Unknown resource class in inventory: {why.message}") from None


async def _class_in_address(tx: Tx, name: str) -> dict[str, int]:
    if await unknown_classes(tx, [name]):
        raise Refused("no_such_inventory", f"No inventory of class {name[:300]} found: no such resource class")
    return await class_ids(tx, [name])


async def _offers(tx: Tx, provider: Provider) -> dict[int, Row]:
    return {row["class_id"]: row for row in await tx.all(READ_OFFERS, provider=provider.id)}


def _in_use(provider: Provider, names: Sequence[str]) -> str:
    return f"Inventory for '{', '.join(in_order(names))}' on resource provider '{provider.uuid}' in use."
