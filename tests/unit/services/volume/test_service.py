"""The door to volumes: what it wires together when nobody says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.services.volume.creating import NewVolume
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.service import Volumes
from tests.unit.control import Clock, Ids
from tests.unit.services.volume.ledger import Ledger, ledger
from tests.unit.services.volume.records import attachment, volume
from tests.unit.services.volume.shop import ALICE, BACKEND, Seal, Story

Control = Callable[[Story], None]


def test_a_request_wakes_the_worker_of_another_process(control: Control, tmp_path: Path) -> None:
    async def story(here: Ledger) -> None:
        hub = MemoryHub()
        api, other = MemoryBus(hub, "api"), MemoryBus(hub, "worker")
        await api.start()
        await other.start()
        volumes = Volumes(here.store, Clock(), Ids(), Seal(), backend=BACKEND, default_type="t", bus=api)
        worker = volumes.worker(NoBytes(), None)
        worker._pause = asyncio.Event().wait  # type: ignore[method-assign,assignment]
        await worker.start(other)
        worker._woken.clear()
        await volumes.volumes.create(ALICE, NewVolume(size=1))
        await asyncio.wait_for(worker._woken.wait(), 5)
        await worker.stop()

    ledger(control, story)


def test_a_cloud_without_a_bus_and_exports_goes_without(control: Control) -> None:
    async def story(here: Ledger) -> None:
        volumes = Volumes(here.store, Clock(), Ids(), Seal(), backend=BACKEND, default_type="t")
        made = await volumes.volumes.create(ALICE, NewVolume(size=1))
        assert made.type_id == "t" and volumes.zone == "nova"
        connected = attachment(host="host1", connected_at=1.0, status="attached")
        await here.volume(volume(connected, status="in-use"))
        await volumes.attachments.delete(ALICE, "a")
        assert (await here.now()).status == "available"

    ledger(control, story)
