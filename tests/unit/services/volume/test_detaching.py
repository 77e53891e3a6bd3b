"""An attachment goes in an order that others can rely on: its connection is dropped first, then the volume is free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kilonova.services.volume.changing import Said
from kilonova.services.volume.files import NoBytes
from tests.unit.services.volume.shop import ADMIN, ALICE, OTHER, PROJECT, SERVER, refusal, shop
from tests.unit.services.volume.test_attachments import CONNECTOR, Control, reserved, status


class Crash(Exception):
    """The process ended here."""


class Closing:
    """What is asked of the backend, and what the volume showed at that moment."""

    def __init__(self) -> None:
        self.here: Any = None
        self.seen: list[tuple[str, bool]] = []
        self.crashes = False

    async def close(self, places: Iterable[tuple[str, str]]) -> None:
        for _, volume_id in places:
            volume = await self.here.volumes.volumes.find(ADMIN, volume_id)
            self.seen.append((volume.status, any(one.is_connected for one in volume.attachments)))
        if self.crashes:
            raise Crash


def by_compute(verb: str, **more: Any) -> Callable[[Any, str, str], Awaitable[Any]]:
    async def act(here: Any, volume: str, attachment: str) -> None:
        about = {} if verb == "release_all" else {"attachment_id": attachment}
        await getattr(here.volumes.servers, verb)((SERVER, 1, 9), **about, **more)

    return act


WAYS: dict[str, tuple[Callable[[Any, str, str], Awaitable[Any]], str]] = {
    "release": (by_compute("release"), "available"),
    "release_all": (by_compute("release_all"), "available"),
    "disconnect": (by_compute("disconnect"), "reserved"),
    "delete": (lambda here, volume, one: here.volumes.attachments.delete(ADMIN, one), "available"),
    "force_detach": (
        lambda here, volume, one: here.volumes.attachments.detach(ADMIN, volume, one, force=True),
        "available",
    ),
    "reset": (
        lambda here, volume, one: here.volumes.changes.reset(
            ADMIN, volume, Said(status="available", attach_status="detached")
        ),
        "available",
    ),
}


@pytest.mark.parametrize("crashes", [False, True], ids=["at once", "after a crash in between"])
@pytest.mark.parametrize("way", WAYS)
def test_a_volume_is_free_only_when_its_connection_is_dropped(
    control: Control, tmp_path: Path, way: str, crashes: bool
) -> None:
    act, afterwards = WAYS[way]

    async def story(store: Any) -> None:
        closing = Closing()
        async with shop(store, tmp_path, NoBytes(), close=closing.close) as here:
            closing.here = here
            volume = (await here.volume()).id
            if way == "delete":
                _, made = await here.volumes.attachments.create(ALICE, volume, server_id=SERVER, connector=CONNECTOR)
                attachment = made.id
                await here.volumes.attachments.complete(ALICE, attachment)
            else:
                attachment = await reserved(here, volume)
                await here.volumes.servers.connect((SERVER, 1, 7), attachment_id=attachment, host="host1")
                await here.volumes.servers.complete((SERVER, 1, 8), attachment_id=attachment)
            closing.seen.clear()
            if crashes:
                closing.crashes = True
                with pytest.raises(Crash):
                    await act(here, volume, attachment)
                closing.crashes = False
                assert await status(here, volume) == "detaching"
                taken = here.volumes.servers.reserve((OTHER, 1, 1), project_id=PROJECT, volume_id=volume)
                assert await refusal(taken) == "invalid_volume", "nobody else gets it meanwhile"
            await act(here, volume, attachment)
            assert closing.seen == [("detaching", False)], "the secret is void by then, and nobody sees the volume free"
            assert await status(here, volume) == afterwards

    control(story)
