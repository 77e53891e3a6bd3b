"""The sender: it takes notifications from each database, sends them, and removes the accepted ones.

At least once: if a sender dies between the two, another one sends again, and the receiver gets the same message_id
twice. A notification that is not accepted is retried after growing pauses, delays only those about the same server or
host, and is given up after `retry_seconds`. Nothing else waits for a receiver.
"""

from __future__ import annotations

import asyncio
import logging

from kilonova.domain.errors import Halted, KilonovaError, Unreachable
from kilonova.measures import NOTIFICATIONS
from kilonova.notifications.target import Message, NotificationTarget, NotSent
from kilonova.store.notifications import (
    LONGEST_PAUSE,
    count_notifications,
    drop_oldest,
    end_notification,
    postpone_notification,
    take_notifications,
)
from kilonova.world import Row, Store, Tx, World

logger = logging.getLogger(__name__)
POLL_SECONDS = 1.0
AT_ONCE = 8  # of each database
FIRST_PAUSE = 1.0
LEASE_MARGIN = 30.0  # seconds that a lease is longer than a try


class Sender:
    def __init__(
        self,
        world: World,
        worker: str,
        target: NotificationTarget,
        *,
        try_seconds: float = 10.0,
        retry_seconds: float = 3600.0,
        most: int = 10_000,
    ) -> None:
        """`most`: how many may wait in each database."""
        self._world, self._worker, self._target = world, worker, target
        self._lease, self._retry_seconds, self._most = try_seconds + LEASE_MARGIN, retry_seconds, most
        self._loop: asyncio.Task[None] | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}  # by database
        self._is_refused = False

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._every())

    async def stop(self) -> None:
        tasks = [task for task in (self._loop, *self._sending.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _every(self) -> None:
        while True:
            for journal in self._world.db.journals():
                if journal.name not in self._sending or self._sending[journal.name].done():
                    self._sending[journal.name] = asyncio.create_task(self._guarded(journal))
            await self._world.clock.sleep(POLL_SECONDS)

    async def _guarded(self, journal: Store) -> None:
        try:
            await self.send_all(journal)
        except (Halted, Unreachable) as error:
            logger.debug("notifications of %s: %s", journal.name, error)  # it was logged once
        except KilonovaError as error:
            logger.warning("notifications of %s: %s", journal.name, error)
        except Exception:
            logger.exception("sending notifications of %s failed", journal.name)

    async def send_all(self, journal: Store) -> None:
        """Send all notifications of this database that are due."""
        if not await journal.read(count_notifications):
            return
        await self._bound(journal)
        while taken := await journal.write(self._take):
            await asyncio.gather(*(self._send(journal, row) for row in taken))

    async def _take(self, tx: Tx) -> list[Row]:
        return list(await take_notifications(tx, self._worker, self._lease, AT_ONCE))

    async def _bound(self, journal: Store) -> None:
        async def body(tx: Tx) -> int:
            return await drop_oldest(tx, self._most)

        if dropped := await journal.write(body):
            NOTIFICATIONS.labels("dropped").inc(dropped)
            logger.error(
                "notifications dropped: database=%s number=%d; more than %d wait to be sent",
                journal.name,
                dropped,
                self._most,
            )

    async def _send(self, journal: Store, row: Row) -> None:
        body = row["body"].encode()
        message = Message(id=row["id"], event_type=row["event_type"], priority=row["priority"], body=body)
        try:
            await self._target.send(message)
        except NotSent as why:
            await self._not_sent(journal, row, str(why))
            return
        if self._is_refused:
            self._is_refused = False
            logger.warning("notifications are accepted again")
        await self._end(journal, row)
        NOTIFICATIONS.labels("sent").inc()

    async def _not_sent(self, journal: Store, row: Row, why: str) -> None:
        if not self._is_refused:
            self._is_refused = True
            logger.warning("notification not accepted: event=%s reason=%s; retrying", row["event_type"], why)
        NOTIFICATIONS.labels("failed").inc()
        if row["age"] >= self._retry_seconds:
            await self._end(journal, row)
            NOTIFICATIONS.labels("given_up").inc()
            logger.error(
                "notification given up: event=%s subject=%s message=%s attempts=%d reason=%s",
                row["event_type"],
                row["subject"],
                row["id"],
                row["attempts"] + 1,
                why,
            )
            return
        pause = min(FIRST_PAUSE * 2 ** min(row["attempts"], 10), LONGEST_PAUSE)

        async def body(tx: Tx) -> None:
            await postpone_notification(tx, row["number"], row["id"], self._worker, pause)

        await journal.write(body)

    async def _end(self, journal: Store, row: Row) -> None:
        async def body(tx: Tx) -> None:
            await end_notification(tx, row["number"], row["id"])

        await journal.write(body)
