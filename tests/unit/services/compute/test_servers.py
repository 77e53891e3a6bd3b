"""Servers as an operator reads them: wherever they are, by id, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Unreachable
from kilonova.domain.server import flavor_document
from kilonova.schema.tables import cell, control
from kilonova.services.compute.servers import ServerSummary, find_server, list_servers
from kilonova.store import rows
from tests.unit.services.compute.fleet import FLAVOR, Fleet, Run


async def some(fleet: Fleet) -> None:
    """a, c in cells, b asked for, d buried; y is deleted."""
    await fleet.place("a", "cell2", host="h1", name="web")
    await fleet.request("b", name="web")
    await fleet.place("c", "cell1", host="h2", vm_state="stopped")
    await fleet.place("d", "cell0", vm_state="error")
    await fleet.place("y", "cell1", host="h1", deleted=1)


async def listed(fleet: Fleet, marker: str = "", limit: int = 9, **by: str) -> str:
    return "".join(one.id for one in await list_servers(fleet.stores, marker=marker, limit=limit, by=by))


def test_all_by_id_and_page_by_page(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await some(fleet)
        await fleet.request("e")
        assert [await listed(fleet, marker, 2) for marker in ("", "b", "d", "e")] == ["ab", "cd", "e", ""]
        assert await listed(fleet) == "abcde"
        assert [one.id for one in await list_servers(fleet.stores, marker="", limit=2)] == ["a", "b"]

    fleet(story)


FILTERED: list[tuple[dict[str, str], str]] = [
    ({"name": "web"}, "ab"),
    ({"host": "h2"}, "c"),
    ({"vm_state": "building"}, "b"),
    ({"name": "web", "host": "h1"}, "a"),
    ({"name": "web", "vm_state": "building"}, "b"),
    ({"name": "web", "vm_state": "error"}, ""),
]


@pytest.mark.parametrize(("by", "expected"), FILTERED)
def test_each_filter_is_of_servers_and_of_requests(fleet: Run, by: dict[str, str], expected: str) -> None:
    async def story(fleet: Fleet) -> None:
        await some(fleet)
        await fleet.request("zz")  # above the limit of its page, and not of these
        assert await listed(fleet, limit=4, **by) == expected.replace("b", "bzz" if by == FILTERED[2][0] else "b")

    fleet(story)


def test_a_filter_looks_at_every_request(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        for name in "abc":
            await fleet.request(name, name="last" if name == "c" else "first")
        assert await listed(fleet, limit=1, name="last") == "c"
        assert await listed(fleet, marker="c", name="last") == ""

    fleet(story)


def test_a_request_that_has_its_cell_by_now_is_listed_once(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.request("s", name="asked for")
        there = {"vm_state": "active", "name": "there", "flavor": flavor_document(FLAVOR)}
        await fleet.put("cell1", cell.servers, id="s", **there)
        (one,) = await list_servers(fleet.stores, marker="", limit=9)
        assert (one.name, one.cell, one.vm_state) == ("there", "cell1", "active")

    fleet(story)


def test_servers_of_a_cell_that_is_away_are_left_out(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await some(fleet)
        fleet.lose("cell2")
        assert await listed(fleet) == "bcd"
        with pytest.raises(Unreachable):
            await find_server(fleet.stores, "a")

    fleet(story)


def test_one_in_a_cell_with_all_that_is_known(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        running = {"power_state": 1, "copy": 3, "runner_host": "h1", "runner_copy": 3, "turn": 7}
        await fleet.place("s", host="h1", operation_id="o", task_state="rebooting", image_ref="i", **running)
        await fleet.place("other")
        expected = ServerSummary(
            id="s",
            name="name of s",
            cell="cell1",
            vm_state="active",
            task_state="rebooting",
            power_state=1,
            host="h1",
            copy=3,
            runner=("h1", 3),
            turn=7,
            operation="o",
            flavor=FLAVOR,
            image="i",
            project_id="lab",
            created_at=1.0,
        )
        assert await find_server(fleet.stores, "s") == expected
        assert (await list_servers(fleet.stores, marker="r", limit=1)) == [expected]

    fleet(story)


GONE: dict[str, dict[str, Any]] = {
    "no mapping": {"table": control.server_mappings, "values": None},
    "queued for delete": {"table": control.server_mappings, "values": {"queued_for_delete": 1}},
}


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("is_placed", [True, False])
def test_one_whose_mapping_says_that_it_is_gone_is_not_found(fleet: Run, gone: str, is_placed: bool) -> None:
    async def story(fleet: Fleet) -> None:
        for server in ("s", "other"):
            await (fleet.place(server) if is_placed else fleet.request(server))
        table, values = GONE[gone]["table"], GONE[gone]["values"]
        change = rows.remove if values is None else rows.change
        arguments = () if values is None else (values,)
        await fleet.stores.control.write(lambda tx: change(tx, table, *arguments, server_id="s"))  # type: ignore[operator]
        assert await find_server(fleet.stores, "s") is None
        other = await find_server(fleet.stores, "other")
        assert other is not None and other.cell == ("cell1" if is_placed else None)

    fleet(story)


def test_one_that_is_deleted_or_nowhere_is_not_found(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.place("deleted", deleted=1)
        await fleet.place("other")
        await fleet.map("lost", "cell1")
        await fleet.map("between", None)
        await fleet.request("asked for")
        for name in ("deleted", "lost", "between", "nobody"):
            assert await find_server(fleet.stores, name) is None

    fleet(story)


def test_one_that_failed_says_its_last_fault(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        for server, state in (("failed", "error"), ("well", "active"), ("silent", "error"), ("bare", "error")):
            await fleet.place(server, vm_state=state)
        for server, message, details in (
            ("failed", "first", "x"),
            ("failed", "last", "of all"),
            ("other", "another", None),
            ("well", "past", None),
            ("bare", "bare", None),
        ):
            await fleet.put("cell1", cell.faults, server_id=server, message=message, details=details, code=500)
        said = {}
        for name in ("failed", "well", "silent", "bare"):
            found = await find_server(fleet.stores, name)
            assert found is not None
            said[name] = found.fault
        assert said == {"failed": "last of all", "well": None, "silent": None, "bare": "bare"}

    fleet(story)
