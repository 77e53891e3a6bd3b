"""The report of a registering host: its inventories and its traits, in one transaction."""

from __future__ import annotations

from collections.abc import Collection

from kilonova.placement import ledger
from kilonova.placement.classes import class_ids
from kilonova.placement.inventories import LOCK_PROVIDER, Report, settle_report
from kilonova.placement.refusals import NoSuchProvider
from kilonova.placement.traits import settle_reported, trait_ids
from kilonova.world import Store, Tx


async def take_report(
    store: Store, provider: str, offers: Report, traits: Collection[str], initial: Collection[str] = ()
) -> bool:
    """Return whether it changed anything: the same report again writes nothing. `initial`: classes whose allocation
    ratio an administrator may change in placement."""

    async def body(tx: Tx) -> bool:
        classes = await class_ids(tx, offers)  # names before the provider's lock: see the order in ledger.py
        names = await trait_ids(tx, traits) if traits else {}
        row = await tx.one(LOCK_PROVIDER, uuid=provider)
        if row is None:
            raise NoSuchProvider(provider)
        can_else = bool(traits) and await settle_reported(tx, row["id"], names, wanted=traits)
        offers_else = await settle_report(tx, row["id"], classes, offers, initial)
        if can_else and not offers_else:
            mark, now = await tx.mark(), await tx.now()
            await tx.run(ledger.TOUCH_PROVIDER, provider=row["id"], raised=1, mark=mark, updated_at=now)
        return can_else or offers_else

    return await store.write(body)
