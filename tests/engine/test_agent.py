"""What an agent does with its orders, whoever sends them and however they arrive (law 4)."""

import asyncio
import logging
import random

import msgspec
import pytest

from kilonova.bus import host_subject
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.agent import Agent
from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedMemory
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.domain.messages import Beat, Finish, Finished, Orders, Registered, Returned, StepFacts, StepOrder, Verdict
from kilonova.engine.model import Operation, Step
from kilonova.operations.facts import DESTINATION
from kilonova.sim.lab.process import SeededIds
from kilonova.sim.loop.event_loop import SimClock, SimLoop
from kilonova.sim.loop.process import Process
from kilonova.world import World

HOST, INTERVAL = "host1", 10.0


class Room:
    """One host with its agent, and a conductor that says what the test tells it to."""

    def __init__(self):
        self.loop = SimLoop()
        asyncio.set_event_loop(self.loop)
        self.hub = MemoryHub()
        self.hardware = Hardware(clock_sleep=asyncio.sleep)
        self.hardware.add_host(HOST)
        self.orders = []  # the answer to the next heartbeat
        self.register_again = False
        self.verdicts = []  # what it hears when it registers
        self.beats, self.finished, self.log = [], [], []
        self.returned = []
        self.accepts = True
        self.following = []  # orders that come with the answers to results
        self.epoch = 1
        self.register_meanwhile = False  # before a result is answered, the host has to register again
        self.silent = False
        self.lives = 0
        self.agent = None
        self.loop.spawn(Process("conductor"), self._serve())
        self.start()

    async def _serve(self):
        self.bus = bus = MemoryBus(self.hub, "conductor")
        for word in ("register", "returned", "beat", "finish"):
            await bus.serve(f"conductor.{word}", getattr(self, f"_on_{word}"))

    async def _on_register(self, body):
        return msgspec.json.encode(Registered(epoch=self.epoch, verdicts=self.verdicts))

    async def _on_returned(self, body):
        self.returned.append(msgspec.json.decode(body, type=Returned))
        return b"true"

    async def _on_beat(self, body):
        self.beats.append(msgspec.json.decode(body, type=Beat))
        orders, self.orders = self.orders, []
        again, self.register_again = self.register_again, False
        return msgspec.json.encode(Orders(steps=orders, register_again=again))

    async def _on_finish(self, body):
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
        )
        self.agent = Agent(world, HOST, {"toy": self._toy()}, report_interval=INTERVAL)
        self.loop.spawn(self.process, self.agent.start())
        self.loop.run_for(1.0)

    def restart(self):
        """kill -9, and a new start on what it had written down."""
        self.hub.detach(HOST)
        self.loop.kill(self.process)
        self.start()

    def _toy(self):
        log = self.log

        async def work(host):
            log.append(f"{host.facts.was} begun")
            try:
                await asyncio.sleep(host.facts.size)
                log.append(f"{host.facts.was} done")
            except asyncio.CancelledError:
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


@pytest.fixture
def room():
    room = Room()
    yield room
    room.loop.close()
    asyncio.set_event_loop(None)


def test_an_order_is_done_and_told(room):
    room.say(order("a", 1, 1))
    assert room.log == ["a begun", "a done"]
    assert [(f.operation, f.ordinal, f.error) for f in room.finished] == [("operation-1", 1, None)]


def test_the_next_step_may_come_with_the_answer(room):
    room.following = [order("b", 1, 2), order("c", 1, 3)]
    room.say(order("a", 1, 1), wait=INTERVAL)
    assert room.log == ["a begun", "a done", "b begun", "b done", "c begun", "c done"]
    assert [(f.ordinal, f.goes_on) for f in room.finished] == [(1, True), (2, True), (3, True)]
    assert not any(beat.pull for beat in room.beats[1:]), "nobody had to be asked"


@pytest.mark.parametrize("meanwhile", [False, True], ids=["", "unless it had to register meanwhile"])
def test_a_step_that_comes_with_the_answer_is_begun(room, meanwhile):
    """What is decided about the host while it registers comes first; then the step is handed out again."""
    room.register_meanwhile, room.following = meanwhile, [order("b", 1, 2)]
    room.say(order("a", 1, 1), wait=1.5 * INTERVAL)
    assert room.log == ["a begun", "a done", *([] if meanwhile else ["b begun", "b done"])]


@pytest.mark.parametrize("late", [(1, 9), (2, 2)], ids=["of an earlier turn", "of an earlier step"])
@pytest.mark.parametrize("again", [False, True], ids=["", "after a restart"])
def test_an_order_that_comes_too_late_is_dropped(room, late, again):
    room.say(order("new", 2, 3))
    if again:
        room.restart()
    room.say(order("late", *late))
    assert room.log == ["new begun", "new done"]
    (answer,) = [f for f in room.finished if f.error is not None]
    assert (answer.operation, answer.ordinal) == (f"operation-{late[0]}", late[1]), "and whoever sent it hears so"
    assert (answer.error["code"], answer.error["final"]) == ("order_outdated", True)
    assert "is older than turn 2, step 3" in answer.error["message"]


def test_an_order_that_was_dropped_is_answered_until_somebody_hears(room):
    room.say(order("new", 2, 3))
    room.silent = True
    room.say(order("late", 1, 1), wait=12.0)
    room.say(order("late", 1, 1), wait=28.0)
    room.silent = False
    room.loop.run_for(40.0)
    assert room.log == ["new begun", "new done"]
    assert room.finished[-1].error["code"] == "order_outdated"
    told = len(room.finished)
    room.loop.run_for(60.0)
    assert len(room.finished) == told, "then it is quiet"


