"""Reshape: move inventories between providers together with their allocations, in one transaction.

First every provider gets its new inventories beside the old ones, then the consumers' allocations move, then the old
inventories are removed. If one of those is still in use, the reshape is refused and nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kilonova.domain.errors import Refused
from kilonova.placement import ledger, providers
from kilonova.placement.classes import known_ids
from kilonova.placement.history import Origin
from kilonova.placement.inventories import write_offers
from kilonova.placement.offers import Offers, settle
from kilonova.placement.providers import Provider
from kilonova.placement.writing import AllocationRequest, write, write_patiently
from kilonova.world import Store, Tx

Reshaped = Mapping[str, tuple[int, Offers]]  # by provider: its generation, and its complete new inventories


async def reshape(store: Store, shapes: Reshaped, requests: Sequence[AllocationRequest], who: str) -> None:
    async def body(tx: Tx) -> None:
        ids = await known_ids(tx, {name for _, offers in shapes.values() for name in offers})
        # consumers are locked before providers, always
        await ledger.lock(tx, [request.consumer for request in requests])
        providers = await _lock(tx, shapes)
        wanted = {uuid: {ids[name]: each for name, each in shapes[uuid][1].items()} for uuid in shapes}
        for uuid, provider in providers.items():
            if wanted[uuid]:
                await write_offers(tx, provider.id, set(), wanted[uuid])
        await write(tx, requests, Origin("reshape", who=who))
        for uuid, provider in providers.items():
            await settle(tx, provider, wanted[uuid])

    await write_patiently(store, body)


async def _lock(tx: Tx, shapes: Reshaped) -> dict[str, Provider]:
    """Lock the providers in order of id, as everywhere."""
    known: dict[str, Provider] = {}
    for uuid in shapes:
        try:
            known[uuid] = await providers.find(tx, uuid)
        except Refused:
            text = f"Resource provider {uuid} in inventories not found"
            raise Refused("unknown_reshaped_provider", text) from None
    ordered = sorted(known.values(), key=lambda provider: provider.id)
    return {provider.uuid: await providers.lock(tx, provider.uuid, shapes[provider.uuid][0]) for provider in ordered}
