"""Lists of servers from control and every cell: who is in them, each once, and what a cell that is away leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kilonova.domain.errors import Unreachable
from kilonova.domain.server import ARRIVING
from kilonova.schema.tables import cell, control
from kilonova.services.compute import server_lists
from kilonova.services.compute.server_lists import ServerQuery, page
from kilonova.services.compute.server_order import ServerOrder, ServerPage, SortKey, column_key
from kilonova.store import rows
from kilonova.store.server_records import ServerRecord, find_partial
from tests.unit.services.compute.fleet import Fleet, Run

ALL = ServerPage(1000)
NEWEST = ServerOrder()
BY_NAME = ServerOrder([column_key("name", False)])
BY_HOST = ServerOrder([column_key("host", True)])
BY_FLAVOR = ServerOrder([SortKey(lambda record: record.flavor.name, False)])  # no column: each cell gives everything


async def listed(
    fleet: Fleet, wanted: ServerQuery | None = None, order: ServerOrder = NEWEST, of: ServerPage = ALL
) -> list[str]:
    return [record.id for record in await page(fleet.stores, wanted or ServerQuery(), order, of)]


async def one_of_each(fleet: Fleet) -> None:
    """a, b in two cells, c still asked for, d buried; x of another project, y deleted."""
    await fleet.place("a", "cell1", created_at=4.0, updated_at=14.0, host="h1")
    await fleet.place("b", "cell2", created_at=3.0, updated_at=13.0, host="h2", vm_state="stopped")
    await fleet.request("c", created_at=2.0)
    await fleet.place("d", "cell0", created_at=1.0, updated_at=11.0, vm_state="error")
    await fleet.place("x", "cell1", created_at=6.0, updated_at=16.0, host="h1", project_id="office")
    await fleet.place("y", "cell1", created_at=5.0, updated_at=15.0, host="h1", deleted=1, vm_state="deleted")


QUERIES: dict[str, tuple[dict[str, Any], str]] = {
    "all": ({}, "xabcd"),
    "deleted too": ({"deleted": None}, "xyabcd"),
    "deleted alone": ({"deleted": True}, "y"),
    "of a project": ({"project_id": "lab"}, "abcd"),
    "of the other": ({"project_id": "office"}, "x"),
    "on a host": ({"host": "h1"}, "xa"),
    "on a host of a project": ({"host": "h1", "project_id": "lab", "deleted": None}, "ya"),
    "in a state": ({"vm_states": frozenset({"stopped", "building"})}, "bc"),
    "changed since": ({"changed_since": 13.0}, "xab"),
    "changed before": ({"changed_before": 13.0}, "bcd"),
    "changed before all": ({"changed_before": 1.5}, ""),
    "changed since a request came": ({"changed_since": 2.0}, "xabcd"),
    "changed since then": ({"changed_since": 2.5}, "xabd"),
    "changed in between": ({"changed_since": 11.0, "changed_before": 13.0}, "bd"),
    "by a predicate": ({"matches": lambda record: record.id in "adx"}, "xad"),
}


@pytest.mark.parametrize("order", [NEWEST, BY_FLAVOR], ids=["by columns", "by values"])
def test_what_each_filter_takes(fleet: Run, order: ServerOrder) -> None:
    async def story(fleet: Fleet) -> None:
        await one_of_each(fleet)
        for name, (wanted, expected) in QUERIES.items():
            found = await listed(fleet, ServerQuery(**wanted), order)
            assert "".join(found) == expected, name

    fleet(story)


@pytest.mark.parametrize(
    "order", [NEWEST, BY_NAME, BY_HOST, BY_FLAVOR], ids=["newest", "by name", "by host", "by values"]
)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_are_parts_of_the_list(fleet: Run, order: ServerOrder, limit: int) -> None:
    async def story(fleet: Fleet) -> None:
        await one_of_each(fleet)
        for twin in "ef":  # as the first in all that is sorted by, but its id
            await fleet.place(twin, "cell1", created_at=4.0, host="h1", name="name of a")
        whole = await page(fleet.stores, ServerQuery(), order, ALL)
        marker, seen = None, []
        while found := await page(fleet.stores, ServerQuery(), order, ServerPage(limit, marker)):
            assert len(found) == min(limit, len(whole) - len(seen))
            seen += [record.id for record in found]
            marker = found[-1]
        assert seen == [record.id for record in whole] and len(seen) == 7

    fleet(story)


@pytest.mark.parametrize("descending", [True, False])
def test_servers_of_one_instant_are_on_one_page_each(fleet: Run, descending: bool) -> None:
    order = ServerOrder([column_key("created_at", descending)])

    async def story(fleet: Fleet) -> None:
        for name in "abcd":
            await fleet.place(name, created_at=7.0)
        marker, seen = None, ""
        while found := await page(fleet.stores, ServerQuery(), order, ServerPage(1, marker)):
            (marker,) = found
            seen += marker.id
        assert seen == "dcba"

    fleet(story)


def test_a_list_with_a_predicate_reads_on_until_its_page_is_full(fleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "CHUNK", 2)

    async def story(fleet: Fleet) -> None:
        for number in range(9):
            await fleet.place(str(number), created_at=float(number), name="odd" if number % 2 else "even")
        even = ServerQuery(matches=lambda record: record.name == "even")
        assert await listed(fleet, even) == ["8", "6", "4", "2", "0"]
        assert await listed(fleet, even, of=ServerPage(3)) == ["8", "6", "4"]
        assert await listed(fleet, even, BY_FLAVOR, ServerPage(3)) == ["8", "6", "4"]
        assert await listed(fleet) == list("876543210")

    fleet(story)


def test_a_list_without_a_predicate_reads_one_page_of_each_cell(fleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    from_cell = server_lists.from_cell
    monkeypatch.setattr(server_lists, "from_cell", lambda name, row: read.append(row["id"]) or from_cell(name, row))

    async def story(fleet: Fleet) -> None:
        for number in range(5):
            await fleet.place(str(number), created_at=float(number), updated_at=10.0 - number)
        assert await listed(fleet, of=ServerPage(2)) == ["4", "3"] == read
        read.clear()
        assert await listed(fleet, ServerQuery(changed_since=9.0)) == ["1", "0"] == read
        read.clear()
        assert await listed(fleet, ServerQuery(changed_before=6.0)) == ["4"] == read

    fleet(story)


def test_what_a_predicate_judges_is_fetched_for_those_that_are_read(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await one_of_each(fleet)

        async def refresh(records: Sequence[ServerRecord]) -> None:
            for record in records:
                record.zone = f"zone of {record.host}"

        east = ServerQuery(matches=lambda record: record.zone == "zone of h2", refresh=refresh)
        assert await listed(fleet, east) == ["b"]

    fleet(story)


HIDDEN: dict[str, tuple[dict[str, Any], bool]] = {
    "mapped here": ({"cell_name": "cell1"}, True),
    "on its way to cell0": ({"cell_name": "cell0"}, True),
    "mapped elsewhere": ({"cell_name": "cell2"}, False),
    "not mapped yet": ({"cell_name": None}, False),
    "queued for delete": ({"cell_name": "cell1", "queued_for_delete": 1}, False),
}


@pytest.mark.parametrize("mapping", HIDDEN)
def test_a_hidden_row_is_listed_where_its_mapping_says_so(fleet: Run, mapping: str) -> None:
    values, is_listed = HIDDEN[mapping]

    async def story(fleet: Fleet) -> None:
        await fleet.put("cell1", cell.servers, id="s", hidden=ARRIVING, vm_state="building", name="s", project_id="lab")
        await fleet.map("s", **values)
        await fleet.place("other", created_at=0.0)
        for order in (NEWEST, BY_NAME):
            assert sorted(await listed(fleet, order=order)) == (["other", "s"] if is_listed else ["other"])

    fleet(story)


def test_one_that_got_its_cell_meanwhile_is_listed_once_as_its_cell_has_it(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.request("s", name="asked for")
        await fleet.put("cell1", cell.servers, id="s", vm_state="active", name="there", project_id="lab")
        (record,) = await page(fleet.stores, ServerQuery(), NEWEST, ALL)
        assert (record.name, record.cell) == ("there", "cell1")

    fleet(story)


def test_of_a_cell_that_is_away_what_control_knows_is_listed(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await one_of_each(fleet)
        await fleet.map("gone", "cell2", queued_for_delete=1)
        await fleet.map("soft", "cell2", counted=0)
        await fleet.place("z", "cell2", created_at=7.0, project_id="office")
        fleet.lose("cell2")
        assert await listed(fleet) == list("xacd"), "left out"
        assert await listed(fleet, ServerQuery(partial=True)) == list("zxabcd"), "as its mapping says"
        assert await listed(fleet, ServerQuery(partial=True, project_id="lab")) == list("abcd")
        records = await page(fleet.stores, ServerQuery(partial=True), NEWEST, ALL)
        assert [record.id for record in records if record.is_partial] == ["z", "b"]
        with pytest.raises(Unreachable):
            await listed(fleet, ServerQuery(skips_away=False))
        assert await listed(fleet, ServerQuery(partial=True, skips_away=False)) == list("zxabcd")

    fleet(story)


def test_what_cannot_be_sorted_comes_last(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await one_of_each(fleet)
        await fleet.place("z", "cell2", created_at=7.0, name="first")
        fleet.lose("cell2")
        wanted = ServerQuery(partial=True)
        assert await listed(fleet, wanted, BY_NAME) == list("acdxzb")
        marker = await find_partial(fleet.stores, "z")
        assert await listed(fleet, wanted, BY_NAME, ServerPage(9, marker)) == ["b"]
        assert await listed(fleet, wanted, NEWEST, ServerPage(9, marker)) == list("xabcd"), "its place is known"

    fleet(story)


def test_a_page_after_what_cannot_be_sorted_reads_no_cell(fleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    from_cell = server_lists.from_cell
    monkeypatch.setattr(server_lists, "from_cell", lambda name, row: read.append(row["id"]) or from_cell(name, row))

    async def story(fleet: Fleet) -> None:
        await one_of_each(fleet)
        fleet.lose("cell2")
        marker = await find_partial(fleet.stores, "b")
        assert await listed(fleet, ServerQuery(partial=True), BY_NAME, ServerPage(9, marker)) == [] == read

    fleet(story)


def test_failed_and_deleted_servers_have_their_newest_fault(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        states = {"a": "error", "b": "active", "c": "deleted", "d": "error"}
        for server, state in states.items():
            await fleet.place(server, "cell2" if server == "d" else "cell1", vm_state=state)
            for number in (1, 2):
                name = "cell2" if server == "d" else "cell1"
                await fleet.put(name, cell.faults, server_id=server, message=f"{server}{number}", code=500)
        await fleet.request("e", vm_state="error")
        records = await page(fleet.stores, ServerQuery(), NEWEST, ALL)
        said = {record.id: record.fault and record.fault["message"] for record in records}
        assert said == {"a": "a2", "b": None, "c": "c2", "d": "d2", "e": None}

    fleet(story)


def test_a_cell_that_goes_away_while_faults_are_read_costs_only_these(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        for server, name in (("a", "cell1"), ("b", "cell2")):
            await fleet.place(server, name, vm_state="error")
            await fleet.put(name, cell.faults, server_id=server, message=server, code=500)

        async def refresh(records: Sequence[ServerRecord]) -> None:
            if any(record.id == "b" for record in records):
                fleet.lose("cell2")

        records = await page(fleet.stores, ServerQuery(refresh=refresh), NEWEST, ALL)
        assert [(record.id, record.fault and record.fault["message"]) for record in records] == [
            ("b", None),
            ("a", "a"),
        ]

    fleet(story)


def test_requests_are_those_of_their_project_alone(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.request("a")
        await fleet.request("b", project_id="office")
        assert await listed(fleet, ServerQuery(project_id="lab")) == ["a"]
        assert await listed(fleet) == ["b", "a"]
        await fleet.stores.control.write(lambda tx: rows.remove(tx, control.server_mappings, server_id="a"))
        assert await listed(fleet, ServerQuery(project_id="lab")) == []

    fleet(story)
