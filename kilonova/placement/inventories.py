"""Inventories of hosts, and whether the hosts accept more.

A host's own report is never refused: a host that lost memory has lost it, whatever is claimed there. `used` is computed
again from the allocations under the provider's lock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from sqlalchemy import BigInteger, bindparam, delete, func, select, update
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.domain.errors import Conflict
from kilonova.placement import ledger
from kilonova.placement.classes import class_ids
from kilonova.placement.refusals import NoSuchProvider
from kilonova.schema.tables.placement import allocations, inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

_OFFER = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio", "capacity")
_COMPUTED = ("id", "root_id", "registration")

INSERT_PROVIDER = Sql(
    insert_unless_there(resource_providers)
    .values({column.name: bindparam(column.name) for column in resource_providers.c if column.name not in _COMPUTED})
    .on_conflict_do_nothing()
)
READ_PROVIDER = Sql(
    select(resource_providers.c.id, resource_providers.c.name, resource_providers.c.root_id).where(
        resource_providers.c.uuid == bindparam("uuid")
    )
)
MAKE_ROOT = Sql(
    update(resource_providers)
    .where(resource_providers.c.uuid == bindparam("at_uuid"), resource_providers.c.root_id.is_(None))
    .values(root_id=resource_providers.c.id)
)
LOCK_PROVIDER = Sql(
    select(resource_providers.c.id).where(resource_providers.c.uuid == bindparam("uuid")).with_for_update()
)
SET_ACCEPTING = Sql(
    update(resource_providers)
    .where(resource_providers.c.uuid == bindparam("at_uuid"), resource_providers.c.accepting != bindparam("accepting"))
    .values(
        accepting=bindparam("accepting"),
        generation=resource_providers.c.generation + 1,
        mark=bindparam("mark"),
        updated_at=bindparam("updated_at"),
    )
)
# For one registration of the host: a newer registration's report stays. The same registration may report again.
SET_BY_REGISTRATION = Sql(
    update(resource_providers)
    .where(
        resource_providers.c.uuid == bindparam("at_uuid"),
        func.coalesce(resource_providers.c.registration, 0) <= bindparam("registration"),
    )
    .values(
        accepting=bindparam("accepting"),
        registration=bindparam("registration"),
        generation=resource_providers.c.generation
        + func.abs(resource_providers.c.accepting - bindparam("accepting")),  # where it changes
        mark=bindparam("mark"),
        updated_at=bindparam("updated_at"),
    )
)
READ_ACCEPTING = Sql(select(resource_providers.c.accepting).where(resource_providers.c.uuid == bindparam("uuid")))
READ_CLOSED = Sql(select(resource_providers.c.uuid).where(resource_providers.c.accepting == 0))
READ_REGISTRATION = Sql(select(resource_providers.c.registration).where(resource_providers.c.name == bindparam("name")))
_HELD = (
    select(func.coalesce(func.sum(allocations.c.used), 0))
    .where(allocations.c.provider_id == inventories.c.provider_id, allocations.c.class_id == inventories.c.class_id)
    .correlate(inventories)
    .scalar_subquery()
)
READ_OFFERS = Sql(
    select(inventories, resource_classes.c.name, sql_cast(_HELD, BigInteger).label("held"))
    .join(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(inventories.c.provider_id == bindparam("provider"))
)
PUT_OFFER = Sql(
    insert_unless_there(inventories)
    .values({column.name: bindparam(column.name) for column in inventories.c} | {"used": 0})
    .on_conflict_do_update(
        index_elements=["provider_id", "class_id"], set_={name: bindparam(name) for name in (*_OFFER, "mark")}
    )
)
DELETE_OFFER = Sql(
    delete(inventories).where(
        inventories.c.provider_id == bindparam("provider"), inventories.c.class_id == bindparam("class_")
    )
)

Offer = dict[str, int | float]
Report = Mapping[str, tuple[int, int, float]]  # class: total, reserved, allocation_ratio


MOST_CAPACITY = 2**62  # a ratio may be huge, a column is not


def capacity(total: int, reserved: int, allocation_ratio: float) -> int:
    return math.floor(min(max((total - reserved) * allocation_ratio, 0), MOST_CAPACITY))


async def ensure_provider(store: Store, uuid: str, name: str, *, accepting: bool = True) -> None:
    """Create the root provider of a host. This may be called at any time; an existing provider is left as it is.

    Raise Conflict when the name belongs to another provider, or this one has another name.
    """

    async def body(tx: Tx) -> None:
        row = await tx.one(READ_PROVIDER, uuid=uuid) or await _make_provider(tx, uuid, name, accepting)
        if row is None or row["name"] != name:
            taken = f"provider {uuid} is called {row['name']}" if row else f"the name {name} is taken"
            raise Conflict(f"cannot make provider {uuid} with the name {name}: {taken}")

    await store.write(body)


async def _make_provider(tx: Tx, uuid: str, name: str, accepting: bool) -> Row | None:
    now = await tx.now()
    await tx.run(
        INSERT_PROVIDER,
        uuid=uuid,
        name=name,
        generation=0,
        parent_id=None,
        accepting=int(accepting),
        mark=await tx.mark(),
        created_at=now,
        updated_at=now,
    )
    await tx.run(MAKE_ROOT, at_uuid=uuid)
    return await tx.one(READ_PROVIDER, uuid=uuid)


async def set_accepting(store: Store, provider: str, accepting: bool) -> bool:
    """Open or close a provider to claims. Once False is committed, no claim that has not yet committed gets in: a claim
    holds the provider's row.

    Return True if anything changed. Closing a provider that does not exist changes nothing: the record of a host is
    older than its provider, which is created closed, and an operator may close a host that died in between.
    """

    async def body(tx: Tx) -> bool:
        mark, now = await tx.mark(), await tx.now()
        changed = await tx.run(SET_ACCEPTING, at_uuid=provider, accepting=int(accepting), mark=mark, updated_at=now)
        if accepting and not changed and await tx.one(READ_PROVIDER, uuid=provider) is None:
            raise NoSuchProvider(provider)
        return changed > 0

    return await store.write(body)


async def is_accepting(store: Store, provider: str) -> bool:
    async def body(tx: Tx) -> bool:
        row = await tx.one(READ_ACCEPTING, uuid=provider)
        return row is not None and bool(row["accepting"])

    return await store.read(body, few=True)


async def closed_providers(store: Store) -> frozenset[str]:
    """The uuids of those that accept no claims."""

    async def body(tx: Tx) -> frozenset[str]:
        return frozenset([row["uuid"] for row in await tx.all(READ_CLOSED)])

    return await store.read(body)


async def set_by_registration(store: Store, provider: str, accepting: bool, registration: int) -> bool:
    """Do as `set_accepting`, by a registration of the host. Return False and change nothing if a newer one came first:
    a conductor that hung in between must not close a host that is open by now, nor open one that is closed."""

    async def body(tx: Tx) -> bool:
        values = {"accepting": int(accepting), "registration": registration}
        mark, now = await tx.mark(), await tx.now()
        changed = await tx.run(SET_BY_REGISTRATION, at_uuid=provider, **values, mark=mark, updated_at=now)
        if not changed and await tx.one(READ_PROVIDER, uuid=provider) is None:
            raise NoSuchProvider(provider)
        return changed > 0

    return await store.write(body)


async def newest_registration(store: Store, host: str) -> int:
    """The number of the newest registration that placement has seen of a host."""

    async def body(tx: Tx) -> int:
        row = await tx.one(READ_REGISTRATION, name=host)
        return int(row["registration"] or 0) if row is not None else 0

    return await store.read(body, few=True)


async def set_inventory(store: Store, provider: str, report: Report) -> bool:
    """Set all inventories by the host's report; a class it no longer names is removed, or has no capacity while in use.

    Return True if anything changed: the same report again writes nothing.
    """

    async def body(tx: Tx) -> bool:
        ids = await class_ids(tx, report)  # before the provider's lock: see the order in ledger.py
        row = await tx.one(LOCK_PROVIDER, uuid=provider)
        if row is None:
            raise NoSuchProvider(provider)
        return await settle_report(tx, row["id"], ids, report)

    return await store.write(body)


async def settle_report(
    tx: Tx, provider: int, ids: Mapping[str, int], report: Report, initial: Collection[str] = ()
) -> bool:
    """Write the report if it differs. The caller holds the provider's row. The allocation ratio of an `initial` class
    keeps its current value."""
    offers = {offer["class_id"]: offer for offer in await tx.all(READ_OFFERS, provider=provider)}
    ratios = {name: offers[ids[name]]["allocation_ratio"] for name in initial if name in report and ids[name] in offers}
    wanted = {
        ids[name]: _offer(total, reserved, ratios.get(name, ratio)) for name, (total, reserved, ratio) in report.items()
    }
    wanted |= {class_: _offer(0, 0, 1.0) for class_, offer in offers.items() if offer["held"] and class_ not in wanted}
    if wanted.keys() == offers.keys() and all(_is_as(offers[class_], offer) for class_, offer in wanted.items()):
        return False
    await write_offers(tx, provider, offers.keys() - wanted.keys(), wanted)
    return True


def _offer(total: int, reserved: int, allocation_ratio: float) -> Offer:
    return {
        "total": total,
        "reserved": reserved,
        "min_unit": 1,
        "max_unit": max(total, 1),  # overcommit is for many small ones; one server cannot be larger than its host
        "step_size": 1,
        "allocation_ratio": allocation_ratio,
        "capacity": capacity(total, reserved, allocation_ratio),
    }


def _is_as(current: Row, wanted: Offer) -> bool:
    return current["used"] == current["held"] and all(current[name] == value for name, value in wanted.items())


async def write_offers(tx: Tx, provider: int, gone: set[int], wanted: Mapping[int, Offer]) -> None:
    """Write the offers. The caller holds the provider's row, and has checked that nothing is allocated of the removed
    classes."""
    mark, now = await tx.mark(), await tx.now()
    await tx.run(ledger.TOUCH_PROVIDER, provider=provider, raised=1, mark=mark, updated_at=now)
    if gone:
        await tx.many(DELETE_OFFER, [{"provider": provider, "class_": class_} for class_ in sorted(gone)])
    slots = [{"provider_id": provider, "class_id": class_, "mark": mark} for class_ in sorted(wanted)]
    if slots:
        await tx.many(PUT_OFFER, [{**slot, **wanted[slot["class_id"]]} for slot in slots])
    await ledger.recount(tx, provider)
