"""A cell's database that is lost and has no backup: an empty one replaces it when an operator declares so (law 15).

The declaration is recorded in control before the empty database gets its badge, and control lists the new store only
when its servers are recorded there (`admit_replacement`): until then every process refuses it. So an interrupted
command can be repeated, and goes on with the same store.
"""

from __future__ import annotations

import logging

from sqlalchemy import func, select

from kilonova.domain.errors import Refused, StoreError, Unreachable
from kilonova.schema.tables.control import lost_stores, workers
from kilonova.schema.tables.stores import known_stores, this_store
from kilonova.store import rows
from kilonova.store.badges import Badge, PeerStore, StoreIdentity, look_at, stamp
from kilonova.store.cell_store import CellStore
from kilonova.store.instruments import ReadsClock
from kilonova.store.open_stores import OpenStores, open_store
from kilonova.store.roll import CONTROL, NewId
from kilonova.store.statements import Sql
from kilonova.store.upgrade import upgrade
from kilonova.store.vacancy import refuse_unless_vacant
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
_ERA = Sql(
    select(
        func.max(known_stores.c.era).label("known"), select(func.max(this_store.c.era)).scalar_subquery().label("own")
    )
)


async def latest_era(*databases: Store) -> int:
    """The highest era that these databases have, or saw at others."""

    async def body(tx: Tx) -> int:
        row = await tx.one(_ERA)
        return max(row["known"] or 0, row["own"] or 0) if row is not None else 0

    return max([await store.read(body) for store in databases])


async def refuse_while_conductors_work(stores: OpenStores) -> None:
    """Refuse while a conductor works: with the lost database open it would write into the new tables before it learns
    of the replacement."""

    async def body(tx: Tx) -> float:
        now = await tx.now()
        return max([row["lease_until"] - now for row in await rows.fetch_all(tx, workers)], default=0.0)

    seconds = await stores.control.read(body)
    if seconds > 0:
        text = f"control: a conductor is at work, or ended less than {seconds:.0f} s before its lease does"
        raise Refused("workers_at_work", f"{text}; stop every api and conductor, then repeat this")


async def replace_lost(
    stores: OpenStores, name: str, url: str, reason: str, *, new_id: NewId, clock: ReadsClock
) -> Row:
    """Record the declaration, and open the empty database at `url` instead of the lost one; return the row.

    Raise `Refused`, with nothing changed, unless the database is empty or an earlier attempt gave it a badge.
    """
    if not reason.strip():
        raise Refused("bad_request", f"cell {name}: no reason was given; use --reason TEXT")
    known = stores.roll.known.get(name)
    if known is None or name in (CONTROL, "placement"):
        cells = ", ".join(stores.cells())
        raise Refused("no_such_cell", f"cell {name[:80]}: control lists no database of that name; cells are {cells}")
    declaration = await _find_declaration(stores, known)
    await _refuse_unless_lost(stores, name, url, known, declaration, clock)
    declaration = declaration or await _record_declaration(stores, name, known, reason, new_id)
    await upgrade(url, "cell")
    store = await open_store(name, url, clock=clock, upgrading=False)
    await stores.replace_cell(name, CellStore(name, clock, store, address=url))
    badge = Badge(cloud=stores.cloud, store=declaration["replacement"], name=name, era=declaration["era"], mark=1)
    stamped = await stamp(store, badge)
    if stamped.store != badge.store:
        raise Refused(
            "cell_database", f"cell {name}: its database was taken by another process concurrently; use an empty one"
        )
    await store.write(_note_time)
    return declaration


async def _note_time(tx: Tx) -> None:
    """Note the time: earlier reports of hosts do not count. The time of the first try stays."""
    await rows.change(tx, this_store, {}, ("restored_at",), id=1, restored_at=None)


async def _refuse_unless_lost(
    stores: OpenStores, name: str, url: str, known: PeerStore, declaration: Row | None, clock: ReadsClock
) -> None:
    try:
        look = await look_at(url, name)
        if look.badge is None:
            await refuse_unless_vacant(name, url, clock)
            return
    except Unreachable as why:
        raise Refused("cell_unreachable", f"{why}; it may still be whole: start its server, then repeat") from None
    except StoreError as why:
        raise Refused("cell_database", str(why)) from None
    if look.badge.store == known.store:
        text = f"cell {name}: its database {look.where} answers and is store {known.store}, which control knows"
        raise Refused("not_lost", f"{text}; nothing is lost, and nothing was changed")
    if declaration is None or look.badge.store != declaration["replacement"]:
        raise Refused("cell_database", _not_empty(name, look, look.badge))


def _not_empty(name: str, look: StoreIdentity, badge: Badge) -> str:
    text = f"cell {name}: the database {look.where} is store {badge.store} ({badge.name}) of cloud {badge.cloud}"
    return f"{text}; give an empty one in the lost one's place; nothing was changed"


async def _find_declaration(stores: OpenStores, known: PeerStore) -> Row | None:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, lost_stores, store_id=known.store)

    return await stores.control.read(body)


async def _record_declaration(stores: OpenStores, name: str, known: PeerStore, reason: str, new_id: NewId) -> Row:
    era = await latest_era(stores.control, stores.placement) + 1
    values = {"store_id": known.store, "name": name, "replacement": new_id(), "era": era, "reason": reason.strip()}

    async def body(tx: Tx) -> Row:
        await rows.put(tx, lost_stores, ("said_at",), unless_there=True, **values, ended_at=None)
        row = await rows.fetch(tx, lost_stores, store_id=known.store)
        assert row is not None
        return row

    declaration = await stores.control.write(body)
    text = "cell declared lost: cell=%s store=%s replacement=%s reason=%r"
    logger.warning(text, name, known.store, declaration["replacement"], declaration["reason"])
    return declaration


async def admit_replacement(tx: Tx, declaration: Row) -> None:
    """Admit the new store in control, as the last step: from now on every process uses it."""
    values = {"store_id": declaration["replacement"], "era": declaration["era"], "mark": 0}
    await rows.change(tx, known_stores, values, name=declaration["name"], store_id=declaration["store_id"])
    await rows.change(tx, lost_stores, {}, ("ended_at",), store_id=declaration["store_id"], ended_at=None)
