"""How a simulated host reaches a volume when nobody answers it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kilonova.compute.drivers.simulated.volumes import READS, BusVolumes
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.guest import GuestVolume

VOLUME = GuestVolume(attachment="a", volume="v", connection={"data": {"auth_password": "secret"}})


class Bus:
    """Nobody answers the first `silent` questions."""

    def __init__(self, silent: int, told: dict[str, str]) -> None:
        self.silent, self.told = silent, told
        self.asked = 0

    async def call(self, subject: str, body: bytes) -> bytes:
        self.asked += 1
        if self.asked <= self.silent:
            raise NoAnswer("nobody answers")
        return msgspec.json.encode(self.told)


def of(silent: int, **told: str) -> tuple[Bus, BusVolumes]:
    bus = Bus(silent, told)
    return bus, BusVolumes(bus)  # type: ignore[arg-type]


def failure(work: Any) -> Failed:
    with pytest.raises(Failed) as caught:
        asyncio.run(work)
    return caught.value


def test_a_question_that_nobody_answers_is_asked_again() -> None:
    bus, volumes = of(silent=READS - 1, marker="hello")
    assert asyncio.run(volumes.read(VOLUME)) == "hello"
    assert bus.asked == READS


def test_not_for_ever() -> None:
    bus, volumes = of(silent=READS, marker="hello")
    why = failure(volumes.read(VOLUME))
    assert (why.code, why.final, bus.asked) == ("volume_unreachable", False, READS)


def test_a_refusal_is_an_answer() -> None:
    bus, volumes = of(silent=0, code="volume_connection_closed", message="not connected with this secret")
    assert failure(volumes.read(VOLUME)).final and bus.asked == 1


def test_what_may_have_been_written_is_not_written_again() -> None:
    bus, volumes = of(silent=1, marker="hello")
    assert not failure(volumes.write(VOLUME, "hello")).final
    assert bus.asked == 1


def test_a_volume_that_is_not_connected_is_not_asked_for() -> None:
    bus, volumes = of(silent=0, marker="hello")
    for connection in ({}, {"data": {}}, {"data": {"auth_password": ""}}):
        why = failure(volumes.read(GuestVolume(attachment="a", volume="v", connection=connection)))
        assert (why.code, why.final, bus.asked) == ("volume_unreachable", True, 0)