def test_one_servers_orders_say_nothing_of_anothers(room):
    room.say(order("a", 5, 5))
    room.say(order("b", 1, 1, server="s2"))
    assert room.log == ["a begun", "a done", "b begun", "b done"]


def test_a_doubled_order_is_done_once_while_it_is_under_way(room):
    room.say(order("a", 1, 1, seconds=100.0), order("a", 1, 1, seconds=100.0))
    room.say(order("a", 1, 1, seconds=100.0), wait=200.0)
    assert room.log == ["a begun", "a done"]
    assert any(beat.has == ["operation-1/1"] for beat in room.beats), "the conductor hears what is under way"


@pytest.mark.parametrize("higher", [(1, 2), (2, 1)], ids=["step", "turn"])
def test_a_higher_order_aborts_a_lower_one_before_it_begins(room, higher):
    room.say(order("low", 1, 1, seconds=100.0))
    room.say(order("high", *higher, way="undo"), wait=200.0)
    assert room.log == ["low begun", "low aborted", "high begun", "high done"]
    assert [f.ordinal for f in room.finished] == [higher[1]], "an aborted step has no result"


def test_two_servers_are_worked_on_at_once(room):
    room.say(order("a", 1, 1, seconds=50.0), order("b", 1, 1, seconds=5.0, server="s2"), wait=100.0)
    assert room.log == ["a begun", "b begun", "b done", "a done"]


def test_a_result_is_told_until_somebody_answers(room):
    room.silent = True
    room.say(order("a", 1, 1), wait=40.0)
    room.silent = False
    room.loop.run_for(40.0)
    assert room.log == ["a begun", "a done"]
    assert len(room.finished) > 1 and room.finished[-1].ordinal == 1


def test_a_refused_result_undoes_nothing_and_asks_what_there_is(room):
    room.accepts = False
    room.say(order("a", 1, 1), wait=1.5 * INTERVAL)
    assert room.log == ["a begun", "a done"]
    assert len(room.finished) == 1
    assert room.beats[-1].pull, "it asks what should be there"


def test_many_refused_results_are_noted_once_and_quietly(room, caplog):
    room.accepts = False
    with caplog.at_level(logging.DEBUG, logger="kilonova.compute.agent"):
        room.say(*(order(name, 1, 1, server=name) for name in "abc"), wait=1.5 * INTERVAL)
    assert len(room.finished) == 3
    noted = [(entry.levelno, entry.getMessage()) for entry in caplog.records]
    assert noted == [(logging.DEBUG, "host host1: the result of work came too late: not now")]


def test_what_a_step_does_not_expect_is_told_as_an_error(room):
    unknown = msgspec.structs.replace(order("a", 1, 1), name="nonsense")
    room.say(unknown)
    assert room.finished[0].error["code"] == "unknown_step" and room.finished[0].error["final"]


@pytest.mark.parametrize(
    ("word", "run", "goes_on"),
    [("adopt", True, False), ("stop", False, False), ("adopt", False, True)],
    ids=["it should run", "it should be off", "an operation is under way"],
)
def test_what_is_decided_while_a_step_is_under_way_ends_that_step(room, word, run, goes_on):
    """Its operation has ended without this host: going on would change again what was just decided."""
    room.hardware.plant(HOST, "s1", 1, power="off")
    room.say(order("old", 1, 1, seconds=100.0))
    room.register_again, room.verdicts = True, [Verdict("s1", 1, word, "decided meanwhile", run)]
    room.loop.run_for(200.0)
    assert room.log == ["old begun", "old done" if goes_on else "old aborted"]
    assert bool(room.hardware.running("s1")) == run


@pytest.mark.parametrize(("how", "tries"), [("error", 3), ("refuse", 1)])
def test_a_guest_that_cannot_be_started_keeps_its_host_from_nothing_for_long(room, how, tries):
    """The others are adopted, the host works, and it says which one is off and why."""
    for server in ("bad", "good"):
        room.hardware.plant(HOST, server, 1, power="off")
    room.hardware.fail(HOST, "ensure_power", 3, how)
    room.returned.clear()
    room.register_again, room.verdicts = (
        True,
        [Verdict("bad", 1, "adopt", "", True), Verdict("good", 1, "adopt", "", True)],
    )
    if how == "refuse":
        room.hardware.fail(HOST, "ensure_power", 1, how)
        room.verdicts.pop()
    room.loop.run_for(10 * INTERVAL)
    (message,) = room.returned
    assert ("bad", 1, False) in message.adopted
    ((server, copy, reason),) = message.failed
    assert (server, copy) == ("bad", 1) and "ensure_power" in reason
    assert room.hardware.running("good") or tries == 1
    assert len(room.beats) > 2, "it works"


def test_the_servers_of_which_it_has_heard_lately_are_remembered(room, monkeypatch):
    """Which one came first does not count: an order that is older than another server's last one may still turn up."""
    monkeypatch.setattr("kilonova.compute.agent.REMEMBERED", 2)
    for turn, server in enumerate(["s1", "s2", "s1", "s3"], start=1):
        room.say(order(server, turn, 1, server=server))
    kept = room.hardware.recall(HOST)
    assert {name: kept.get(name) for name in ("s1", "s2", "s3")} == {"s1": [3, 1], "s2": None, "s3": [4, 1]}
    room.say(order("late", 1, 1, server="s1"))
    assert "late begun" not in room.log
