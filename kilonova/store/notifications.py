"""Notifications that wait to be sent, written in the transaction that makes them true.

Each is sent by one sender at a time; when that one dies, another takes it after a while. Those about one server or host
are sent in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import and_, bindparam, delete, func, or_, select, update

from kilonova.schema.tables.journal import notifications
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Tx

LONGEST_PAUSE = 60.0  # seconds between two tries
_earlier = notifications.alias()
# Further ahead than a pause or a lease can be: the database's clock was set back meanwhile (law 16).
_IS_DUE = or_(
    notifications.c.not_before <= database_time(), notifications.c.not_before > database_time() + LONGEST_PAUSE
)
_IS_FREE = or_(
    notifications.c.worker.is_(None),
    notifications.c.taken_until < database_time(),
    notifications.c.taken_until > database_time() + bindparam("seconds"),
)
_IS_FIRST = ~(
    select(_earlier.c.number)
    .where(and_(_earlier.c.subject == notifications.c.subject, _earlier.c.number < notifications.c.number))
    .exists()
)
_DUE = Sql(
    select(notifications, (database_time() - notifications.c.created_at).label("age"))
    .where(_IS_DUE, _IS_FREE, _IS_FIRST)
    .order_by(notifications.c.number)
    .limit(bindparam("most"))
)
_TAKE = Sql(
    update(notifications)
    .where(notifications.c.number == bindparam("taken"), _IS_DUE, _IS_FREE)
    .values(
        worker=bindparam("by"),
        taken_until=database_time() + bindparam("seconds"),
        attempts=notifications.c.attempts + 1,
    )
)
_COUNT = Sql(select(func.count().label("number")).select_from(notifications))
_OLDEST = select(notifications.c.number).order_by(notifications.c.number).limit(bindparam("excess"))
_DROP_OLDEST = Sql(delete(notifications).where(notifications.c.number.in_(_OLDEST)))


async def put_notification(tx: Tx, *, id: str, subject: str, event_type: str, priority: str, body: str) -> None:
    await rows.put(
        tx,
        notifications,
        ("created_at",),
        id=id,
        subject=subject,
        event_type=event_type,
        priority=priority,
        body=body,
        attempts=0,
        not_before=0.0,
        worker=None,
        taken_until=None,
    )


async def take_notifications(tx: Tx, worker: str, seconds: float, most: int) -> Sequence[Row]:
    """Take the notifications to send now, at most one of each subject. Their `attempts` are those before."""
    due = await tx.all(_DUE, seconds=seconds, most=most)
    return [row for row in due if await tx.run(_TAKE, taken=row["number"], by=worker, seconds=seconds)]


async def end_notification(tx: Tx, number: int, message_id: str) -> bool:
    """Remove a notification that was sent or given up. Return False if another sender has removed it.

    Its number may be used again, its id never.
    """
    return bool(await rows.remove(tx, notifications, number=number, id=message_id))


async def postpone_notification(tx: Tx, number: int, message_id: str, worker: str, seconds: float) -> None:
    """Postpone a notification, unless another sender has it by now."""
    not_before = await tx.now() + min(seconds, LONGEST_PAUSE)
    values = {"worker": None, "taken_until": None, "not_before": not_before}
    await rows.change(tx, notifications, values, number=number, id=message_id, worker=worker)


async def count_notifications(tx: Tx) -> int:
    counted = await tx.one(_COUNT)
    return int(counted["number"]) if counted is not None else 0


async def drop_oldest(tx: Tx, most: int) -> int:
    """Leave `most`; returns how many were dropped."""
    excess = await count_notifications(tx) - most
    return await tx.run(_DROP_OLDEST, excess=excess) if excess > 0 else 0
