"""The target of notifications."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # the same however often it is sent
    event_type: str
    priority: str
    body: bytes  # JSON


class NotSent(Exception):
    """The notification was not accepted, or that is unknown; it is sent again."""


class NotificationTarget(Protocol):
    async def send(self, message: Message) -> None:
        """Return once it is accepted. Raise `NotSent`, in a time that is limited."""
