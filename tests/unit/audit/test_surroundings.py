"""What is read around the servers, in all databases, and which differences two readings confirm."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.audit.differences import AuditRecords
from kilonova.audit.surroundings import AT_ONCE, _read, find_differences
from kilonova.domain.errors import StoreError
from kilonova.domain.guest import CopyReport
from kilonova.domain.server import SOFT_DELETED
from kilonova.schema.tables import cell, control, journal, network, volume
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_audit_rows import HOST, Run, put
from tests.engine.test_restored import RESTORED_AT, server
from tests.unit.audit.test_reading import finding, operation

COPY = {"server_id": "s", "copy": 1, "host": "host1", "state": "whole", "claim": None, "operation_id": ""}
HELD = {"server_id": "s", "copy": 2, "host": "host2", "reason": "why", "power": "off"}
DEBT = {"server_id": "s", "copy": 3, "host": "host2", "verb": "ensure_absent", "after": "{}", "operation_id": ""}
ATTACHMENT = {"id": "a", "volume_id": "v", "server_id": "s", "host": "host1", "turn": 3}
OTHER = {"id": "other", "provider_id": "another", "identity": "third"}


def texts(table: Any) -> dict[str, Any]:
    return {column.name: "" for column in table.c if str(column.type) == "TEXT" and not column.nullable}


async def put_all(stores: Any) -> None:
    """Of each table one row that counts, and one for each reason why a row does not."""
    one, at_cell = stores.control, stores.cell("cell1")
    port = {**texts(network.ports), "id": "p", "device_id": "s", "host": "host1", "slot": 0}
    for number, change in enumerate(({}, {"id": "q", "slot": -1}, {"id": "r", "device_id": ""})):
        await put(one, network.ports, {**port, "mac": f"fa:16:3e:00:00:0{number}", **change})
    await put(one, network.changed_ports, {"server_id": "changed"})
    reserved = {**texts(volume.attachments), **ATTACHMENT}
    await put(one, volume.attachments, reserved, {**reserved, "id": "b", "volume_id": "w", "turn": 0})
    stored = {**texts(volume.volumes), "id": "v", "status": "in-use"}
    await put(one, volume.volumes, stored, {**stored, "id": "w", "status": "available"})
    await put(one, control.build_requests, {"server_id": "unplaced"})
    await put(one, journal.operations, operation("o", server_id="live"), operation("p", server_id="ended", live=0))
    await put(one, journal.operations, operation("h", server_id=None))
    await put(one, journal.findings, finding("f", server_id="left"), finding("g", server_id="settled", open=0))
    left = server(id="soft", vm_state=SOFT_DELETED, turn=4, turn_floor=4)
    new = {**left, "id": "new", "turn": 5, "details": f'{{"soft_deleted_at": {RESTORED_AT + 1}}}'}
    gone = {**left, "id": "gone", "deleted": 1}
    await put(at_cell, cell.servers, server(turn=7), left, new, gone, {**left, "id": "runs", "vm_state": "active"})
    await put(at_cell, cell.copies, COPY)
    await put(at_cell, cell.quarantine, HELD, {**HELD, "copy": 4, "ended_at": 1.0})
    await put(at_cell, cell.debts, DEBT)
    hosts = ({"name": "down", "forced_down": 1}, {"name": "off", "fenced": "{}"}, {"name": "back", "returning": 1})
    await put(at_cell, cell.hosts, HOST)
    for host in hosts:
        await put(at_cell, cell.hosts, {**HOST, **{key: f"{key} of {host['name']}" for key in OTHER}, **host})
    await put(at_cell, journal.operations, operation("q", server_id="in-cell"))
    await put(at_cell, journal.findings, finding("i", server_id="left-in-cell"))


async def restore(store: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.change(tx, this_store, {"restored_at": RESTORED_AT}, id=1)

    await store.write(body)


@pytest.mark.parametrize("was_restored", [False, True])
def test_records_are_read_from_control_and_from_the_cells(run: Run, was_restored: bool) -> None:
    async def story(stores: Any) -> None:
        await put_all(stores)
        if was_restored:
            await restore(stores.cell("cell1"))
        records = await _read(stores)
        found = {**vars(records), **{name: list(vars(records)[name]) for name in ("ports", "attachments", "volumes")}}
        for name in ("ports", "attachments", "volumes"):
            found[name] = [row["id"] for row in found[name]]
        found["servers"] = {name: row["id"] for name, row in records.servers.items()}
        assert found == vars(
            AuditRecords(
                servers={name: name for name in ("s", "soft", "new", "runs")},  # type: ignore[misc]
                copies={("s", 1, "host1"): "whole"},
                excused={("s", 2, "host2"), ("s", 3, "host2")},
                hosts={"host1": "cell1"},
                ports=["p"],  # type: ignore[list-item]
                changed={"changed"},
                attachments=["a"],  # type: ignore[list-item]
                volumes=["v"],  # type: ignore[list-item]
                attached={"v", "w"},
                busy={"unplaced", "live", "left", "in-cell", "left-in-cell"},
                turns={"s": 7, "soft": 4, "new": 5, "gone": 4, "runs": 4},
                not_reclaimed={"soft"} if was_restored else set(),
                complete=True,
            )
        )

    run(story)


async def away(*_: Any, **__: Any) -> None:
    raise StoreError("no answer")


class Scene:
    """A recorded copy of server s, on host1 of cell1; cell0 is away in the readings that are named."""

    def __init__(self, stores: Any, *away_in: int) -> None:
        self.stores, self.away_in, self.readings = stores, away_in, 0
        cells = {"cell0": SimpleNamespace(read=self._read), "cell1": stores.cell("cell1")}
        stores.cells, stores.cell = lambda: list(cells), cells.__getitem__

    async def _read(self, *_: Any) -> tuple[list[Any], ...]:
        self.readings += 1
        if self.readings in self.away_in:
            raise StoreError("no answer")
        return ([],) * 7

    async def kinds(self, answer: list[CopyReport] | None = None) -> tuple[list[str], list[str]]:
        async def ask(cell_name: str, host: str) -> Any:
            assert (cell_name, host) == ("cell1", "host1")
            return answer

        at_cell = self.stores.cell("cell1")
        await put(at_cell, cell.hosts, HOST)
        await put(at_cell, cell.servers, server(turn=5))
        await put(at_cell, cell.copies, COPY)
        found, silent = await find_differences(self.stores, ask)
        return [one.kind for one in found], silent


@pytest.mark.parametrize(
    ("away_in", "found"), [((), ["missing_copy"]), ((1, 2), ["missing_copy"]), ((1,), []), ((2,), [])]
)
def test_nothing_is_found_if_a_cell_answered_only_once(run: Run, away_in: tuple[int, ...], found: list[str]) -> None:
    async def story(stores: Any) -> None:
        assert await Scene(stores, *away_in).kinds([]) == (found, [])

    run(story)


def test_the_second_reading_is_only_for_what_was_found(run: Run) -> None:
    async def story(stores: Any) -> None:
        scene = Scene(stores)
        assert await scene.kinds([CopyReport("s", 1, "on", True)]) == ([], [])
        assert scene.readings == 1
        assert await find_differences(stores, None) == ([], []), "no host is asked, so none is silent"

    run(story)


def test_a_host_that_does_not_answer_is_silent_and_loses_no_copy(run: Run) -> None:
    async def story(stores: Any) -> None:
        assert await Scene(stores).kinds(None) == ([], ["host1"])

    run(story)


def test_hosts_are_asked_at_the_same_time_but_not_all(run: Run) -> None:
    asked, most = 0, 0

    async def ask(cell_name: str, host: str) -> Any:
        nonlocal asked, most
        asked += 1
        most = max(asked, most)
        await asyncio.sleep(0)
        asked -= 1
        return []

    async def story(stores: Any) -> None:
        hosts = ({**HOST, **{key: f"{key}{number}" for key in ("name", *OTHER)}} for number in range(AT_ONCE + 6))
        await put(stores.cell("cell1"), cell.hosts, *hosts)
        assert await find_differences(stores, ask) == ([], [])
        assert most == AT_ONCE

    run(story)
