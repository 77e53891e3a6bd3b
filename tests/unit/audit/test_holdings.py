"""What a host has, as an audit reads it from the answer; anything else is no answer, and the audit goes on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.audit.holdings import ask_host, asking
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.guest import CopyReport
from kilonova.domain.messages import Holdings

COPIES = [CopyReport(server="s", copy=1, power="on", whole=True)]


class Bus:
    def __init__(self, answer: bytes | Exception) -> None:
        self.answer, self.subjects = answer, list[str]()

    async def call(self, subject: str, body: bytes, *, timeout: float) -> bytes:
        self.subjects.append(subject)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


STORES: Any = SimpleNamespace(bus_prefix={"cell1": "", "cell2": "east"}.get)


def said(answer: bytes | Exception) -> Any:
    bus: Any = Bus(answer)
    return asyncio.run(ask_host(bus, STORES, "cell1", "host1"))


def test_a_host_says_what_it_has() -> None:
    assert said(msgspec.json.encode(Holdings(copies=COPIES))) == COPIES


@pytest.mark.parametrize(
    "answer",
    [
        NoAnswer("host1 does not answer"),
        Failed("unreachable", "the bus is away"),
        b"",
        b"not JSON",
        b"[]",
        b'{"copies": 7}',
        b'{"copies": [{"server": "s", "copy": "first"}]}',
    ],
    ids=["silent", "bus away", "empty", "not JSON", "another document", "another form", "copies of another form"],
)
def test_a_host_whose_answer_is_missing_or_unreadable_counts_as_silent(answer: bytes | Exception) -> None:
    assert said(answer) is None


def test_hosts_are_asked_on_the_bus_of_their_cell() -> None:
    bus: Any = Bus(msgspec.json.encode(Holdings(copies=[])))

    async def both() -> None:
        for cell in ("cell1", "cell2"):
            assert await asking(bus, STORES)(cell, "host1") == []

    asyncio.run(both())
    assert len(set(bus.subjects)) == 2 and [one.startswith("east.") for one in bus.subjects] == [False, True]
