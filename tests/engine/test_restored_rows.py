"""What the word after a restore writes about one server is not written to its neighbours."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.params import BuildRequest, ServerSpec
from kilonova.domain.server import Flavor, flavor_document, to_json
from kilonova.domain.volume import ServerVolume, WantedVolume, server_volumes
from kilonova.engine.restored import _fail_unplaced, _protect_servers
from kilonova.engine.restored_records import Whereabouts, _map_to, record_attachments, settle_homes
from kilonova.engine.restored_volumes import keep_volumes_in_control, keep_volumes_of_servers
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import COPY, MOVE, NOW, SERVER, play, saying, store_of
from tests.support.neighbours import Watched, zeros

NAMES = ("0", "s")
SMALL, LARGE = Flavor("small", 1, 512, 1), Flavor("large", 4, 2048, 1)


def spec(name: str, **values: Any) -> dict[str, Any]:
    return {"project_id": "p", "user_id": "u", "created_at": NOW, "name": name, "flavor": SMALL, **values}


async def each(tx: Tx, table: Any, column: str) -> dict[str, Any]:
    key = "id" if "id" in table.c else "server_id"
    return {row[key]: row[column] for row in await rows.fetch_all(tx, table)}


def test_deleted_servers_stay_as_they_are(tmp_path: Path) -> None:
    differing = [{"vm_state": "building"}, {"runner_host": None, "runner_copy": None}, {"runner_host": "host2"}]
    kinds: list[dict[str, Any]] = [{}, *differing, {"runner_copy": 2}]

    async def body(tx: Tx) -> None:
        for number, (of, deleted) in enumerate(itertools.product(kinds, (0, 1))):
            await rows.put(tx, cell.servers, **{**SERVER, **of, "id": str(number), "deleted": deleted})
        before = await Watched.since_now(tx, cell.servers)
        assert await _protect_servers(tx, 3) == len(kinds)
        assert [row["deleted"] for row in await before.changed(tx)] == [0] * len(kinds)

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("move", "is_reverted"), [({}, True), ({"open": 0}, False), ({"status": "finished"}, False)], ids=str
)
def test_a_server_is_as_before_a_move_that_was_being_reverted(
    tmp_path: Path, move: dict[str, Any], is_reverted: bool
) -> None:
    """Of one that was reverted long ago nothing follows: the server was resized again since."""
    reverted = {**MOVE, "status": "reverted", "old_vm_state": "stopped", **move}

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **{**SERVER, "vm_state": "resized"})
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **reverted))
        await _protect_servers(tx, 3)
        assert (await each(tx, cell.servers, "vm_state"))["s"] == ("stopped" if is_reverted else "resized")

    play(tmp_path, body)


@pytest.mark.parametrize("deleted", [0, 1])
def test_an_attachment_is_recorded_with_its_own_server(tmp_path: Path, deleted: int) -> None:
    attached = {"id": "a", "volume_id": "v", "server_id": "s", "device": "/dev/vdb"}

    async def body(tx: Tx) -> None:
        known = to_json([ServerVolume(id="a", volume_id="v")])
        for name, info in (("0", known), ("s", None)):
            await rows.put(tx, cell.servers, **{**SERVER, "id": name, "volume_info": info, "deleted": deleted})
        stores: Any = SimpleNamespace(control=saying([attached]), cell=lambda name: store_of(tx))
        assert await record_attachments(stores, "cell1") == 1 - deleted
        found = {name: [one.volume_id for one in server_volumes(info)] for name, info in await volume_info(tx)}
        assert found == {"0": ["v"], "s": [] if deleted else ["v"]}

    play(tmp_path, body)


async def volume_info(tx: Tx) -> Any:
    return (await each(tx, cell.servers, "volume_info")).items()


def test_each_server_keeps_its_own_volumes(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        for name in (*NAMES, "deleted"):
            volumes = [ServerVolume(id=name, volume_id=f"v{name}", delete_on_termination=True)]
            values = {"id": name, "volume_info": to_json(volumes), "deleted": int(name == "deleted")}
            await rows.put(tx, cell.servers, **{**SERVER, **values})
        assert len(await keep_volumes_of_servers(tx)) == 2
        found = {
            name: [(one.volume_id, one.delete_on_termination) for one in server_volumes(info)]
            for name, info in await volume_info(tx)
        }
        assert found == {"0": [("v0", False)], "s": [("vs", False)], "deleted": [("vdeleted", True)]}

    play(tmp_path, body)


def test_each_request_keeps_its_own_volumes(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        for name in NAMES:
            volumes = [WantedVolume(volume_id=f"v{name}", delete_on_termination=True)]
            await rows.put(
                tx, control.request_specs, server_id=name, spec=to_json(ServerSpec(**spec(name, volumes=volumes)))
            )
        await keep_volumes_in_control(tx)
        found = await each(tx, control.request_specs, "spec")
        assert all(f'"v{name}"' in found[name] and "delete_on_termination" not in found[name] for name in NAMES)

    play(tmp_path, body, "control")


def test_each_server_that_was_being_built_keeps_its_own_request(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        for name in NAMES:
            request = BuildRequest(**spec(name), vm_state="building")
            values = {"server_id": name, "turn": 1, "operation_id": "o", "created_at": NOW}
            await rows.put(tx, control.build_requests, **values, server=to_json(request))
        await _fail_unplaced(tx, 3)
        found = await each(tx, control.build_requests, "server")
        assert all(f'"name":"{name}"' in found[name] and '"vm_state":"error"' in found[name] for name in NAMES)

    play(tmp_path, body, "control")


@pytest.mark.parametrize("is_stray", [True, False])
def test_only_the_server_that_is_elsewhere_leaves_a_cell(tmp_path: Path, is_stray: bool) -> None:
    """One that is at home here, and was on its way, is shown."""
    here = {"deleted": 0, "hidden": 1, "launched_at": None}
    there = {"deleted": 0, "hidden": 0, "launched_at": NOW if is_stray else None}
    places = {"cell1": here, "cell2": there} if is_stray else {"cell1": here}

    async def body(tx: Tx) -> None:
        for name in NAMES:
            await rows.put(tx, cell.servers, **{**SERVER, "id": name, "hidden": 1})
            await rows.put(tx, cell.copies, **zeros(cell.copies, **{**COPY, "server_id": name}))
            debt = {"host": "h", "server_id": name, "verb": "ensure_absent", "after": "{}", "operation_id": ""}
            await rows.put(tx, cell.debts, **zeros(cell.debts, **debt))
        before = [await Watched.since_now(tx, table) for table in (cell.servers, cell.copies, cell.debts)]
        whereabouts = Whereabouts(recorded={"s": places})  # type: ignore[dict-item]
        stores: Any = SimpleNamespace(control=saying(set()), cells=lambda: ["cell1"], cell=lambda name: store_of(tx))
        await settle_homes(stores, whereabouts)
        changed = [[row.get("server_id") or row["id"] for row in await table.changed(tx)] for table in before]
        assert changed == ([["s"], ["s"], ["s"]] if is_stray else [["s"], [], []])
        assert ("s" in await each(tx, cell.servers, "id")) != is_stray

    play(tmp_path, body)


def test_only_the_server_itself_is_mapped(tmp_path: Path) -> None:
    """With its own size; the request that waited for a cell is over."""
    row: Any = {**SERVER, "flavor": flavor_document(LARGE), "hidden": 0}

    async def body(tx: Tx) -> None:
        for name in NAMES:
            mapping = {"server_id": name, "cell": None, "project_id": "p", "user_id": "u", "queued_for_delete": 1}
            await rows.put(tx, control.server_mappings, **zeros(control.server_mappings, **mapping))
            request = {"server_id": name, "operation_id": "o", "server": "{}"}
            await rows.put(tx, control.build_requests, **zeros(control.build_requests, **request))
            await rows.put(tx, control.request_specs, server_id=name, spec=to_json(ServerSpec(**spec(name))))
        tables = (control.server_mappings, control.build_requests, control.request_specs)
        before = [await Watched.since_now(tx, table) for table in tables]
        mapping = await rows.fetch(tx, control.server_mappings, server_id="s")
        assert await _map_to(tx, "s", mapping, "cell1", row, NOW)
        assert [[one["server_id"] for one in await table.changed(tx)] for table in before] == [["s"], ["s"], ["s"]]
        assert '"name":"s"' in (await each(tx, control.request_specs, "spec"))["s"]

    play(tmp_path, body, "control")


@pytest.mark.parametrize("hidden", [0, 1])
def test_a_hidden_record_waits_for_its_own_request(tmp_path: Path, hidden: int) -> None:
    row: Any = {**SERVER, "flavor": flavor_document(SMALL), "hidden": hidden}

    async def body(tx: Tx) -> None:
        for name in NAMES:
            request = {"server_id": name, "operation_id": "o", "server": "{}"}
            await rows.put(tx, control.build_requests, **zeros(control.build_requests, **request))
            assert await _map_to(tx, "s", None, "cell1", row, NOW) == (name == "0" or not hidden)
            await rows.remove(tx, control.server_mappings, server_id="s")

    play(tmp_path, body, "control")
