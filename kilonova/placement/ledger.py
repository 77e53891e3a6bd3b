"""The ledger: the only module that writes `inventories.used`.

`lock` the consumers, decide, then `apply` what each of them shall hold. `apply` works with *net* amounts per provider
and class: allocations that only change their consumer cost nothing, so a move, a revert or an undo is never refused for
capacity, even on a host whose inventory has shrunk below its use. Only a net increase is checked, in the UPDATE itself.

Locks are taken in one order everywhere, so there are no deadlocks:
fence → group → consumers (by uuid) → providers (by id) → inventories (by provider, class).
A transaction that changes allocations holds the row of every provider it touches; `recount` relies on that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import BigInteger, bindparam, delete, func, select, update
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.placement.history import UNTOLD, Entry, Origin, record
from kilonova.placement.refusals import LostRace, NoSuchProvider, NotAccepting, OverCapacity, WrongUnit, unit_fault
from kilonova.schema.tables.placement import allocations, consumers, inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Row, Tx

Key = tuple[int, int, str]  # provider, class, holder
Rows = dict[Key, int]
Slot = tuple[int, int]  # provider, class

CONSUMER = ""  # holder of the consumer's own allocations; anything else is an evacuation's id

_N = bindparam("n", type_=BigInteger)
_SLOT = (inventories.c.provider_id == bindparam("provider"), inventories.c.class_id == bindparam("class_"))
_CHANGE_USED = update(inventories).where(*_SLOT).values(used=inventories.c.used + _N, mark=bindparam("mark"))

LOCK_CONSUMERS = Sql(
    select(consumers).where(in_list(consumers.c.uuid, "uuids")).order_by(consumers.c.uuid).with_for_update()
)
READ_ROWS = Sql(
    select(
        allocations.c.consumer,
        allocations.c.provider_id,
        allocations.c.class_id,
        allocations.c.holder,
        allocations.c.used,
    ).where(in_list(allocations.c.consumer, "uuids"))
)
INSERT_CONSUMER = Sql(
    insert_unless_there(consumers)
    .values({column.name: bindparam(column.name) for column in consumers.c})
    .on_conflict_do_nothing()
)
UPDATE_CONSUMER = Sql(
    update(consumers)
    .where(consumers.c.uuid == bindparam("consumer"))
    .values(
        project_id=bindparam("project_id"),
        user_id=bindparam("user_id"),
        type_id=bindparam("type_id"),
        generation=consumers.c.generation + 1,
        updated_at=bindparam("updated_at"),
    )
)
DELETE_CONSUMERS = Sql(delete(consumers).where(in_list(consumers.c.uuid, "uuids")))
TOUCH_PROVIDER = Sql(
    update(resource_providers)
    .where(resource_providers.c.id == bindparam("provider"))
    .values(
        generation=resource_providers.c.generation + bindparam("raised", type_=BigInteger),  # 1, or 0: only marked
        mark=bindparam("mark"),
        updated_at=bindparam("updated_at"),
    )
    .returning(resource_providers.c.id, resource_providers.c.uuid, resource_providers.c.accepting)
)
RAISE_USED = Sql(
    _CHANGE_USED.where(inventories.c.used + _N <= inventories.c.capacity).returning(
        inventories.c.provider_id,
        inventories.c.class_id,
        inventories.c.min_unit,
        inventories.c.max_unit,
        inventories.c.step_size,
    )
)
LOWER_USED = Sql(_CHANGE_USED)
READ_SLOT = Sql(
    select(resource_providers.c.uuid, resource_classes.c.name, inventories.c.used, inventories.c.capacity)
    .select_from(resource_providers)
    .join(resource_classes, resource_classes.c.id == bindparam("class_"))
    .outerjoin(
        inventories,
        (inventories.c.provider_id == resource_providers.c.id) & (inventories.c.class_id == resource_classes.c.id),
    )
    .where(resource_providers.c.id == bindparam("provider"))
)
_ROW = (
    allocations.c.consumer == bindparam("at_consumer"),
    allocations.c.provider_id == bindparam("at_provider"),
    allocations.c.class_id == bindparam("at_class"),
    allocations.c.holder == bindparam("at_holder"),
)
DELETE_ALL_ROWS = Sql(delete(allocations).where(in_list(allocations.c.consumer, "uuids")))
DELETE_ROW = Sql(delete(allocations).where(*_ROW))
UPDATE_ROW = Sql(update(allocations).where(*_ROW).values(used=bindparam("used")))
INSERT_ROW = Sql(
    insert_row(allocations, ("consumer", "provider_id", "class_id", "holder", "used", "created_at")),
)
RECOUNT = Sql(
    update(inventories)
    .where(inventories.c.provider_id == bindparam("provider"))
    .values(
        used=sql_cast(
            func.coalesce(
                select(func.sum(allocations.c.used))
                .where(
                    allocations.c.provider_id == inventories.c.provider_id,
                    allocations.c.class_id == inventories.c.class_id,
                )
                .correlate(inventories)
                .scalar_subquery(),
                0,
            ),
            BigInteger,
        )
    )
)


@dataclass(slots=True)
class Holding:
    """The allocations of a consumer, read under its lock."""

    consumer: str
    exists: bool = False
    project: str = ""
    user: str = ""
    type_id: int | None = None
    generation: int = 0
    rows: Rows = field(default_factory=dict)

    def held_by(self, holder: str) -> Rows:
        return {key: amount for key, amount in self.rows.items() if key[2] == holder}


@dataclass(slots=True, frozen=True)
class ConsumerChange:
    """The new allocations of a consumer: all of them, not only the difference."""

    consumer: str
    rows: Rows
    project: str
    user: str
    type_id: int | None = None


Holdings = Mapping[str, Holding]


async def lock(tx: Tx, uuids: Iterable[str]) -> dict[str, Holding]:
    """Lock these consumers; a missing one is an empty holding, created by `apply` when it gets something."""
    wanted = sorted(set(uuids))
    holdings = {uuid: Holding(uuid) for uuid in wanted}
    consumers = await tx.all(LOCK_CONSUMERS, uuids=wanted)
    for row in consumers:
        holdings[row["uuid"]] = _holding(row)
    if consumers:  # read after the locks were taken: a joined read would show rows as they were before the wait
        for row in await tx.all(READ_ROWS, uuids=[row["uuid"] for row in consumers]):
            holdings[row["consumer"]].rows[row["provider_id"], row["class_id"], row["holder"]] = row["used"]
    return holdings


def _holding(row: Row) -> Holding:
    return Holding(
        consumer=row["uuid"],
        exists=True,
        project=row["project_id"],
        user=row["user_id"],
        type_id=row["type_id"],
        generation=row["generation"],
    )


async def apply(
    tx: Tx,
    holdings: Holdings,
    changes: Sequence[ConsumerChange],
    *,
    accepting: Collection[int] = (),
    raising: Collection[int] | None = None,
    origin: Origin = UNTOLD,
) -> None:
    """Make the locked consumers hold what `changes` say.

    Providers in `accepting` must still take new claims, even those that give nothing themselves (the host of nested
    providers). The generations of the providers in `raising` go up, changed or not; by default those of all changed
    ones.

    Raise a `ClaimRefused` with the numbers; the caller's transaction then changes nothing.
    """
    now = await tx.now()
    changes = sorted(changes, key=lambda change: change.consumer)
    await _make_consumers(tx, holdings, changes, now)
    deltas, fresh = _net(holdings, changes)
    touched = _touched(holdings, changes, {*(raising or ()), *accepting})
    if touched:
        mark = await tx.mark()
        await _touch_providers(tx, touched, accepting, touched if raising is None else raising, mark, now)
        await _change_used(tx, deltas, fresh, mark)
        await _write_rows(tx, holdings, changes, now)
        await record(tx, origin, now, _entries(holdings, changes))
    await _settle_consumers(tx, holdings, changes, now)


def _entries(holdings: Holdings, changes: Sequence[ConsumerChange]) -> list[Entry]:
    changed = (change for change in changes if change.rows != holdings[change.consumer].rows)
    return [(change.consumer, [[*key, amount] for key, amount in sorted(change.rows.items())]) for change in changed]


async def recount(tx: Tx, provider: int) -> None:
    """Set `used` of one provider from its allocations. The caller holds the provider's row."""
    await tx.run(RECOUNT, provider=provider)


