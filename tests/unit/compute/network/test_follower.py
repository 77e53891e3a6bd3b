"""When a host asks for its document, and which answer it applies."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.network.follower import Declared, NetworkFollower
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
