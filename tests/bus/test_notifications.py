"""Notifications on NATS, read by a client that knows nothing of Kilonova; a JetStream stream keeps and answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest

from kilonova.bus.nats import NatsBus
from kilonova.notifications.bus import BusTarget
from kilonova.notifications.target import Message, NotSent
from tests.support.servers import Nats

pytestmark = pytest.mark.nats
TOPICS = ("versioned_notifications",)
MESSAGE = Message(id="m1", event_type="instance.create.error", priority="ERROR", body=b'{"a": 1}')


class StreamingNats(Nats):
    directory = Path()

    def _command(self) -> list[str]:
        return [*super()._command(), "-js", "-sd", str(self.directory)]


@pytest.fixture
def streaming(nats: Nats, tmp_path: Path) -> Iterator[Nats]:
    StreamingNats.directory = tmp_path
    with StreamingNats() as server:
        yield server


def run(url: str, story: Any) -> None:
    async def body() -> None:
        async with asyncio.timeout(20):
            bus, listener = NatsBus(url, "conductor-1", prefix="cloud"), await nats_client.connect(url)
            await bus.start()
            try:
                await story(bus, listener)
            finally:
                await listener.close()
                await bus.close()

    asyncio.run(body())


def test_who_listens_gets_them(nats: Nats) -> None:
    async def story(bus: NatsBus, listener: Any) -> None:
        heard = await listener.subscribe("cloud.versioned_notifications.*")
        await listener.flush()
        await BusTarget(bus, TOPICS).send(MESSAGE)
        message = await heard.next_msg(timeout=10)
        assert (message.subject, message.data) == ("cloud.versioned_notifications.error", MESSAGE.body)

    run(nats.url, story)


def test_without_anybody_who_answers_it_is_not_accepted(nats: Nats) -> None:
    async def story(bus: NatsBus, listener: Any) -> None:
        with pytest.raises(NotSent):
            await BusTarget(bus, TOPICS, answered_within=0.5).send(MESSAGE)

    run(nats.url, story)


def test_a_stream_keeps_and_answers_them(streaming: Nats) -> None:
    async def story(bus: NatsBus, listener: Any) -> None:
        stream = listener.jetstream()
        await stream.add_stream(name="notifications", subjects=["cloud.versioned_notifications.*"])
        await BusTarget(bus, TOPICS, answered_within=10.0).send(MESSAGE)
        kept = await stream.get_msg("notifications", 1)
        assert (kept.subject, kept.data) == ("cloud.versioned_notifications.error", MESSAGE.body)

    run(streaming.url, story)
