"""Notifications of an operation, by Nova's names.

Each is a row of the journal's database, written in the transaction that makes it true: nothing is sent that did not
happen, and every event is sent even if a process dies. The senders beside the conductors send the rows
(kilonova/notifications).

An operation's positions before and after a transaction decide what to send, so that nothing has to be remembered.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from kilonova.domain.operation import FORWARD, REWIND
from kilonova.domain.server import BUILDING, DELETED, ERROR, Server, to_json
from kilonova.engine.core import Engine, has_servers
from kilonova.engine.course import INHERIT, Course, End, Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.journal import Op
from kilonova.engine.model import Notification
from kilonova.engine.notification_payloads import Payload, compute_task_payload, instance_payload, service_payload
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.new_server import new_server
from kilonova.store.notifications import put_notification
from kilonova.world import Store, Tx

START, END, FAILURE = "start", "end", "error"
INFO, SEVERE = "INFO", "ERROR"
_NAMESPACE = uuid.UUID("5b2d4a3e-6a4f-5d0b-9d51-7c1f3c2f8e10")  # of message ids


class Stood(NamedTuple):
    """The position of an operation before a transaction."""

    mode: str
    at: str
    attempt: int


def standing_of(engine: Engine, op: Op) -> Stood | None:
    """Return the operation's position; None if notifications are off."""
    return _stood(op.course) if engine.settings.notifications.is_on else None


def _stood(course: Course) -> Stood:
    return Stood(course.mode, course.at, course.attempt)