async def _make_consumers(tx: Tx, holdings: Holdings, changes: Sequence[ConsumerChange], now: float) -> None:
    for change in changes:
        if holdings[change.consumer].exists or not change.rows:
            continue
        inserted = await tx.run(
            INSERT_CONSUMER,
            uuid=change.consumer,
            project_id=change.project,
            user_id=change.user,
            type_id=change.type_id,
            generation=1,
            created_at=now,
            updated_at=now,
        )
        if not inserted:
            raise LostRace(f"consumer {change.consumer} was created concurrently")


def _net(holdings: Holdings, changes: Sequence[ConsumerChange]) -> tuple[dict[Slot, int], dict[Slot, Counter[int]]]:
    """Return, per provider and class, the change of `used`, and the amounts that are new there (not only a new
    consumer's)."""
    deltas: Counter[Slot] = Counter()
    fresh: dict[Slot, Counter[int]] = {}
    for change in changes:
        for rows, sign in ((change.rows, 1), (holdings[change.consumer].rows, -1)):
            for (provider, class_, _), amount in rows.items():
                deltas[provider, class_] += sign * amount
                fresh.setdefault((provider, class_), Counter())[amount] += sign
    return {slot: delta for slot, delta in deltas.items() if delta}, fresh


def _touched(holdings: Holdings, changes: Sequence[ConsumerChange], raising: Collection[int]) -> list[int]:
    """Return the touched providers in the order in which they are locked."""
    providers = set(raising)
    for change in changes:
        for key, _ in change.rows.items() ^ holdings[change.consumer].rows.items():
            providers.add(key[0])
    return sorted(providers)


