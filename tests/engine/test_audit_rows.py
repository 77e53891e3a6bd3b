"""What the audit reads: which records count, row by row, in real databases without a cloud."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.audit.findings import Report
from kilonova.audit.reading import Reading, _ask_ledger, read_all
from kilonova.audit.repair import _DROP_FENCE
from kilonova.audit.run import MOST_REPORTS, keep
from kilonova.audit.surroundings import _read, find_differences
from kilonova.domain.server import ACTIVE, SOFT_DELETED, to_json
from kilonova.domain.volume import ServerVolume
from kilonova.placement.fence import NEVER
from kilonova.schema.tables import cell, network, volume
from kilonova.schema.tables.control import audits
from kilonova.schema.tables.placement import claim_fence, ledger
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.store.badges import Badge, stamp
from kilonova.store.open_stores import open_store
from kilonova.world import Store, Tx
from tests.engine.test_restored import RESTORED_AT, report, server
from tests.store.conftest import WallClock
from tests.support.neighbours import Watched, put_neighbours, zeros

Run = Callable[[Callable[[Any], Awaitable[None]]], None]
HOST = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "forced_down": 0, "fenced": None}
HELD = {"host": "host2", "server_id": "s", "copy": 2, "reason": "why", "power": "off", "ended_at": None}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a story with the stores of a cloud that has one cell."""

    def runs(story: Callable[[Any], Awaitable[None]]) -> None:
        async def whole() -> None:
            opened = {
                name: await open_store(name, f"sqlite:///{tmp_path}/{name}.db", clock=WallClock())
                for name in ("control", "cell1", "placement")
            }
            await stamp(opened["cell1"], Badge(cloud="c", store="s", name="cell1", era=2))
            stores = SimpleNamespace(
                control=opened["control"],
                placement=opened["placement"],
                cells=lambda: ["cell1"],
                cell=lambda name: opened[name],
            )
            try:
                await story(stores)
            finally:
                for store in opened.values():
                    await store.close()

        asyncio.run(whole())

    return runs


async def put(store: Store, table: Any, *given: dict[str, Any]) -> None:
    async def body(tx: Tx) -> None:
        for row in given:
            await rows.put(tx, table, **zeros(table, **row))

    await store.write(body)


def test_only_hosts_that_answer_for_their_guests_are_asked(run: Run) -> None:
    """One that is declared down, fenced or returning may not know its own guests."""
    other = {"id": "g", "provider_id": "q", "identity": "j"}

    async def story(stores: Any) -> None:
        hosts = [
            HOST,
            {**HOST, **{name: f"{value}1" for name, value in other.items()}, "name": "down", "forced_down": 1},
            {**HOST, **{name: f"{value}2" for name, value in other.items()}, "name": "off", "fenced": "{}"},
            {**HOST, **{name: f"{value}3" for name, value in other.items()}, "name": "back", "returning": 1},
        ]
        await put(stores.cell("cell1"), cell.hosts, *hosts)
        assert (await _read(stores)).hosts == {"host1": "cell1"}

    run(story)


def test_a_copy_is_excused_while_it_is_in_quarantine(run: Run) -> None:
    async def story(stores: Any) -> None:
        await put(stores.cell("cell1"), cell.quarantine, HELD, {**HELD, "copy": 3, "ended_at": 1.0})
        assert (await _read(stores)).excused == {("s", 2, "host2")}
        assert (await read_all(stores)).quarantined == {("s", "host2")}

    run(story)


def test_a_word_that_was_carried_out_keeps_nothing_in_quarantine(run: Run) -> None:
    async def story(stores: Any) -> None:
        await put(stores.cell("cell1"), cell.quarantine, {**HELD, "ended_at": 1.0})
        assert not (await _read(stores)).excused and not (await read_all(stores)).quarantined

    run(story)


def test_only_ports_that_compute_gave_to_a_server_count(run: Run) -> None:
    port = {"id": "p", "device_id": "s", "slot": 0, "host": "host1"}

    async def story(stores: Any) -> None:
        texts = {column.name: "" for column in network.ports.c if str(column.type) == "TEXT" and not column.nullable}
        for number, other in enumerate(({}, {"id": "q", "slot": -1}, {"id": "r", "device_id": ""})):
            unique = {"mac": f"fa:16:3e:00:00:0{number}", "mac_address": f"fa:16:3e:00:00:0{number}"}
            known = {name: value for name, value in unique.items() if name in network.ports.c}
            await put(stores.control, network.ports, {**texts, **port, **known, **other})
        assert [row["id"] for row in (await _read(stores)).ports] == ["p"]

    run(story)


def test_only_volumes_in_use_count(run: Run) -> None:
    async def story(stores: Any) -> None:
        table = volume.volumes
        texts = {column.name: "" for column in table.c if str(column.type) == "TEXT" and not column.nullable}
        for name, status in (("v", "in-use"), ("w", "available")):
            await put(stores.control, table, {**texts, "id": name, "status": status})
        assert [row["id"] for row in (await _read(stores)).volumes] == ["v"]

    run(story)


