"""The engine of one worker: its world, the operations it knows, its name in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from kilonova.bus import host_subject, in_cell
from kilonova.domain.errors import CommitFailed, CommitUnknown, Halted, Unreachable
from kilonova.domain.messages import Wake
from kilonova.domain.operation import LIVE_STATES as LIVE_STATES
from kilonova.domain.server import Server
from kilonova.engine.context import AnyContext, Context
from kilonova.engine.journal import ENDED, Op, report_end
from kilonova.engine.model import AnyOperation, Registry, Target
from kilonova.engine.secrets import Seal
from kilonova.engine.waiting_list import WaitingList
from kilonova.scheduler.service import Scheduler
from kilonova.schema.tables import cell
from kilonova.settings import Settings
from kilonova.store import rows
from kilonova.world import Body, Store, Tx, World

T = TypeVar("T")

CONTROL_JOURNAL = "control"
TRIES = 6  # about three seconds
LONGEST_PAUSE = 0.8  # seconds between two tries: an operation goes on within a second once its database answers


@dataclass
class Engine:
    world: World
    registry: Registry
    worker: str
    seal: Seal
    scheduler: Scheduler | None = None
    flush_seconds: float = 1.0  # how often heartbeats are written, or more often if hosts soon count as silent
    waiting: WaitingList = field(default_factory=WaitingList)
    on_mine: Callable[[Store, Any], Awaitable[None]] | None = None  # continues with a CONTROL step taken elsewhere
    settings: Settings = field(init=False)  # the world's
    _waking: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.settings = self.world.settings
        self.flush_seconds = min(self.flush_seconds, self.settings.default.service_down_time / 8)

    def operation(self, kind: str) -> AnyOperation:
        return self.registry[kind]

    async def wake(self, journal: str, operation_id: str, host: str = "") -> None:
        """Send a wake-up to the host, or to the conductors. Losing it costs time only: polls and heartbeats find the
        work."""
        body = msgspec.json.encode(Wake(journal, operation_id))
        subject = in_cell(self.world.db.bus_prefix(journal), host_subject(host)) if host else "conductor.wake"
        await self.world.bus.cast(subject, body)

    def wake_in(self, seconds: float, journal: str, operation_id: str) -> None:
        """Call `wake` after a delay; lost if the process ends before."""
        task = asyncio.create_task(self._wake_after(seconds, journal, operation_id))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _wake_after(self, seconds: float, journal: str, operation_id: str) -> None:
        await self.world.clock.sleep(seconds)
        await self.wake(journal, operation_id)

    async def write(self, journal: Store, body: Body[T]) -> T:
        """Run the body until its outcome is known: bodies here recognise their own earlier commit (law 12).

        The API gives up after some tries, since a client waits for the response. A conductor goes on, unless the whole
        cell is unreachable: it has other cells to serve.
        """
        pause, tries = 0.05, 0
        while True:
            try:
                return await self._write_and_tell(journal, body)
            except Halted:
                raise
            except (CommitUnknown, CommitFailed) as error:
                tries += 1
                cell_is_away = isinstance(error, Unreachable) and has_servers(journal)
                if tries >= TRIES and (cell_is_away or not self.worker):
                    raise
                await self.world.clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _write_and_tell(self, journal: Store, body: Body[T]) -> T:
        """Run the body; once it is committed, log a line for every operation that it has ended."""
        ended: list[Op] = []

        async def noted(tx: Tx) -> T:
            ended.clear()  # of an earlier try
            ENDED.set(ended)
            return await body(tx)

        result = await journal.write(noted)
        for op in ended:
            report_end(op, self.world.clock.now())
        return result


def has_servers(journal: Store) -> bool:
    """Return True if the journal's database has servers and the API's records: control has only mappings and build
    requests."""
    return journal.name != CONTROL_JOURNAL


async def load_server(tx: Tx, journal: Store, op: Op, *, lock: bool = False) -> Server | None:
    if op.server_id is None or not has_servers(journal):
        return None
    row = await rows.fetch(tx, cell.servers, lock=lock, id=op.server_id)
    return None if row is None else Server.from_row(row)


def context_for(engine: Engine, journal: Store, op: Op, target: Target, server: Server | None) -> AnyContext:
    operation = engine.operation(op.kind)
    return Context(
        world=engine.world,
        journal=journal,
        operation_id=op.id,
        kind=op.kind,
        turn=op.turn,
        ordinal=op.ordinal,
        server_id=op.server_id,
        params=op.params(operation),
        facts=op.facts(operation),
        cause=op.cause,
        target=target,
        server=server,
        scheduler=engine.scheduler,
        problem=op.course.problem,
        attempt=op.course.attempt,
        accepted_at=op.created_at,
    )
