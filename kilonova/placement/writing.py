"""Allocations as clients of the API write them: the complete allocations of consumers, all or nothing, in one
transaction.

A write replaces the consumer's own allocations; those that an evacuation holds stay, because they are not the client's.
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


class AllocationRequest(msgspec.Struct, frozen=True):
    """The requested allocations of one consumer."""

    consumer: str
    wanted: Wanted
    project: str
    user: str
    generation: int | None  # None: there must be no such consumer yet
    type: str | None = None  # None: as it is


async def replace(store: Store, requests: Sequence[AllocationRequest], who: str) -> None:
    async def body(tx: Tx) -> None:
        await write(tx, requests, Origin("allocate", who=who))

    await write_patiently(store, body)


async def write_patiently(store: Store, body: Body[None]) -> None:
    """Retry after a concurrent change: the next attempt reads its result."""
    for left in reversed(range(TRIES)):
        try:
            await store.write(body)
            return
        except (LostRace, NoSuchProvider):
            if not left:
                raise


async def drop(store: Store, consumer: str, who: str) -> bool:
    """Remove the consumer's own allocations. Return False if it has none."""

    async def body(tx: Tx) -> bool:
        holdings = await ledger.lock(tx, [consumer])
        held = holdings[consumer]
        own = held.held_by(CONSUMER)
        if not own:
            return False
        others = {key: amount for key, amount in held.rows.items() if key not in own}
        change = ConsumerChange(consumer, others, held.project, held.user, held.type_id)
        await ledger.apply(tx, holdings, [change], raising=(), origin=Origin("deallocate", who=who))
        return True

    return await store.write(body)


async def write(tx: Tx, requests: Sequence[AllocationRequest], origin: Origin) -> None:
    """Write allocations in the caller's transaction.

    As in Placement, the generation rises for the providers that give to a consumer, or, if it is given nothing, for
    those that gave before; providers that it merely leaves are only marked.
    """
    holdings = await ledger.lock(tx, [request.consumer for request in requests])
    for request in requests:
        _check_generation(request, holdings[request.consumer])
    capacities = await read_capacities(tx, sorted({provider for request in requests for provider in request.wanted}))
    types = await consumers.type_ids(tx, [request.type for request in requests if request.type is not None])
    changes, raising = [], set[int]()
    for request in requests:
        held = holdings[request.consumer]
        own = await _rows(tx, request, capacities)
        raising |= {provider for provider, _, _ in own or held.held_by(CONSUMER)}
        rows = own | {key: amount for key, amount in held.rows.items() if key[2] != CONSUMER}
        type_id = held.type_id if request.type is None else types[request.type]
        changes.append(ConsumerChange(request.consumer, rows, request.project, request.user, type_id))
    await ledger.apply(tx, holdings, changes, raising=raising, origin=origin)


def _check_generation(request: AllocationRequest, held: Holding) -> None:
    expected = held.generation if held.exists else None
    if request.generation not in (ANY, expected):
        expected_text = "null" if expected is None else expected
        text = f"consumer generation conflict - expected {expected_text} but got {request.generation}"
        raise Refused("generation_conflict", text)


async def _rows(tx: Tx, request: AllocationRequest, capacities: Mapping[str, ProviderCapacity]) -> Rows:
    rows: Rows = {}
    for uuid, amounts in request.wanted.items():
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