async def _touch_providers(
    tx: Tx, touched: list[int], accepting: Collection[int], raising: Collection[int], mark: int, now: float
) -> None:
    rows = [
        {"provider": provider, "raised": int(provider in raising), "mark": mark, "updated_at": now}
        for provider in touched
    ]
    providers = {row["id"]: row for row in await tx.each(TOUCH_PROVIDER, rows)}
    for provider in touched:
        row = providers.get(provider)
        if row is None:
            raise NoSuchProvider(str(provider))
        if provider in accepting and not row["accepting"]:
            raise NotAccepting(row["uuid"])


async def _change_used(tx: Tx, deltas: dict[Slot, int], fresh: dict[Slot, Counter[int]], mark: int) -> None:
    raised = [slot for slot in sorted(deltas) if deltas[slot] > 0]
    lowered = [slot for slot in sorted(deltas) if slot not in raised]
    if lowered:
        await tx.many(LOWER_USED, [_change(slot, deltas, mark) for slot in lowered])
    if not raised:
        return
    rows = await tx.each(RAISE_USED, [_change(slot, deltas, mark) for slot in raised])
    units = {(row["provider_id"], row["class_id"]): row for row in rows}
    for slot in raised:
        if slot not in units:
            raise await _over_capacity(tx, slot, deltas[slot])
        await _check_units(tx, slot, fresh[slot], units[slot])


def _change(slot: Slot, deltas: dict[Slot, int], mark: int) -> dict[str, int]:
    return {"provider": slot[0], "class_": slot[1], "n": deltas[slot], "mark": mark}


async def _check_units(tx: Tx, slot: Slot, fresh: Counter[int], units: Row) -> None:
    for amount in +fresh:
        fault = unit_fault(amount, units["min_unit"], units["max_unit"], units["step_size"])
        if fault:
            names = await tx.one(READ_SLOT, provider=slot[0], class_=slot[1])
            raise WrongUnit(names["uuid"] if names else "", names["name"] if names else "", amount, fault)


async def _over_capacity(tx: Tx, slot: Slot, wanted: int) -> OverCapacity:
    row = await tx.one(READ_SLOT, provider=slot[0], class_=slot[1])
    if row is None:
        return OverCapacity(str(slot[0]), str(slot[1]), wanted, 0, 0)
    return OverCapacity(row["uuid"], row["name"], wanted, row["used"] or 0, row["capacity"] or 0)


async def _write_rows(tx: Tx, holdings: Holdings, changes: Sequence[ConsumerChange], now: float) -> None:
    gone, changed, new = [], [], []
    emptied = [change.consumer for change in changes if holdings[change.consumer].rows and not change.rows]
    if emptied:
        await tx.run(DELETE_ALL_ROWS, uuids=emptied)
    for change in changes:
        before = holdings[change.consumer].rows if change.rows else {}
        gone += [_at(change.consumer, key) for key in before if key not in change.rows]
        for key, amount in change.rows.items():
            if key not in before:
                new.append(_new_row(change.consumer, key, amount, now))
            elif before[key] != amount:
                changed.append(_at(change.consumer, key) | {"used": amount})
    for statement, rows in ((DELETE_ROW, gone), (UPDATE_ROW, changed), (INSERT_ROW, new)):
        if rows:
            await tx.many(statement, rows)


def _at(consumer: str, key: Key) -> dict[str, str | int]:
    return {"at_consumer": consumer, "at_provider": key[0], "at_class": key[1], "at_holder": key[2]}


def _new_row(consumer: str, key: Key, amount: int, now: float) -> dict[str, str | int | float]:
    provider, class_, holder = key
    row: dict[str, str | int | float] = {"consumer": consumer, "provider_id": provider, "class_id": class_}
    return row | {"holder": holder, "used": amount, "created_at": now}


async def _settle_consumers(tx: Tx, holdings: Holdings, changes: Sequence[ConsumerChange], now: float) -> None:
    """Raise the generation of those that still hold something; the others are gone."""
    existing = [change for change in changes if holdings[change.consumer].exists]
    for change in existing:
        if change.rows:
            await tx.run(
                UPDATE_CONSUMER,
                consumer=change.consumer,
                project_id=change.project,
                user_id=change.user,
                type_id=change.type_id,
                updated_at=now,
            )
    emptied = [change.consumer for change in existing if not change.rows]
    if emptied:
        await tx.run(DELETE_CONSUMERS, uuids=emptied)
