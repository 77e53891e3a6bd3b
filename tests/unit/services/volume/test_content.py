"""Who may read and write what a simulated guest finds on a volume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Refused
from kilonova.domain.volume import Content
from kilonova.services.volume.attachment_steps import secret_of
from kilonova.services.volume.content import LONGEST, ask
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.records import attachment, volume
from tests.unit.services.volume.shop import Seal, Story

Control = Callable[[Story], None]
CONNECTED = {"host": "host1", "connected_at": 1.0, "status": "attached"}
OWN = attachment(**CONNECTED)
SECRET = secret_of(Seal(), OWN)


def test_the_holder_of_the_secret_reads_and_writes(control: Control) -> None:
    async def story(here: Ledger) -> None:
        contents = here.volumes.contents
        await here.volume(volume(OWN, status="in-use"))
        assert await contents.read("a", SECRET) == ""
        assert await contents.write("a", SECRET, "one") == "one"
        assert await contents.write("a", SECRET, "two") == "one+two"
        assert await contents.write("a", SECRET, "") == "one+two" == await contents.read("a", SECRET)
        assert ((await here.now()).marker, (await here.now("0-other")).marker) == ("one+two", "")

    ledger(control, story)


@pytest.mark.parametrize(
    "changed", [{"connected_at": None}, {"connected_at": 2.0}, {"status": "detaching"}, {"id": "another"}]
)
def test_nobody_else_does(control: Control, changed: dict[str, Any]) -> None:
    async def story(here: Ledger) -> None:
        contents = here.volumes.contents
        await here.volume(volume(attachment(**{**CONNECTED, **changed}), status="in-use", marker="hidden"))
        for secret in (SECRET, ""):
            assert await code(contents.read("a", secret)) == "volume_connection_closed"
            assert await code(contents.write("a", secret, "x")) == "volume_connection_closed"
        assert (await here.now()).marker == "hidden"

    ledger(control, story)


def test_who_only_reads_does_not_write(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(attachment(**CONNECTED, mode="ro"), status="in-use", marker="old"))
        assert await here.volumes.contents.read("a", SECRET) == "old"
        assert await refused(here.volumes.contents.write("a", SECRET, "x")) == "Volume v is attached read-only."

    ledger(control, story)


def test_a_volume_is_full_some_day(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(OWN, status="in-use"))
        assert len(await here.volumes.contents.write("a", SECRET, "x" * (LONGEST - 2))) == LONGEST - 2
        assert len(await here.volumes.contents.write("a", SECRET, "y")) == LONGEST
        assert len(await here.volumes.contents.write("a", SECRET, "")) == LONGEST
        assert "may have 4096 characters" in await refused(here.volumes.contents.write("a", SECRET, "z"))

    ledger(control, story)


def test_hosts_ask_over_the_bus(control: Control) -> None:
    async def story(here: Ledger) -> None:
        hub = MemoryHub()
        host = MemoryBus(hub, "host1")
        await host.start()
        for name in ("api", "conductor"):  # one of them answers
            inside = MemoryBus(hub, name)
            await inside.start()
            await here.volumes.contents.serve(inside)
        await here.volume(volume(OWN, status="in-use"))
        assert await ask(host, Content(attachment="a", secret=SECRET, text="one")) == "one"
        assert await ask(host, Content(attachment="a", secret=SECRET)) == "one"
        with pytest.raises(Refused, match="connect it again") as why:
            await ask(host, Content(attachment="a", secret="x"))
        assert why.value.code == "volume_connection_closed"

    ledger(control, story)
