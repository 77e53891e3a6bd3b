"""Notifications on the bus, on Nova's topics: `<prefix>.<topic>.<priority>`.

NATS itself stores nothing: without an answer, only the present subscribers get a message. A JetStream stream on these
subjects stores and answers each, so that nothing is lost on the way to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.domain.errors import Failed, NoAnswer
from kilonova.notifications.target import Message, NotSent
from kilonova.world import Bus


class BusTarget:
    def __init__(self, bus: Bus, topics: Sequence[str], *, answered_within: float | None = None) -> None:
        """`answered_within`: seconds; None: no answer is needed."""
        self._bus, self._topics, self._seconds = bus, topics, answered_within

    async def send(self, message: Message) -> None:
        if not self._bus.is_connected():
            raise NotSent("the bus is not connected")
        for topic in self._topics:
            subject = f"{topic}.{message.priority.lower()}"
            try:
                if self._seconds is None:
                    await self._bus.cast(subject, message.body)
                else:
                    await self._bus.call(subject, message.body, timeout=self._seconds)
            except (NoAnswer, Failed) as error:
                raise NotSent(f"{subject}: {error}") from error