def test_only_what_is_still_soft_deleted_is_reported_after_a_restore(run: Run) -> None:
    async def story(stores: Any) -> None:
        details = f'{{"soft_deleted_at": {RESTORED_AT - 1}}}'
        of = {"details": details, "turn": 1, "turn_floor": 1}
        servers = [
            server(**of, vm_state=SOFT_DELETED),
            server(**of, id="t", vm_state=ACTIVE),
            server(**of, id="u", vm_state=SOFT_DELETED, deleted=1),
        ]
        await put(stores.cell("cell1"), cell.servers, *servers)

        async def restore(tx: Tx) -> None:
            await rows.change(tx, this_store, {"restored_at": RESTORED_AT}, id=1)

        await stores.cell("cell1").write(restore)
        assert (await _read(stores)).not_reclaimed == {"s"}

    run(story)


def test_the_ledger_says_whose_a_lost_migration_was(run: Run) -> None:
    """Asked only about consumers that no record explains, and a server's own entries say nothing."""

    async def story(stores: Any) -> None:
        texts = {column.name: "" for column in ledger.c if str(column.type) == "TEXT" and not column.nullable}
        for consumer, owner in (("m", "s"), ("n", "t"), ("o", "o")):
            await put(stores.placement, ledger, {**texts, "consumer": consumer, "server_id": owner})
        reading = Reading(held={"m": {}, "n": {}, "o": {}}, server_of={"n": "u"})
        await _ask_ledger(stores.placement, reading)
        assert reading.server_of == {"m": "s", "n": "u"}

    run(story)


def test_a_repair_forgets_only_the_fence_that_it_made_itself(run: Run) -> None:
    fence = {"server_id": "s", "turn": NEVER, "ordinal": 0}

    async def story(stores: Any) -> None:
        async def body(tx: Tx) -> None:
            await put_neighbours(tx, claim_fence, fence, server_id="t", turn=3)
            await rows.put(tx, claim_fence, **zeros(claim_fence, **fence))
            fences = await Watched.since_now(tx, claim_fence)
            await tx.run(_DROP_FENCE, server="s")
            assert [row["server_id"] for row in await fences.changed(tx)] == ["s"]
            await rows.put(tx, claim_fence, **zeros(claim_fence, **{**fence, "turn": 3}))
            await tx.run(_DROP_FENCE, server="s")
            assert await rows.fetch(tx, claim_fence, server_id="s") is not None

        await stores.placement.write(body)

    run(story)


@pytest.mark.parametrize(
    ("before", "since", "is_found"),
    [
        ("whole", {}, True),
        ("making", {}, False),
        ("making", {"state": "whole"}, False),  # seen in the second look only
        ("whole", {"state": "making"}, False),  # gone by then
        ("whole", {"turn": 9}, False),  # an operation has begun and ended meanwhile
    ],
)
def test_a_difference_counts_if_it_is_there_before_and_after_the_hosts_were_asked(
    run: Run, before: str, since: dict[str, Any], is_found: bool
) -> None:
    copy = {"server_id": "s", "host": "host1", "copy": 1, "state": before, "claim": None, "operation_id": ""}

    async def story(stores: Any) -> None:
        journal = stores.cell("cell1")
        await put(journal, cell.hosts, HOST)
        await put(journal, cell.servers, server(turn=5))
        await put(journal, cell.copies, copy)

        async def ask(cell_name: str, host: str) -> Any:
            async def change(tx: Tx) -> None:
                table = cell.servers if "turn" in since else cell.copies
                if since:
                    await rows.change(tx, table, since)

            await journal.write(change)
            return [report(1, "on", whole=False)]

        found, silent = await find_differences(stores, ask)
        assert [one.kind for one in found] == (["damaged_copy"] if is_found else []) and silent == []

    run(story)


@pytest.mark.parametrize("is_root", [False, True])
def test_a_server_that_boots_from_a_volume_needs_no_disk_of_its_own(run: Run, is_root: bool) -> None:
    copy = {"server_id": "s", "host": "host1", "copy": 1, "state": "whole", "claim": None, "operation_id": ""}
    volumes = to_json([ServerVolume(id="b", volume_id="v", attachment_id="a", is_root=is_root)])

    async def story(stores: Any) -> None:
        journal = stores.cell("cell1")
        await put(journal, cell.hosts, HOST)
        await put(journal, cell.servers, server(turn=5, volume_info=volumes))
        await put(journal, cell.copies, copy)

        async def ask(cell_name: str, host: str) -> Any:
            return [report(1, "on", whole=False)]

        found, _ = await find_differences(stores, ask)
        assert ("damaged_copy" in {one.kind for one in found}) is not is_root

    run(story)


def test_the_newest_hundred_reports_are_kept(run: Run) -> None:
    async def story(stores: Any) -> None:
        empty: dict[str, Any] = {"findings": [], "unbalanced": [], "miscounted": [], "unknown": [], "unreachable": {}}
        for number in range(MOST_REPORTS + 3):
            await keep(stores, Report(float(number), 0.0, consumers=0, busy=0, foreign=[], **empty))

        async def find(tx: Tx) -> list[float]:
            return sorted(row["began"] for row in await rows.fetch_all(tx, audits))

        assert await stores.control.read(find) == [float(number) for number in range(3, MOST_REPORTS + 3)]

    run(story)
