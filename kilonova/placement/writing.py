"""Allocations as clients of the API write them: what consumers shall hold, all or nothing, in one transaction.

A write replaces what the consumer itself holds; what is kept for an evacuation stays, for it is not the client's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kilonova.domain.errors import Refused
from kilonova.placement import consumers, ledger
from kilonova.placement.capacity import ProviderCapacity, read_capacities
from kilonova.placement.history import Origin
from kilonova.placement.ledger import CONSUMER, ConsumerChange, Holding, Rows
from kilonova.placement.names import unknown_classes
from kilonova.placement.refusals import ClaimRefused, LostRace, NoSuchProvider, WrongUnit, unit_fault
from kilonova.world import Body, Store, Tx

TRIES = 10  # as Placement's allocation_conflict_retry_count

ANY = -1  # the generation of clients that do not compare it (before 1.28)
Wanted = Mapping[str, Mapping[str, int]]  # provider: class: amount


class Wish(msgspec.Struct, frozen=True):
    """The requested allocations of one consumer."""

    consumer: str
    wanted: Wanted
    project: str
    user: str
    generation: int | None  # None: there must be no such consumer yet
    type: str | None = None  # None: as it is


async def replace(store: Store, wishes: Sequence[Wish], who: str) -> None:
    async def body(tx: Tx) -> None:
        await write(tx, wishes, Origin("allocate", who=who))

    await write_patiently(store, body)


async def write_patiently(store: Store, body: Body[None]) -> None:
    """Again when somebody else was faster: the next look sees what they did."""
    for left in reversed(range(TRIES)):
        try:
            await store.write(body)
            return
        except (LostRace, NoSuchProvider):
            if not left:
                raise


async def drop(store: Store, consumer: str, who: str) -> bool:
    """False: it holds nothing."""

    async def body(tx: Tx) -> bool:
        holdings = await ledger.lock(tx, [consumer])
        held = holdings[consumer]
        own = held.held_by(CONSUMER)
        if not own:
            return False
        kept = {key: amount for key, amount in held.rows.items() if key not in own}
        change = ConsumerChange(consumer, kept, held.project, held.user, held.type_id)
        await ledger.apply(tx, holdings, [change], raising=(), origin=Origin("deallocate", who=who))
        return True

    return await store.write(body)


async def write(tx: Tx, wishes: Sequence[Wish], origin: Origin) -> None:
    """Write allocations in the caller's transaction. As in Placement, the generation of the providers that a consumer
    is given is raised, or of those that it had if it is given nothing; those that it merely leaves are only marked."""
    holdings = await ledger.lock(tx, [wish.consumer for wish in wishes])
    for wish in wishes:
        _check_generation(wish, holdings[wish.consumer])
    capacities = await read_capacities(tx, sorted({provider for wish in wishes for provider in wish.wanted}))
    types = await consumers.type_ids(tx, [wish.type for wish in wishes if wish.type is not None])
    changes, raising = [], set[int]()
    for wish in wishes:
        held = holdings[wish.consumer]
        own = await _rows(tx, wish, capacities)
        raising |= {provider for provider, _, _ in own or held.held_by(CONSUMER)}
        rows = own | {key: amount for key, amount in held.rows.items() if key[2] != CONSUMER}
        type_id = held.type_id if wish.type is None else types[wish.type]
        changes.append(ConsumerChange(wish.consumer, rows, wish.project, wish.user, type_id))
    await ledger.apply(tx, holdings, changes, raising=raising, origin=origin)


def _check_generation(wish: Wish, held: Holding) -> None:
    expected = held.generation if held.exists else None
    if wish.generation not in (ANY, expected):
        shown = "null" if expected is None else expected
        text = f"consumer generation conflict - expected {shown} but got {wish.generation}"
        raise Refused("generation_conflict", text)


async def _rows(tx: Tx, wish: Wish, capacities: Mapping[str, ProviderCapacity]) -> Rows:
    rows: Rows = {}
    for uuid, amounts in wish.wanted.items():
        capacity = capacities.get(uuid)
        if capacity is None:
            text = f"Allocation for resource provider '{uuid}' that does not exist."
            raise Refused("unknown_provider", text)
        for name, amount in amounts.items():
            of_class = capacity.classes.get(name)
            if of_class is None:
                raise await _not_offered(tx, uuid, name)
            fault = unit_fault(amount, of_class.min_unit, of_class.max_unit, of_class.step_size)
            if fault:
                raise WrongUnit(uuid, name, amount, fault)
            rows[capacity.provider, of_class.class_id, CONSUMER] = amount
    return rows


async def _not_offered(tx: Tx, uuid: str, name: str) -> Refused:
    if await unknown_classes(tx, [name]):
        return Refused("unknown_class", f"Unable to allocate inventory for consumer: No such resource class {name}.")
    text = f"Inventory for '{name}' on resource provider '{uuid}' invalid: it has none"
    return ClaimRefused("no_inventory", text)
