"""The conductor's loops: work (woken, and by polling), leases, heartbeats, silence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from kilonova.bus import CELLS_CHANGED, HOSTS_ANSWER, token
from kilonova.conductor.auditing import audit_all
from kilonova.conductor.confirming import MOST_BETWEEN_CONFIRMS, confirm_forgotten
from kilonova.conductor.handlers import MessageHandlers
from kilonova.conductor.leases import forget_others, give_back, hand_back, leave, renew, take_over
from kilonova.conductor.periodic import PeriodicTask
from kilonova.conductor.purging import SECONDS_BETWEEN, purge_all
from kilonova.conductor.reclaiming import reclaim
from kilonova.domain.errors import Halted, KilonovaError, NoAnswer, Unreachable
from kilonova.domain.messages import Wake
from kilonova.engine.conclude import Next
from kilonova.engine.core import Engine, has_servers
from kilonova.engine.run import drive, follow
from kilonova.engine.silence import watch_hosts
from kilonova.engine.take import hosts_with_work, ready_operations
from kilonova.hosts.reopening import Reopening, seconds_between_looks
from kilonova.logs import OPERATION
from kilonova.world import Store

logger = logging.getLogger(__name__)
MOST_BETWEEN_RECLAIMS = 60.0  # seconds
ALONE_SECONDS = 60.0  # lease of a conductor without another to take over: it only shows that it lives
GRACE_SECONDS = 0.4  # that steps under way get when a conductor stops; then another one does them
ALONE_GRACE_SECONDS = 10.0  # without another conductor


class Conductor:
    def __init__(self, engine: Engine, *, alone: bool = False, at_once: int = 64) -> None:
        self.engine = engine
        self.handlers = MessageHandlers(engine)
        self._alone = alone
        self._slots = asyncio.Semaphore(at_once)
        self._driving: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._left: set[tuple[str, str]] = set()  # for others, since this one stops
        self._living: set[str] = set()
        self._renewed_at = float("-inf")
        self._echo_works = False
        self._finding = PeriodicTask(self._find_work)
        self._freeing = PeriodicTask(self._free_steps)
        self._flushing = PeriodicTask(self._flush_heard)
        self._watching = PeriodicTask(self._watch_in)
        self._reclaiming = PeriodicTask(self._reclaim_in)
        self._confirming = PeriodicTask(self._confirm_in)
        self._closed_hosts = Reopening(engine)
        self._reopening = PeriodicTask(self._closed_hosts.look)
        engine.on_mine = self._go_on

    async def start(self) -> None:
        bus = self.engine.world.bus
        with contextlib.suppress(Halted):  # an older copy of a database was put back: it waits, and answers hosts so
            if self._alone:
                await forget_others(self.engine)
            await self._look_after_leases()
        await bus.serve(self._echo_subject, _echo)
        await bus.serve("conductor.wake", self._on_wake, shared=True)
        await bus.serve(CELLS_CHANGED, self._on_cells)
        await bus.serve(HOSTS_ANSWER, self._on_answer)
        self.engine.world.db.on_return(self._on_return)
        await self._look_for_cells()
        default, options = self.engine.settings.default, self.engine.settings.conductor
        for work, seconds in (
            (self._poll, options.poll_seconds),
            (self._look_after_leases, options.lease_seconds / 3),
            (self._flush, self.engine.flush_seconds),
            (self._watch, options.poll_seconds),
            (self._look_for_cells, options.poll_seconds),
        ):
            self._loops.append(asyncio.create_task(self._every(seconds, work)))
        if default.reclaim_instance_interval:
            often = min(default.reclaim_instance_interval / 2, MOST_BETWEEN_RECLAIMS)
            self._loops.append(asyncio.create_task(self._every(often, self._reclaim)))
        if default.resize_confirm_window:
            often = min(default.resize_confirm_window / 2, MOST_BETWEEN_CONFIRMS)
            self._loops.append(asyncio.create_task(self._every(often, self._confirm)))
        self._loops.append(asyncio.create_task(self._now_and_then(seconds_between_looks(self.engine), self._reopen)))
        if audit_interval := self.engine.settings.audit.interval:
            self._loops.append(asyncio.create_task(self._now_and_then(audit_interval, self._audit)))
        if self.engine.settings.retention.days:
            self._loops.append(asyncio.create_task(self._now_and_then(SECONDS_BETWEEN, self._purge)))

    async def stop(self) -> None:
        """Take no more steps, wait a moment for those under way, and give the others back at once."""
        self._stopping = True
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if not self._alone:
            await self.engine.world.bus.stop_serving()
        periodic = (self._reclaiming, self._confirming, self._reopening)
        for task in (self._finding, self._freeing, self._flushing, self._watching, *periodic):
            await task.stop()
        await self._end_drives()
        if not self._alone:
            await self._hand_over()

    async def _end_drives(self) -> None:
        if not self._tasks:
            return
        tasks = set(self._tasks)
        await asyncio.wait(tasks, timeout=ALONE_GRACE_SECONDS if self._alone else GRACE_SECONDS)
        self._left |= self._driving
        for task in tasks:
            task.cancel()  # as if it had been killed here; the next worker finds its result (law 2)
        await asyncio.wait(tasks)

    async def _hand_over(self) -> None:
        """Wake another conductor for the operations that this one held or was woken for."""
        for journal in self.engine.world.db.journals():
            try:
                given = await hand_back(self.engine, journal)
            except KilonovaError as error:
                logger.warning(
                    "steps in %s stay taken until the lease of this conductor expires: %s", journal.name, error
                )
                continue
            left = {operation for name, operation in self._left if name == journal.name}
            for operation in sorted(left | set(given)):
                await self.engine.wake(journal.name, operation)
        try:
            await leave(self.engine)
        except KilonovaError as error:
            logger.warning("the lease of this conductor was not released and stays until it expires: %s", error)

    def _cells(self) -> list[Store]:
        return [self.engine.world.db.cell(name) for name in self.engine.world.db.cells()]

    @property
    def _echo_subject(self) -> str:
        return f"conductor.echo.{token(self.engine.worker)}"

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Halted as error:
                logger.debug("%s: %s", getattr(work, "__name__", "loop"), error)  # it was said once
            except KilonovaError as error:
                logger.warning("%s: %s", getattr(work, "__name__", "loop"), error)
            except Exception:
                logger.exception("%s failed", getattr(work, "__name__", "loop"))
            if self._stopping:  # a library may have dropped the cancellation
                return
            await self.engine.world.clock.sleep(seconds)

    # -- work ---------------------------------------------------------------------------------------------------

    async def _on_wake(self, body: bytes) -> bytes:
        wake = msgspec.json.decode(body, type=Wake)
        for journal in self.engine.world.db.journals():
            if journal.name == wake.journal:
                self._begin(journal, wake.operation)
        return b""

    async def _find_work(self, journal: Store) -> None:
        for operation_id in await ready_operations(journal):
            self._begin(journal, operation_id)
        if has_servers(journal):
            self.handlers.with_work |= await hosts_with_work(journal)

    async def _poll(self) -> None:
        await self._finding.go(self.engine.world.db.journals())

    def _begin(
        self, journal: Store, operation_id: str, following: Next | None = None, early: int | None = None
    ) -> None:
        """Begin to drive an operation, one drive at a time; a wake-up that arrives meanwhile is kept for afterwards."""
        key = (journal.name, operation_id)
        if self._stopping:
            self._left.add(key)
            return
        if key in self._driving:
            self._again.add(key)
            return
        self._driving.add(key)
        task = asyncio.create_task(self._drive(journal, operation_id, following, early))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go_on(self, journal: Store, following: Next) -> None:
        """Go on with a CONTROL step that was taken while answering a host."""
        if following.is_mine:
            self._begin(journal, following.op.id, following)
        elif following.go is not None:
            self._later(journal, following)

    async def _drive(self, journal: Store, operation_id: str, following: Next | None, early: int | None) -> None:
        key = (journal.name, operation_id)
        OPERATION.set(operation_id)  # of this task, in all that it logs
        try:
            async with self._slots:
                if following is not None:
                    last = await follow(self.engine, journal, following)
                else:
                    last = await drive(self.engine, journal, operation_id, early=early)
                if last is not None and last.go is not None and last.go.delay:
                    self._later(journal, last)
        except Unreachable as error:
            logger.debug("operation %s: %s", operation_id, error)  # its unreachable cell was logged before
        except KilonovaError as error:
            logger.warning("operation %s: %s", operation_id, error)
        except Exception:
            logger.exception("operation %s failed unexpectedly", operation_id)
        finally:
            self._driving.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._begin(journal, operation_id)

    def _later(self, journal: Store, following: Next) -> None:
        assert following.go is not None
        if following.go.target.host:
            return  # the host's next heartbeat asks for it
        loop = asyncio.get_running_loop()
        loop.call_later(following.go.delay + 0.001, self._begin, journal, following.op.id)

    # -- answers (law 18) ---------------------------------------------------------------------------------------

    async def _on_answer(self, body: bytes) -> bytes:
        self._look_again()
        return b""

    def _look_again(self) -> None:
        """Look again at the operations that waited for a host or a database that answers now."""
        for journal, operation_id, ordinal in self.engine.waiting.take():
            self._begin(journal, operation_id, early=ordinal)

    def _on_return(self, name: str) -> None:
        """Go on with the operations of a cell that is back, without waiting for the next poll."""
        task = asyncio.create_task(self._take_up(self.engine.world.db.cell(name)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_up(self, journal: Store) -> None:
        for task in (self._flushing, self._freeing, self._finding):
            await task.go([journal])
        self._look_again()

    # -- cells --------------------------------------------------------------------------------------------------

    async def _on_cells(self, body: bytes) -> bytes:
        await self._look_for_cells()
        return b""

    async def _look_for_cells(self) -> None:
        """Learn of cells that were made, disabled or deleted meanwhile; their hosts may have their own subjects."""
        await self.engine.world.db.learn()
        await self.handlers.serve()

    # -- leases, heartbeats, silence ----------------------------------------------------------------------------

    async def _look_after_leases(self) -> None:
        here, seconds = self.engine.world.clock.monotonic(), self.engine.settings.conductor.lease_seconds
        if self._alone:
            seconds = max(seconds, ALONE_SECONDS)
        if not self._alone or here - self._renewed_at >= seconds / 3:
            self._living = await renew(self.engine, seconds)
            self._renewed_at = here
        await self._freeing.go(self.engine.world.db.journals())

    async def _free_steps(self, journal: Store) -> None:
        if await take_over(journal, self._living):
            await self._find_work(journal)
        driving = {operation for name, operation in self._driving if name == journal.name}
        await give_back(self.engine, journal, driving)

    async def _flush(self) -> None:
        self._echo_works = await self._hears_itself()
        await self._flushing.go(self._cells())

    async def _flush_heard(self, journal: Store) -> None:
        if await self.handlers.observer(journal).flush(self._echo_works):
            self._look_again()
            await self.engine.world.bus.cast(HOSTS_ANSWER, b"")

    async def _hears_itself(self) -> bool:
        try:
            seconds = self.engine.flush_seconds
            return await self.engine.world.bus.call(self._echo_subject, b"?", timeout=seconds) == b"?"
        except NoAnswer:
            return False

    async def _now_and_then(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        await self.engine.world.clock.sleep(seconds)  # not at the start, when there is enough to do
        await self._every(seconds, work)

    async def _audit(self) -> None:
        if self.engine.worker == min(self._living, default=""):
            await audit_all(self.engine)

    async def _reopen(self) -> None:
        if self.engine.worker == min(self._living, default=""):
            await self._reopening.go(self._cells())
        else:
            self._closed_hosts.forget()

    async def _purge(self) -> None:
        if self.engine.worker == min(self._living, default=""):
            await purge_all(self.engine)

    async def _reclaim_in(self, journal: Store) -> None:
        await reclaim(self.engine, journal)

    async def _reclaim(self) -> None:
        await self._reclaiming.go(self._cells())

    async def _confirm_in(self, journal: Store) -> None:
        await confirm_forgotten(self.engine, journal)

    async def _confirm(self) -> None:
        await self._confirming.go(self._cells())

    async def _watch(self) -> None:
        await self._watching.go(self._cells())

    async def _watch_in(self, journal: Store) -> None:
        await watch_hosts(self.engine, journal)


async def _echo(body: bytes) -> bytes:
    return body
