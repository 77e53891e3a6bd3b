"""The free addresses of a subnet, stored as ranges. To take the lowest, take a certain one or give one back reads at
most two rows, with twenty ports or twenty thousand.

Callers hold the lock of the network's row, so these ranges do not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, select

from kilonova.schema.tables.network import free_ranges
from kilonova.services.network.addresses import Address, Range, from_key, key_of, moved
from kilonova.store import rows
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Tx

_OF_SUBNET = select(free_ranges.c.first, free_ranges.c.last).where(free_ranges.c.subnet_id == bindparam("subnet_id"))
_LOWEST = Sql(_OF_SUBNET.order_by(free_ranges.c.first).limit(1))
_AT_OR_BELOW = Sql(
    _OF_SUBNET.where(free_ranges.c.first <= bindparam("key")).order_by(free_ranges.c.first.desc()).limit(1)
)
_INSERT = Sql(insert_row(free_ranges))


async def fill(tx: Tx, subnet_id: str, ranges: Iterable[Range]) -> None:
    """Replace the free ranges of a subnet."""
    await rows.remove(tx, free_ranges, subnet_id=subnet_id)
    await tx.many(_INSERT, [{"subnet_id": subnet_id, "first": first, "last": last} for first, last in ranges])


async def take_lowest(tx: Tx, subnet_id: str) -> Address | None:
    """Take the lowest free address; None if there is none."""
    row = await tx.one(_LOWEST, subnet_id=subnet_id)
    if row is None:
        return None
    first, last = row["first"], row["last"]
    if first == last:
        await rows.remove(tx, free_ranges, subnet_id=subnet_id, first=first)
    else:
        await rows.change(tx, free_ranges, {"first": moved(first, 1)}, subnet_id=subnet_id, first=first)
    return from_key(first)


async def take(tx: Tx, subnet_id: str, address: Address) -> None:
    """Remove the address from the free ranges, if it is in one: requests may name one outside of the pools too."""
    key = key_of(address)
    row = await tx.one(_AT_OR_BELOW, subnet_id=subnet_id, key=key)
    if row is None or row["last"] < key:
        return
    first, last = row["first"], row["last"]
    if first == key:
        await rows.remove(tx, free_ranges, subnet_id=subnet_id, first=first)
    else:
        await rows.change(tx, free_ranges, {"last": moved(key, -1)}, subnet_id=subnet_id, first=first)
    if key != last:
        await rows.put(tx, free_ranges, subnet_id=subnet_id, first=moved(key, 1), last=last)


async def give_back(tx: Tx, subnet_id: str, address: Address) -> None:
    """Return an address to its pool. It joins its neighbours, so that ranges do not fragment."""
    key = key_of(address)
    below = await tx.one(_AT_OR_BELOW, subnet_id=subnet_id, key=key)
    if below is not None and below["last"] >= key:
        return  # it is free already
    above = await rows.fetch(tx, free_ranges, subnet_id=subnet_id, first=moved(key, 1))
    if above is not None:
        await rows.remove(tx, free_ranges, subnet_id=subnet_id, first=above["first"])
    last = key if above is None else above["last"]
    if below is not None and below["last"] == moved(key, -1):
        await rows.change(tx, free_ranges, {"last": last}, subnet_id=subnet_id, first=below["first"])
    else:
        await rows.put(tx, free_ranges, subnet_id=subnet_id, first=key, last=last)
