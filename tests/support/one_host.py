"""One simulated host with its agent, and a conductor that says what a test tells it to."""

import asyncio
import random

import msgspec

from kilonova.bus import HOST_ALIVE, host_subject
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.agent import Agent
from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedMemory
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.messages import (
    Alive,
    Beat,
    Finish,
    Finished,
    Orders,
    Register,
    Registered,
    Returned,
    StepFacts,
    StepOrder,
)
from kilonova.engine.model import Operation, Step
from kilonova.logs import OPERATION
from kilonova.operations.facts import DESTINATION
from kilonova.sim.lab.process import SeededIds
from kilonova.sim.loop.event_loop import SimClock, SimLoop
from kilonova.sim.loop.process import Process
from kilonova.world import World

HOST, INTERVAL = "host1", 10.0
WRONG = {  # steps by these names end so
    "break": ZeroDivisionError("broken"),
    "fail": Failed("failed", "not here"),
    "refuse": Failed("refused", "nowhere", final=True),
}


class OneHost:
    """One host with its agent, and a conductor that says what the test tells it to."""

    def __init__(self, **machine):
        self.loop = SimLoop()
        asyncio.set_event_loop(self.loop)
        self.hub = MemoryHub()
        self.hardware = Hardware(clock_sleep=asyncio.sleep)
        self.hardware.add_host(HOST, **machine)
        self.orders = []  # the answer to the next heartbeat
        self.register_again = False
        self.verdicts = []  # what it hears when it registers
        self.refuses = self.cloud = ""  # and besides
        self.welcomes = True  # it hears that it has settled what it was told
        self.answer = {}  # more of the answer to the next heartbeat
        self.absent = False  # no conductor hears anything
        self.hangs = 0.0  # seconds that it takes to answer
        self.registered, self.alive = [], []
        self.beats, self.finished, self.log = [], [], []
        self.operations = []  # that steps were of, as a line of the log would say
        self.returned = []
        self.accepts = True
        self.following = []  # orders that come with the answers to results
        self.epoch = 1
        self.register_meanwhile = False  # before a result is answered, the host has to register again
        self.silent = False
        self.lives = 0
        self.agent = self.consoles = None
        self.loop.spawn(Process("conductor"), self._serve())
        self.start()

    async def _serve(self):
        self.bus = bus = MemoryBus(self.hub, "conductor")
        for word in ("register", "returned", "beat", "finish"):
            await bus.serve(f"conductor.{word}", getattr(self, f"_on_{word}"))
        await bus.serve(HOST_ALIVE, self._on_alive)

    async def _on_alive(self, body):
        self.alive.append(msgspec.json.decode(body, type=Alive))
        return b""

    async def _on_register(self, body):
        await self._hear()
        self.registered.append(msgspec.json.decode(body, type=Register))
        answer = Registered(epoch=self.epoch, verdicts=self.verdicts, refused=self.refuses, cloud=self.cloud)
        return msgspec.json.encode(answer)

    async def _on_returned(self, body):
        self.returned.append(msgspec.json.decode(body, type=Returned))
        return msgspec.json.encode(self.welcomes)

    async def _on_beat(self, body):
        await self._hear()
        self.beats.append(msgspec.json.decode(body, type=Beat))
        orders, self.orders = self.orders, []
        again, self.register_again = self.register_again, False
        more, self.answer = self.answer, {}
        return msgspec.json.encode(Orders(steps=orders, register_again=again, **more))

    async def _hear(self):
        if self.absent:
            raise NoAnswer("nobody is there")
        if self.hangs:
            await asyncio.sleep(self.hangs)

    async def _on_finish(self, body):
        await self._hear()
        if self.silent:
            await asyncio.sleep(2 * INTERVAL)
        self.finished.append(msgspec.json.decode(body, type=Finish))
        if self.register_meanwhile:
            self.register_again, self.epoch = True, self.epoch + 1
            await self.bus.cast(host_subject(HOST), b"")
            await asyncio.sleep(1.0)
        order = self.following.pop(0) if self.following else None
        return msgspec.json.encode(Finished(self.accepts, "" if self.accepts else "not now", order))

    def start(self):
        self.lives += 1
        self.process = Process(HOST)
        source = random.Random(self.lives)
        world = World(
            clock=SimClock(self.loop),
            ids=SeededIds(source),
            random=source,
            bus=MemoryBus(self.hub, HOST),
            driver=SimulatedDriver(self.hardware, HOST),
            memory=SimulatedMemory(self.hardware, HOST),
            consoles=self.consoles,
        )
        self.agent = Agent(world, HOST, {"toy": self._toy()}, report_interval=INTERVAL, storage="nfs1", cell="cell2")
        self.loop.spawn(self.process, self.agent.start())
        self.loop.run_for(1.0)

    def restart(self):
        """kill -9, and a new start on what it had written down."""
        self.kill()
        self.start()

    def kill(self):
        self.hub.detach(HOST)
        self.loop.kill(self.process)

    def wake(self):
        """As a conductor does that has work for it."""
        self.do(self.bus.cast(host_subject(HOST), b""))

    def do(self, work):
        """Run it to its end, in virtual time."""
        task = self.loop.spawn(Process("test"), work)
        self.loop.run_until(task.done, 3600.0)
        return task.result()

    def close(self):
        self.loop.close()
        asyncio.set_event_loop(None)

    def _toy(self):
        log = self.log

        async def work(host):
            self.operations.append(OPERATION.get())
            if host.facts.was in WRONG:
                raise WRONG[host.facts.was]
            log.append(f"{host.facts.was} begun")
            try:
                await asyncio.sleep(host.facts.size)
                log.append(f"{host.facts.was} done")
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)  # as a thread that has to end first
                log.append(f"{host.facts.was} aborted")
                raise

        class Toy(Operation):
            name = "toy"
            steps = [Step("work", work, on=DESTINATION, undo=work)]

        return Toy()

    def say(self, *orders, wait=2 * INTERVAL):
        self.orders = list(orders)
        self.loop.run_for(wait)


def order(name, turn, ordinal, seconds=0.0, server="s1", way="do"):
    return StepOrder(
        journal="cell1",
        operation=f"operation-{turn}",
        kind="toy",
        name="work",
        way=way,
        ordinal=ordinal,
        server=server,
        turn=turn,
        copy=turn,
        facts=StepFacts(was=name, size=int(seconds)),
    )
