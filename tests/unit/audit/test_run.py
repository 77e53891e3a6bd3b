"""An audit finds what two readings agree on, and mends only if it may."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from kilonova.audit.findings import Report
from kilonova.audit.run import audit, keep, read_reports
from kilonova.domain.errors import StoreError
from kilonova.domain.hardware import HardwareRequest, HostClaim
from kilonova.domain.numa import GuestCell
from kilonova.domain.server import Flavor, to_json
from kilonova.schema.tables import cell, control, journal, placement
from kilonova.schema.tables.quotas import quota_usages
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.engine.test_audit_rows import Run, put
from tests.engine.test_restored import server
from tests.placement.books import SMALL as SIZE
from tests.placement.books import Books
from tests.store.conftest import WallClock
from tests.unit.audit.test_reading import operation

SMALL = to_json(Flavor("small", 1, 1024, 10))
PINNED = to_json(Flavor("f", 1, 1, 1, hardware=HardwareRequest(cells=(GuestCell((), (0,), 1),))))
COPY = {"server_id": "s", "copy": 1, "host": "host1", "state": "whole", "operation_id": ""}
SPOIL = Sql(update(placement.inventories).values(used=placement.inventories.c.used + 5))
LOST = "s holds 10 DISK_GB 1024 MEMORY_MB 1 VCPU on host1, owns 10 DISK_GB 1024 MEMORY_MB 1 VCPU on host2"
Change = tuple[str, Any, dict[str, Any]]  # database, table, the new values of all its rows


async def put_books(stores: Any, **values: Any) -> Books:
    """Server s is recorded on host2; its claim is on host1."""
    books = Books(stores.placement)
    await books.hosts("host1", "host2")
    await books.claim("s", "host1")
    await put(stores.control, control.server_mappings, {"server_id": "s", "cell": "cell1", "project_id": "p"})
    await put(stores.cell("cell1"), cell.servers, server(turn=5, host="host2", flavor=SMALL, **values))
    return books


async def look(stores: Any, *, mend: bool = False) -> Report:
    return await audit(stores, WallClock(), mend=mend)


def between(stores: Any, change: Change) -> None:
    """Makes the change after the first reading: of it the cell is read last, after cell0."""
    at_cell, readings = stores.cell("cell1"), 0

    async def read(body: Any) -> Any:
        nonlocal readings
        answer = await at_cell.read(body)
        readings += 1
        if readings == 1:
            await make(stores, at_cell, change)
        return answer

    async def read_cell0(_: Any) -> Any:
        if change[0] == "away" and readings:
            raise StoreError("no answer")
        return ([],) * 7

    cells = {"cell0": SimpleNamespace(read=read_cell0), "cell1": SimpleNamespace(read=read)}
    stores.cells, stores.cell = lambda: list(cells), cells.__getitem__


async def make(stores: Any, at_cell: Any, change: Change) -> None:
    name, table, values = change
    store = {"placement": stores.placement, "control": stores.control, "cell1": at_cell}.get(name)

    async def body(tx: Tx) -> None:
        await rows.change(tx, table, values)

    if store is not None:
        await store.write(body)


@pytest.mark.parametrize(
    "change",
    [
        ("placement", placement.allocations, {"used": 3}),
        ("placement", placement.claim_fence, {"ordinal": 9}),
        ("placement", placement.consumers, {"generation": 9}),
        ("cell1", cell.servers, {"turn": 6}),
        ("cell1", cell.servers, {"claimed": '{"host2": {"VCPU": 3}}'}),
        ("cell1", cell.servers, {"host": "host1"}),
        ("away", None, {}),
    ],
    ids=lambda change: f"{change[0]}-{'-'.join(change[2])}",
)
def test_what_changes_between_two_readings_is_not_found(run: Run, change: Change) -> None:
    async def story(stores: Any) -> None:
        await put_books(stores)
        assert [finding.sentence for finding in (await look(stores)).findings] == [LOST]
        between(stores, change)
        report = await look(stores)
        assert (report.findings, report.unknown, report.foreign) == ([], [], [])

    run(story)


@pytest.mark.parametrize("is_mended", [False, True])
def test_hardware_counts_if_both_readings_find_it(run: Run, is_mended: bool) -> None:
    async def story(stores: Any) -> None:
        await put_books(stores)
        at_cell = stores.cell("cell1")
        at_host1 = {"host": "host1", "flavor": PINNED, "claimed": to_json({"host1": SIZE})}
        await make(stores, at_cell, ("cell1", cell.servers, at_host1))
        await put(at_cell, cell.copies, COPY)
        claim = to_json(HostClaim())
        between(stores, ("cell1", cell.copies, {"claim": claim}) if is_mended else ("none", None, {}))
        report = await look(stores)
        assert report.findings == [] and len(report.hardware) == (0 if is_mended else 1)
        assert report.is_clean is is_mended

    run(story)


def test_nobody_is_accused_for_what_is_unknown_or_foreign(run: Run) -> None:
    """A cell that is away may know a consumer of which nothing is known; else it is somebody else's."""

    async def away(_: Any) -> None:
        raise StoreError("no answer")

    async def story(stores: Any) -> None:
        books = await put_books(stores)

        async def client(tx: Tx) -> None:
            for table in (placement.claim_fence, placement.ledger):
                await rows.remove(tx, table)

        await books.claim("x", "host1")
        await stores.placement.write(client)
        report = await look(stores)
        assert ([one.consumer for one in report.findings], report.unknown, report.foreign) == (["s"], [], ["x"])
        cells = {"cell0": SimpleNamespace(read=away), "cell1": stores.cell("cell1")}
        stores.cells, stores.cell = lambda: list(cells), cells.__getitem__
        report = await look(stores)
        assert ([one.consumer for one in report.findings], report.unknown, report.foreign) == (["s"], ["x"], [])
        assert report.unreachable == {"cell0": "no answer"}

    run(story)


def test_only_an_audit_that_may_mend_changes_anything(run: Run) -> None:
    async def story(stores: Any) -> None:
        books = await put_books(stores)
        await put(stores.control, quota_usages, {"project_id": "p", "user_id": "u", "instances": 4})
        await stores.placement.write(lambda tx: tx.run(SPOIL))
        for mend, outcome in ((False, "found"), (False, "found"), (True, "repaired")):
            report = await look(stores, mend=mend)
            found = [*report.findings, *report.unbalanced, *report.miscounted]
            assert len(report.unbalanced) == 6 and len(found) == 8
            assert {one.outcome for one in found} == {outcome}
        assert await books.places() == {"s": {("host2", "")}}
        report = await look(stores)
        assert report.is_clean and (report.consumers, report.busy) == (1, 0)

    run(story)


def test_a_report_counts_the_consumers_and_those_with_an_open_operation(run: Run) -> None:
    async def story(stores: Any) -> None:
        books = await put_books(stores)
        await books.claim("t", "host1")
        await put(stores.cell("cell1"), journal.operations, operation("o", server_id="s"))
        await put(stores.control, journal.operations, operation("p", server_id="holds-nothing"))
        report = await look(stores)
        assert (report.consumers, report.busy) == (2, 1)
        assert report.began <= report.ended

    run(story)


def test_reports_are_kept_and_read_the_newest_first(run: Run) -> None:
    async def story(stores: Any) -> None:
        await put_books(stores)
        reports = [await look(stores), await look(stores)]
        for report in reports:
            await keep(stores, report)
        assert await read_reports(stores, 10) == reports[::-1]
        assert await read_reports(stores, 1) == reports[1:]

    run(story)
