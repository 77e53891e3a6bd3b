"""When a host asks for its document, and which answer it applies."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import msgspec
import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.network.follower import Declared, NetworkFollower
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.host_network import NetworkAnswer, NetworkDocument, NetworkQuestion, pack, version_of

AGENT = {"host": "host1", "session": "s"}
INTERVAL = 4.0


class Network:
    def __init__(self):
        self.moment, self.applied = 0, []

    async def update(self, document, asked_at):
        self.applied.append((document, asked_at))


class Conductor:
    """Has one document; remembers what it was asked."""

    def __init__(self):
        self.document, self.questions = NetworkDocument(peers={"n": ["192.0.2.1"]}), []

    async def answer(self, body):
        question = msgspec.json.decode(body, type=NetworkQuestion)
        self.questions.append(question)
        packed = pack(self.document)
        version = version_of(packed)
        return msgspec.json.encode(NetworkAnswer(version=version, document=b"" if version == question.have else packed))


def play(story, *, epoch=1, interval=60.0):
    async def body():
        bus = MemoryBus(MemoryHub(), "host1")
        await bus.start()
        conductor, network = Conductor(), Network()
        await bus.serve("conductor.network", conductor.answer)
        agent = SimpleNamespace(**AGENT, epoch=epoch)
        declared = Declared("192.0.2.7", is_node=True)
        follower = NetworkFollower(agent, network, bus, interval=interval, declared=declared)
        try:
            await story(SimpleNamespace(follower=follower, network=network, conductor=conductor, agent=agent, bus=bus))
        finally:
            await follower.stop()
            await bus.close()

    asyncio.run(body())


async def until_applied(it, number):
    async with asyncio.timeout(20):
        while len(it.network.applied) < number:  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.01)
    assert len(it.network.applied) == number


def test_a_document_is_applied_once():
    async def story(it):
        assert await it.follower.look() and await it.follower.look()
        assert it.network.applied == [(it.conductor.document, 0)]
        assert it.conductor.questions[0].tunnel_address == "192.0.2.7" and it.conductor.questions[0].is_node

    play(story)


def test_after_a_port_was_plugged_the_document_is_applied_again():
    """The order may not know the members of groups: without this they would be shut out until the next change."""

    async def story(it):
        await it.follower.look()
        it.network.moment = 3
        await it.follower.look()
        assert [asked_at for _, asked_at in it.network.applied] == [0, 3]

    play(story)


@pytest.mark.parametrize("while_it", ["asks", "applies"])
def test_a_port_that_is_plugged_meanwhile_is_compared_at_the_next_look(while_it):
    """The order may know older rules than the document that was asked for before it."""

    async def story(it):
        answer, update = it.conductor.answer, it.network.update

        async def plugged(verb, *given):
            it.network.moment = 5
            return await verb(*given)

        if while_it == "asks":
            await it.bus.serve("conductor.network", lambda body: plugged(answer, body))
        else:
            it.network.update = lambda *given: plugged(update, *given)
        assert await it.follower.look()
        assert await it.follower.look() and await it.follower.look()
        assert [asked_at for _, asked_at in it.network.applied] == [0, 5]

    play(story)


def test_a_host_that_is_not_registered_does_not_ask():
    async def story(it):
        assert not await it.follower.look()
        assert it.conductor.questions == []

    play(story, epoch=0)


def test_a_wake_up_is_enough_and_none_is_needed():
    async def story(it):
        await it.follower.start()
        await until_applied(it, 1)
        it.conductor.document = NetworkDocument()
        await it.bus.cast("host.host1.network", b"")
        await until_applied(it, 2)
        assert [document for document, _ in it.network.applied][1:] == [NetworkDocument()]

    async def without(it):
        await it.follower.start()
        await until_applied(it, 1)
        it.conductor.document = NetworkDocument()
        await until_applied(it, 2)
        assert [document for document, _ in it.network.applied][1:] == [NetworkDocument()]

    play(story)
    play(without, interval=0.3)


def test_a_document_that_cannot_be_applied_is_tried_again():
    async def story(it):
        applied = it.network.update

        async def fails(document, asked_at):
            it.network.update = applied
            raise OSError("no such device")

        it.network.update = fails
        began = asyncio.get_running_loop().time()
        await it.follower.start()
        await until_applied(it, 1)
        assert asyncio.get_running_loop().time() - began < INTERVAL, "earlier than the next interval"

    play(story, interval=INTERVAL)


def test_one_wake_up_is_one_question():
    async def story(it):
        await it.follower.start()
        await until_applied(it, 1)
        for asked in (1, 2):
            for _ in range(100):  # time enough for many more
                await asyncio.sleep(0)
            assert len(it.conductor.questions) == asked
            it.follower.wake()

    play(story)


def test_when_it_is_stopped_nothing_runs_any_more():
    async def story(it):
        before = asyncio.all_tasks()
        await it.follower.stop()  # it did not begin
        await it.follower.start()
        await until_applied(it, 1)
        await it.follower.stop()
        assert asyncio.all_tasks() == before

    play(story)


def test_an_answer_that_changes_nothing_and_one_of_nobody():
    """A conductor that does not know the host says so by an answer without a version."""

    async def story(it):
        assert await it.follower.look()

        async def unknown(body):
            return msgspec.json.encode(NetworkAnswer(version="", document=b""))

        agent = SimpleNamespace(**AGENT, epoch=1)
        bus = SimpleNamespace(call=lambda subject, body, timeout: unknown(body))
        other = NetworkFollower(agent, it.network, bus, interval=60.0, declared=Declared())
        assert not await other.look()
        assert len(it.network.applied) == 1

    play(story)


def test_what_a_host_asks_with():
    async def story(it):
        for _ in range(2):
            await it.follower.look()
        first, second = it.conductor.questions
        assert (first.host, first.session, first.epoch, first.have) == ("host1", "s", 1, "")
        assert second.have == version_of(pack(it.conductor.document))
        it.network.moment = 3
        await it.follower.look()
        await it.follower.look()
        assert [one.have for one in it.conductor.questions[2:]] == ["", second.have]

    play(story)


@pytest.mark.parametrize(
    ("look", "pause"),
    [("registered", 8.0), ("unregistered", 1.0), ("silence", 2.0), ("fault", 2.0)],
)
def test_when_it_looks_again(monkeypatch, caplog, look, pause):
    """After an interval, a quarter of it where something went wrong, and soon where the host is not registered yet."""
    pauses = []

    class Timeout:
        def __init__(self, seconds):
            pauses.append(seconds)

        async def __aenter__(self):
            if len(pauses) > 1:
                raise asyncio.CancelledError

        async def __aexit__(self, *_):
            pass

    async def body():
        follower = NetworkFollower(SimpleNamespace(**AGENT), None, None, interval=8.0, declared=Declared())

        async def looked():
            if look == "silence":
                raise NoAnswer("nobody")
            if look == "fault":
                raise Failed("network_program_failed", "no such device")
            return look == "registered"

        follower.look = looked
        monkeypatch.setattr(asyncio, "timeout", Timeout)
        follower._task = asyncio.create_task(follower._live())
        await asyncio.sleep(0)
        follower.wake()
        with contextlib.suppress(asyncio.CancelledError):
            await follower._task

    asyncio.run(body())
    assert pauses == [pause, pause]
    assert ("networks of host host1: no such device" in caplog.text) is (look == "fault")
