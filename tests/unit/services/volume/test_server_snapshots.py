"""Snapshots of a server's volumes, which an image of the server names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kilonova.domain.volume import SnapshotState
from kilonova.services.volume.volume import STATES
from tests.unit.services.volume.ledger import Ledger, code, ledger
from tests.unit.services.volume.records import attachment, snapshot, volume
from tests.unit.services.volume.shop import PROJECT, SERVER, Story

Control = Callable[[Story], None]
CONNECTED = {"server_id": SERVER, "turn": 1, "host": "host1", "connected_at": 1.0, "status": "attached"}


@pytest.mark.parametrize("status", STATES)
def test_a_snapshot_for_an_image_of_the_server(control: Control, status: str) -> None:
    async def story(here: Ledger) -> None:
        servers = here.volumes.servers
        await here.volume(volume(attachment(**CONNECTED), size=3, marker="m", status=status))
        wish = {"snapshot_id": "n", "attachment_id": "a", "name": "of it", "user_id": "u"}
        told = await code(servers.snapshot((SERVER, 5, 1), **wish))
        assert told == ("" if status == "in-use" else "invalid_volume")
        assert len(await here.taken()) == (0 if told else 1)
        if told:
            assert await servers.snapshot_state("n") is None and await here.used() == {}
            return
        one = (await here.taken())["n"]
        assert (one.project_id, one.user_id, one.name, one.size, one.marker) == (PROJECT, "u", "of it", 3, "m")
        assert one.work == "create" and one.work_id and one.created_at == here.clock.at and here.woken == 1
        await servers.snapshot((SERVER, 5, 2), **wish)
        assert (await here.taken())["n"] == one and await here.used() == {"snapshots": 1, "gigabytes": 3}
        assert await servers.snapshot_state("n") == SnapshotState(id="n", status="creating", size=3)

    ledger(control, story)


def test_a_snapshot_that_nobody_needs_is_dropped(control: Control) -> None:
    async def story(here: Ledger) -> None:
        servers = here.volumes.servers
        await here.volume(volume())
        await here.snapshots(snapshot(status="error", reason="r", size=3, work_tries=2))
        assert await servers.snapshot_state("s") == SnapshotState(id="s", status="error", size=3, reason="r")
        await servers.drop_snapshot((SERVER, 5, 1), snapshot_id="s")
        one = (await here.taken())["s"]
        assert (one.status, one.work, one.work_tries, here.woken) == ("deleting", "delete", 0, 1) and one.work_id
        await servers.drop_snapshot((SERVER, 5, 2), snapshot_id="s")
        assert (await here.taken())["s"] == one and (await here.taken("0-other"))["0-s"].work == ""
        await servers.drop_snapshot((SERVER, 5, 3), snapshot_id="none")

    ledger(control, story)