class Teller:
    """The writer of one operation's notifications in one transaction."""

    def __init__(self, engine: Engine, tx: Tx, journal: Store, op: Op, host_before: str | None = None) -> None:
        self.engine, self.tx, self.journal, self.op = engine, tx, journal, op
        self.operation = engine.operation(op.kind)
        self._facts: OperationFacts = op.facts(self.operation)
        self.host_before = host_before
        self._left: Server | None = None

    async def begun(self) -> None:
        """Notify that the operation was stored."""
        for one in self.operation.notifications:
            if not one.begins:
                await self.notify(one, START)
        await self._begin(-1)

    async def moved(self, was: Stood, end: End | None) -> None:
        """Notify that a step has ended: the next one was stored, or the operation has ended."""
        now = _stood(self.op.course)
        before = self._position(was.at) if was.mode == FORWARD else -1
        again = now.attempt > was.attempt
        if was.mode in (FORWARD, INHERIT) and (again or now.mode not in (FORWARD, INHERIT)):
            await self._fail(before, self.op.course.problem, is_last=not again and now.mode != REWIND)
        elif now.mode == FORWARD:
            await self._finish(before, self._position(now.at), end)
        if now.mode == FORWARD:
            await self._begin(-1 if again else before)
        if end is not None:
            await self._end(end)

    async def superseded(self) -> None:
        """Notify that another operation has taken over, so that this one will not end by itself."""
        course = self.op.course
        if course.mode == FORWARD:
            text = f"The operation was superseded by operation {self.op.superseded_by}."
            problem = Problem(code="superseded", message=text, step=course.at)
            await self._fail(self._position(course.at), problem, is_last=False)

    async def _begin(self, before: int) -> None:
        now = self._position(self.op.course.at) if self.op.course.mode == FORWARD else -1
        for one in self.operation.notifications:
            if one.begins and before < self._position(one.begins) <= now:
                await self.notify(one, START)

    async def _finish(self, before: int, now: int, end: End | None) -> None:
        """Send the notifications that end with a step."""
        for one in self.operation.notifications:
            if one.ends and before <= self._position(one.ends) < (now if end is None else now + 1):
                await self.notify(one, END)

    async def _fail(self, position: int, problem: Problem | None, *, is_last: bool) -> None:
        """Send a failure on a host, or one before a host was found if no other is tried. An operation that has more
        to do then sends it at its end."""
        if problem is None:
            return
        failing = [one for one in self.operation.notifications if one.fails_from]
        on_host = [one for one in failing if position >= self._position(one.fails_from)]
        for one in on_host:
            await self.notify(one, FAILURE, problem)
        has_task = bool(self.operation.task) and not self.operation.ending
        if has_task and is_last and not on_host and problem.code != "cancelled":
            await self._notify_task(problem)

    async def _end(self, end: End) -> None:
        problem = self.op.course.problem
        if self.op.course.mode != FORWARD:
            was_deleted = getattr(self._facts, "deleted", False)
            if self.operation.ending and self.operation.task and problem is not None and not was_deleted:
                await self._notify_task(problem, state=ERROR)
            return
        position = self._position(self.op.course.at)
        for one in self.operation.notifications:
            if one.ends or not one.has_phases or position < self._position(one.begins):
                continue
            failed = end.state != "done" and bool(one.fails_from)  # a step was abandoned on the way
            await self.notify(one, FAILURE if failed else END, problem if failed else None)

    def _position(self, step: str) -> int:
        return self.operation.position_of(step) if step else -1

    # -- messages -----------------------------------------------------------------------------------------------

    async def notify(self, one: Notification, phase: str, problem: Problem | None = None) -> None:
        server = await self._server()
        if server is None:
            return
        event = f"instance.{one.name}.{phase}" if one.has_phases else f"instance.{one.name}"
        payload = instance_payload(server, self.op.cause, one.name, problem)
        await self._put(event, self._publisher(one, server), payload, SEVERE if phase == FAILURE else INFO)

    async def _notify_task(self, problem: Problem, state: str = "") -> None:
        server = await self._server() or self._requested(ERROR)
        if server is None:
            return
        payload = compute_task_payload(server, problem, state)
        publisher = f"nova-conductor:{self.engine.world.machine}"
        await self._put(f"compute_task.{self.operation.task}.error", publisher, payload, SEVERE)

    async def _server(self) -> Server | None:
        """Return the server as this transaction leaves it."""
        if self._left is None:
            self._left = await self._read()
        return self._left

    async def _read(self) -> Server | None:
        if not has_servers(self.journal):
            return self._requested(BUILDING if self.op.is_live else DELETED)
        row = await rows.fetch(self.tx, cell.servers, id=self.op.server_id)
        if row is None:
            return None
        server = Server.from_row(row)
        if server.deleted and self.host_before:  # it is nowhere; its last word is that of the host that it was on
            return server.changed({"host": self.host_before})
        return server

    def _requested(self, state: str) -> Server | None:
        """Return a server that was never on a host."""
        requested = self.operation.requested_server(self._facts, self.op.params(self.operation))
        if requested is None or self.op.server_id is None:
            return None
        task_state = "deleting" if state == BUILDING else None
        gone = {"deleted": 1, "terminated_at": self.engine.world.clock.now()} if state == DELETED else {}
        return new_server(self.op.server_id, self.op.turn, requested, vm_state=state, task_state=task_state, **gone)

    def _publisher(self, one: Notification, server: Server) -> str:
        host = getattr(self._facts, one.on, "") if one.on else ""
        host = host or server.host
        if one.sender == "compute" and host:
            return f"nova-compute:{host}"
        sender = "api" if one.sender == "compute" else one.sender
        return f"nova-{sender}:{self.engine.world.machine}"

    async def _put(self, event: str, publisher: str, payload: Payload, priority: str) -> None:
        message_id = str(uuid.uuid5(_NAMESPACE, f"{self.op.id}:{self.op.ordinal}:{event}"))
        await _put(self.engine, self.tx, message_id, self.op.server_id or "", event, publisher, payload, priority)


def new_message_id(engine: Engine) -> str:
    """Return an id for a notification without an operation, made before the transaction since that may run again;
    "": notifications are off."""
    return engine.world.ids.uuid() if engine.settings.notifications.is_on else ""


async def notify_service(engine: Engine, tx: Tx, host: str, message_id: str) -> None:
    """Notify that an administrator changed the record of a host."""
    if not message_id:
        return
    row = await rows.fetch(tx, cell.hosts, name=host)
    if row is not None:
        payload = service_payload(row)
        await _put(engine, tx, message_id, host, "service.update", f"nova-compute:{host}", payload, INFO)


async def _put(
    engine: Engine, tx: Tx, message_id: str, subject: str, event: str, publisher: str, payload: Payload, priority: str
) -> None:
    """Store the notification in the envelope of oslo.messaging."""
    sent_at = datetime.fromtimestamp(engine.world.clock.now(), UTC)
    message = {
        "message_id": message_id,
        "publisher_id": publisher,
        "event_type": event,
        "priority": priority,
        "payload": payload,
        "timestamp": sent_at.strftime("%Y-%m-%d %H:%M:%S.%f"),
    }
    await put_notification(
        tx, id=message_id, subject=subject, event_type=event, priority=priority, body=to_json(message)
    )
