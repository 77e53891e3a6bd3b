"""The agent of one host: it registers, reconciles the copies on the host, sends heartbeats, and pulls and does its
steps.

It talks only to conductors, over the bus, and to the driver. It runs one step per server at a time; an order of a
higher turn or ordinal aborts a lower one, and the highest turns seen are remembered across restarts (law 4).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypedDict, TypeVar

import msgspec

from kilonova.bus import HOST_ALIVE, host_subject, question_subject
from kilonova.compute.host_claims import PREFIX, HostClaims
from kilonova.compute.orders import Running, error_of, key_of
from kilonova.compute.power_news import PowerNews
from kilonova.compute.questions import Questions
from kilonova.compute.reconcile import Tries, carry_out
from kilonova.domain.errors import Failed, KilonovaError, NoAnswer, Refused
from kilonova.domain.guest import CopyReport
from kilonova.domain.json import JsonObject, as_text
from kilonova.domain.messages import (
    Alive,
    Beat,
    Finish,
    Finished,
    Orders,
    Register,
    Registered,
    Returned,
    StepOrder,
    StepResult,
)
from kilonova.engine.context import HostContext
from kilonova.engine.model import HostWork, Registry
from kilonova.logs import OPERATION
from kilonova.world import Driver, HostMemory, World

logger = logging.getLogger(__name__)
T = TypeVar("T")
KEY = "key"  # the key of the host's identity in its memory; servers' turns have their ids
CLOUD = "cloud"  # which cloud it belongs to


class RememberedCloud(TypedDict, total=False):
    id: str
    seen: dict[str, tuple[int, int]]  # as in Register


REMEMBERED = 4096  # servers; an order is the response to a current request, so old ones cannot arrive


class Agent:
    def __init__(
        self,
        world: World,
        host: str,
        registry: Registry,
        *,
        report_interval: float = 10.0,
        storage: str = "",
        cell: str = "",
    ) -> None:
        if world.driver is None or world.memory is None:
            raise RuntimeError("an agent needs a driver and a memory")
        self.world = world
        self.host = host
        self.driver: Driver = world.driver
        self.session = world.ids.uuid()
        self._registry = registry
        self._interval = report_interval
        self._storage = storage
        self._cell = cell
        self._epoch = 0
        self._turns: dict[str, tuple[int, int]] = {}  # by server: the highest seen; the newest last
        self._key = ""
        self._cloud: RememberedCloud = {}
        remembered = world.memory.load()
        self.claims = HostClaims(world.memory, remembered)
        for name, value in remembered.items():
            if name == KEY:
                self._key = as_text(value)
            elif name == CLOUD:
                self._cloud = msgspec.convert(value, RememberedCloud)
            elif not name.startswith(PREFIX):
                self._turns[name] = msgspec.convert(value, tuple[int, int])
        self._running: dict[str, Running] = {}
        self._declining: dict[str, asyncio.Task[Any]] = {}  # answers to orders that were dropped
        self._failed_starts: Tries = Tries()
        self._questions = Questions(self.driver, world.consoles, self._copies)
        self._powers = PowerNews(self.driver, world.clock, self._look)
        self._refusal = ""  # why a result was not taken, the last time
        self._woken = False  # ask for work at once
        self._due: asyncio.Future[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.refused: str | None = None  # why the cloud will not have this host; the process ends with it
        self.welcomed = False  # has been registered at least once

    @property
    def epoch(self) -> int:
        """The epoch of the last completed registration; 0 while returning."""
        return self._epoch

    async def start(self) -> None:
        if not self._key:
            self._key = self.world.ids.uuid()
            self._memory.keep(KEY, self._key)
        await self.world.bus.serve(host_subject(self.host), self._on_wake)
        await self.world.bus.serve(question_subject(self.host), self._questions.answer)
        self._loop = asyncio.create_task(self._live())
        self._watching = asyncio.create_task(self._powers.watch())

    async def stop(self) -> None:
        """Stop the agent. Guests go on running; steps under way are left for the next start."""
        tasks = [*(running.task for running in self._running.values()), *self._declining.values()]
        tasks += [task for task in (self._loop, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._questions.consoles.stop()

    async def ended(self) -> None:
        """Return when the agent has given up (`refused`) or was stopped."""
        if self._loop is not None:
            await asyncio.wait([self._loop])

    async def _on_wake(self, body: bytes) -> bytes:
        self._look()
        return b""

    async def _copies(self) -> list[CopyReport]:
        """Return all copies on the host, with their claims on its hardware and the highest turn seen of each server."""
        copies = self.claims.with_claims(await self.driver.copies())
        return [msgspec.structs.replace(one, turn=self._turns.get(one.server, (0, 0))[0]) for one in copies]

    async def _live(self) -> None:
        """Register, then beat for ever; register again whenever a conductor says so."""
        while self.refused is None:
            try:
                if self._epoch == 0:
                    await self._register()
                else:
                    await self._beat()
            except NoAnswer:
                await self.world.clock.sleep(self._interval / 4)
                continue
            except Refused as why:
                self.refused = why.message
                logger.error("host %s: registration refused: %s", self.host, why.message)
                return
            except Exception as error:  # whatever it is, the heartbeat must go on
                logger.warning("host %s: %s", self.host, error, exc_info=not isinstance(error, KilonovaError))
                await self.world.clock.sleep(self._interval / 4)
                continue
            await self._wait()

    async def _wait(self) -> None:
        """Wait until woken, or until the next heartbeat is due.

        It uses a bare timer: asyncio.wait_for costs a task each time, and thousands of hosts do this every few seconds.
        """
        if self._woken:
            return
        self._due = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(self._interval, self._wake)
        try:
            await self._due
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if self._due is not None and not self._due.done():
            self._due.set_result(None)

    def _look(self) -> None:
        """Wake up: there may be work."""
        self._woken = True
        self._wake()

    # -- registering --------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        self._powers.clear()
        inventory = await self.driver.inventory()
        self.claims.hardware = inventory.hardware
        report = Register(
            host=self.host,
            session=self.session,
            key=self._key,
            copies=await self._copies(),
            inventory=inventory,
            storage=self._storage,
            cell=self._cell,
            cloud=self._cloud.get("id", ""),
            seen=self._cloud.get("seen", {}),
            filters=self.driver.filters_ports,
        )
        answer = await self._ask("conductor.register", report, Registered)
        if answer.refused:
            raise Refused("host_refused", answer.refused)
        if answer.cloud and answer.cloud != self._cloud.get("id"):
            self._cloud = {"id": answer.cloud, "seen": {}}
            self._memory.keep(CLOUD, self._cloud)
        for verdict in answer.verdicts:
            # no operation is under way for these: a step that still goes on here is of one that has ended
            if verdict.action in ("stop", "set_aside", "destroy") or verdict.run:
                await self._abort(verdict.server)
        running = {(copy.server, copy.copy) for copy in report.copies if copy.power == "on"}
        done = await carry_out(self.driver, self.claims, answer.verdicts, running, self._failed_starts)
        message = Returned(
            host=self.host,
            session=self.session,
            epoch=answer.epoch,
            destroyed=done.destroyed,
            stopped=done.stopped,
            adopted=done.adopted,
            failed=done.failed,
        )
        if await self._ask("conductor.returned", message, bool):
            self._epoch = answer.epoch
            self._refusal = ""
            self.welcomed = True
            self._woken = True

    # -- beating and pulling ------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        pull = self._woken
        self._woken = False
        has = [running.key for running in self._running.values()]
        powers = self._powers.take(self._running.keys())
        beat = Beat(
            host=self.host,
            session=self.session,
            epoch=self._epoch,
            has=has,
            pull=pull,
            powers=powers,
            filters=self.driver.filters_ports,
            cloud=self._cloud.get("id", ""),
            seen=self._cloud.get("seen", {}),
        )
        try:
            orders = await self._ask("conductor.beat", beat, Orders)
        except NoAnswer:
            self._woken = self._woken or pull  # the reason of the wake-up still exists
            alive = Alive(host=self.host, session=self.session, cloud=beat.cloud)
            await self.world.bus.cast(HOST_ALIVE, msgspec.json.encode(alive))
            raise
        self._powers.note(powers, orders.noted)
        if orders.seen:
            self._cloud["seen"] = {**self._cloud.get("seen", {}), **orders.seen}
            self._memory.keep(CLOUD, self._cloud)
        if orders.register_again:
            self._epoch = 0
            self._woken = True
            return
        for order in orders.steps:
            await self._begin(order)
        self._woken = self._woken or orders.more

    async def _begin(self, order: StepOrder) -> None:
        """Begin a step. The newest order for a server wins; older ones are dropped with an answer.

        Without it the sender could wait forever: if its database was restored, it may not know the newer order.
        """
        seen = self._turns.get(order.server, (0, 0))
        running = self._running.get(order.server)
        if (order.turn, order.ordinal) < seen:
            self._decline(order, seen)
            return
        if running is not None:
            if (running.turn, running.ordinal) >= (order.turn, order.ordinal):
                return
            await self._abort(order.server)
        self._remember(order)
        task = asyncio.create_task(self._work(order))
        self._running[order.server] = Running(order.turn, order.ordinal, key_of(order), task)

    def _decline(self, order: StepOrder, seen: tuple[int, int]) -> None:
        """Report that an order was dropped; once at a time for each. A late report is refused and harmless."""
        if key_of(order) in self._declining:
            return
        text = (
            f"host {self.host}: order of turn {order.turn}, step {order.ordinal}, for server {order.server} is older "
            f"than turn {seen[0]}, step {seen[1]}, which this host has had; if a database was restored from a backup, "
            "run `kilonova db restored`"
        )
        error = error_of("order_outdated", text, elsewhere=False, final=True)
        task = asyncio.create_task(self._finish(order, None, error))
        self._declining[key_of(order)] = task
        task.add_done_callback(lambda _: self._declining.pop(key_of(order), None))
        logger.warning("%s", text)

    async def _abort(self, server: str) -> None:
        running = self._running.pop(server, None)
        if running is not None:
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)

    # -- one step -----------------------------------------------------------------------------------------------

    async def _work(self, order: StepOrder) -> None:
        OPERATION.set(order.operation)  # of this task, in all that it logs
        result, error = await self._perform(order)
        following = await self._finish(order, result, error, goes_on=True)
        running = self._running.get(order.server)
        if running is not None and (running.turn, running.ordinal) == (order.turn, order.ordinal):
            del self._running[order.server]
        if following is not None:
            await self._begin(following)
        await self._powers.read_again(order.server)

    async def _perform(self, order: StepOrder) -> tuple[JsonObject | None, JsonObject | None]:
        host = HostContext(
            driver=self.driver,
            claims=self.claims,
            host=self.host,
            server=order.server,
            copy=order.copy,
            facts=order.facts,
            guest=order.guest,
            secrets=order.secrets,
            uploads=self.world.uploads,
            guest_secrets=order.guest_secrets,
            image=order.image,
        )
        try:
            return msgspec.to_builtins(await self._function(order)(host) or StepResult()), None
        except Failed as failed:
            return None, error_of(failed.code, failed.message, elsewhere=not failed.final, final=failed.final)
        except Exception as unexpected:
            logger.exception("host %s: %s of operation %s failed", self.host, order.name, order.operation)
            text = f"{type(unexpected).__name__}: {unexpected}"
            return None, error_of("unexpected", text, elsewhere=True, final=False)

    def _function(self, order: StepOrder) -> HostWork:
        """Find a step by its name (law 14)."""
        try:
            step = self._registry[order.kind].step(order.name)
        except LookupError:
            text = f"this agent does not know {order.kind}/{order.name}"
            raise Failed("unknown_step", text, final=True) from None
        return step.host_work(order.way)

    async def _finish(
        self, order: StepOrder, result: JsonObject | None, error: JsonObject | None, *, goes_on: bool = False
    ) -> StepOrder | None:
        """Report until a conductor answers; return the next step. After a refusal, beat: register again? (law 7)"""
        while True:
            message = Finish(
                host=self.host,
                session=self.session,
                epoch=self._epoch,
                journal=order.journal,
                operation=order.operation,
                ordinal=order.ordinal,
                result=result,
                error=error,
                filters=self.driver.filters_ports,
                goes_on=goes_on,
            )
            try:
                answer = await self._ask("conductor.finish", message, Finished)
            except NoAnswer:
                await self.world.clock.sleep(self._interval / 4)
                continue
            if not answer.accepted:
                self._note_refusal(order, answer.why)
                self._look()
            return answer.order if message.epoch == self._epoch else None  # begins nothing before it has settled

    def _note_refusal(self, order: StepOrder, why: str) -> None:
        """Log why a result was refused, once per reason. Nothing is lost: the step is handed out again, or was no
        longer this host's."""
        if why != self._refusal:
            logger.debug("host %s: the result of %s came too late: %s", self.host, order.name, why)
        self._refusal = why

    async def _ask(self, subject: str, message: Any, kind: type[T]) -> T:
        answer = await self.world.bus.call(subject, msgspec.json.encode(message), timeout=self._interval / 2)
        return msgspec.json.decode(answer, type=kind)

    @property
    def _memory(self) -> HostMemory:
        assert self.world.memory is not None
        return self.world.memory

    def _remember(self, order: StepOrder) -> None:
        self._turns.pop(order.server, None)
        self._turns[order.server] = (order.turn, order.ordinal)
        self._memory.keep(order.server, self._turns[order.server])
        while len(self._turns) > REMEMBERED:
            oldest = next(iter(self._turns))
            del self._turns[oldest]
            self._memory.drop(oldest)
