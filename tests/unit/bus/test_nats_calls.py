"""Calls over NATS without a broker: what happens between nats-py and its caller."""

from __future__ import annotations

import asyncio
from typing import Any

from kilonova.bus.nats import NatsBus


class SlowClient:
    """Waits as nats-py does."""

    is_connected = True

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def request(self, *_: object, **__: object) -> Any:
        return await asyncio.wait_for(self.answer, 30)


def test_a_call_that_is_cancelled_as_its_answer_arrives_ends_cancelled() -> None:
    """asyncio.wait_for drops such a cancellation, and a conductor did not end on SIGTERM."""

    async def body() -> None:
        bus: Any = NatsBus("nats://127.0.0.1:1", "asker")
        client = bus._client = SlowClient()
        bus._up.set()
        call = asyncio.create_task(bus.call("anything", b""))
        await asyncio.sleep(0.01)
        client.answer.set_result(None)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    asyncio.run(body())
