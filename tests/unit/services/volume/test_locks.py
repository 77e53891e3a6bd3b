"""Whoever changes a record locks its row before it is read, so that two never decide by the same old state. SQLite
lets one transaction write at a time; the statements are those for PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.volume import BootSource
from kilonova.services.image.image import Image
from kilonova.services.volume.attachment_steps import secret_of
from kilonova.services.volume.changing import Said
from kilonova.services.volume.creating import NewVolume
from tests.unit.control import open_control
from tests.unit.services.volume.bench import Bench
from tests.unit.services.volume.ledger import Ledger, ledger, locked_tables
from tests.unit.services.volume.records import attachment, snapshot, volume
from tests.unit.services.volume.shop import ADMIN, ALICE, NOVA, PROJECT, SERVER, Seal

Act = Callable[[Ledger], Awaitable[Any]]
HELD = {"server_id": SERVER, "turn": 1, "host": "host1", "connected_at": 1.0, "status": "attached"}
CLIENTS = {**HELD, "turn": 0, "status": "attaching"}
IMAGE = Image(id="i", status="active", disk_format="raw", container_format="bare", owner=PROJECT, size=10, file="f")
FENCE = (SERVER, 5, 1)
CONNECTOR = {"host": "host2"}
ASKED = {"server_id": SERVER, "host": None, "device": None, "mode": "rw"}
SECRET = secret_of(Seal(), attachment(**CLIENTS))

FREE: dict[str, Act] = {
    "extend": lambda here: here.volumes.changes.extend(ALICE, "v", 5),
    "upload": lambda here: here.volumes.changes.upload(ALICE, "v", Image(id="", owner=PROJECT)),
    "revert": lambda here: here.volumes.changes.revert(ALICE, "v", "s"),
    "reimage": lambda here: here.volumes.changes.reimage(ALICE, "v", IMAGE),
    "retype": lambda here: here.volumes.changes.retype(ALICE, "v", "plain"),
    "set_readonly": lambda here: here.volumes.changes.set_readonly(ALICE, "v", True),
    "reset": lambda here: here.volumes.changes.reset(ADMIN, "v", Said(status="error")),
    "describe": lambda here: here.volumes.volumes.describe(ALICE, "v", {"name": "n"}),
    "edit_metadata": lambda here: here.volumes.volumes.edit_metadata(ALICE, "v", lambda old: old),
    "delete": lambda here: here.volumes.volumes.delete(ALICE, "v", cascade=True),
    "copy": lambda here: here.volumes.volumes.create(ALICE, NewVolume(source_id="v")),
    "take a snapshot": lambda here: here.volumes.snapshots.create(ALICE, "v", metadata={}),
    "reserve": lambda here: here.volumes.attachments.create(ALICE, "v", server_id=None),
    "mark": lambda here: here.volumes.attachments.mark(ALICE, "v", "reserve"),
    "initialize": lambda here: here.volumes.attachments.initialize(ALICE, "v", CONNECTOR),
    "attach": lambda here: here.volumes.attachments.attach(ALICE, "v", ASKED),
    "compute reserves": lambda here: here.volumes.servers.reserve(FENCE, project_id=PROJECT, volume_id="v"),
}
OF_SNAPSHOTS: dict[str, Act] = {
    "restore": lambda here: here.volumes.volumes.create(ALICE, NewVolume(snapshot_id="s")),
    "describe": lambda here: here.volumes.snapshots.describe(ALICE, "s", {"name": "n"}),
    "edit_metadata": lambda here: here.volumes.snapshots.edit_metadata(ALICE, "s", lambda old: old),
    "delete": lambda here: here.volumes.snapshots.delete(ALICE, "s"),
    "compute drops": lambda here: here.volumes.servers.drop_snapshot(FENCE, snapshot_id="s"),
}
OF_CLIENTS: dict[str, Act] = {
    "connect": lambda here: here.volumes.attachments.connect(ALICE, "a", CONNECTOR),
    "complete": lambda here: here.volumes.attachments.complete(ALICE, "a"),
    "delete": lambda here: here.volumes.attachments.delete(NOVA, "a"),
    "terminate": lambda here: here.volumes.attachments.terminate(ALICE, "v", CONNECTOR),
    "detach": lambda here: here.volumes.attachments.detach(ALICE, "v", "a"),
    "write": lambda here: here.volumes.contents.write("a", SECRET, "x"),
}
OF_COMPUTE: dict[str, Act] = {
    "connect": lambda here: here.volumes.servers.connect(FENCE, attachment_id="a", host="host2"),
    "complete": lambda here: here.volumes.servers.complete(FENCE, attachment_id="a"),
    "disconnect": lambda here: here.volumes.servers.disconnect(FENCE, attachment_id="a"),
    "release": lambda here: here.volumes.servers.release(FENCE, attachment_id="a"),
    "reimage": lambda here: here.volumes.servers.reimage(FENCE, attachment_id="a", image_id="i"),
    "goes with it": lambda here: here.volumes.servers.set_delete_on_termination(FENCE, attachment_id="a", delete=True),
    "snapshot": lambda here: here.volumes.servers.snapshot(
        FENCE, snapshot_id="n", attachment_id="a", name="n", user_id="u"
    ),
}
OF_TYPES: dict[str, Act] = {
    "update": lambda here: here.volumes.types.update(ADMIN, "plain", {"name": "n"}),
    "delete": lambda here: here.volumes.types.delete(ADMIN, "shared"),
    "specs": lambda here: here.volumes.types.edit_specs(ADMIN, "shared", lambda old: {}),
    "grant": lambda here: here.volumes.types.grant(ADMIN, "private", "p"),
}
CASES = [
    *((name, "volumes", act, (), "available") for name, act in FREE.items()),
    *((name, "volume_snapshots", act, (), "available") for name, act in OF_SNAPSHOTS.items()),
    *((name, "volumes", act, (attachment(**CLIENTS),), "attaching") for name, act in OF_CLIENTS.items()),
    *((name, "volumes", act, (attachment(**HELD),), "in-use") for name, act in OF_COMPUTE.items()),
    *((name, "volume_types", act, (), "available") for name, act in OF_TYPES.items()),
]


@pytest.mark.parametrize(
    ("table", "act", "held", "status"),
    [case[1:] for case in CASES],
    ids=[f"{name} of {table}" for name, table, *_ in CASES],
)
def test_what_is_changed_is_locked_before_it_is_read(
    tmp_path: Path, table: str, act: Act, held: tuple[Any, ...], status: str
) -> None:
    async def story(here: Ledger) -> None:
        await here.image(IMAGE)
        await here.type("private", is_public=0)
        await here.volume(volume(*held, size=3, status=status))
        await here.snapshots(snapshot(size=3))
        with locked_tables() as locked:
            await act(here)
        assert table in locked

    ledger(lambda told: asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", told)), story)


ALSO: dict[str, tuple[Act, list[str]]] = {
    "revert": (FREE["revert"], ["volumes", "volume_snapshots"]),
    "compute copies a volume": (
        lambda here: here.volumes.servers.create_for_boot(
            FENCE, slot=1, project_id=PROJECT, user_id="u", size=None, source=BootSource(volume_id="v")
        ),
        ["volumes", "volume_types"],
    ),
    "use of a type": (lambda here: here.volumes.volumes.create(ALICE, NewVolume(size=1)), ["volume_types"]),
}


@pytest.mark.parametrize(("act", "expected"), ALSO.values(), ids=ALSO)
def test_what_is_needed_is_locked_until_it_is_noted(tmp_path: Path, act: Act, expected: list[str]) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(size=3))
        await here.snapshots(snapshot(size=3))
        seen: list[str] = []
        with locked_tables(seen):
            await act(here)
        assert seen == expected

    ledger(lambda told: asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", told)), story)


@pytest.mark.parametrize("work", ["create", "extend", "delete", "snapshot"])
def test_the_end_of_a_piece_of_work_locks_its_record(tmp_path: Path, work: str) -> None:
    async def story(store: Any) -> None:
        bench = Bench(store, tmp_path)
        record: Any = await (bench.snapshot("delete") if work == "snapshot" else bench.volume(work))
        with locked_tables() as locked:
            await bench.tasks.do(record)
        assert ("volume_snapshots" if work == "snapshot" else "volumes") in locked

    asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", story))


def test_all_volumes_of_a_server_are_locked(tmp_path: Path) -> None:
    """Before the quota is: whoever grows one of them takes the two in the same order."""

    async def story(here: Ledger) -> None:
        await here.volume(volume(attachment(**HELD), status="in-use"))
        every: list[str] = []
        with locked_tables(every):
            await here.volumes.servers.release_all(FENCE, delete=["v"])
        assert every.count("volumes") == 4, "its two volumes, when they are cut and when they go"

    ledger(lambda told: asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", told)), story)
