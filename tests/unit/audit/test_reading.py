"""What a reading takes from each database, and what it says of a consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.audit.hardware import NEXT
from kilonova.audit.reading import Reading, ServerVersion, read_all
from kilonova.domain.errors import StoreError
from kilonova.domain.hardware import HardwareRequest
from kilonova.domain.numa import GuestCell
from kilonova.domain.server import Flavor, to_json
from kilonova.schema.tables import cell, control, journal, placement
from kilonova.schema.tables.placement import ledger
from tests.engine.test_audit_rows import Run, put
from tests.engine.test_restored import server
from tests.support.neighbours import zeros

OWN, OLD = {"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 1}, {"VCPU": 2, "MEMORY_MB": 2, "DISK_GB": 2}
PINNED = to_json(Flavor("f", 1, 1, 1, hardware=HardwareRequest(cells=(GuestCell((), (0,), 1),))))
SETTLE = "settle it: kilonova finding settle"


def operation(number: str, **values: Any) -> dict[str, Any]:
    texts = {name: "{}" for name in ("course", "params", "facts", "cause")} | {"request_id": "r"}
    known = {"kind": "stop", "state": "running", "live": 1, **texts}
    return zeros(journal.operations, id=number, **{**known, **values})


def move(number: str, **values: Any) -> dict[str, Any]:
    source = {"source_host": "host1", "source_copy": 1, "old_flavor": to_json(Flavor("old", 2, 2, 2))}
    return {"id": number, "server_id": "s", "kind": "migration", "status": "finished", "open": 1, **source, **values}


def finding(number: str, **values: Any) -> dict[str, Any]:
    holds = '[{"consumer": "left", "provider": "host1", "resources": {"VCPU": 1}}]'
    texts = {"step": "claim", "way": "do", "host": "", "holds": holds, "user_id": "u", "reason": "why", "open": 1}
    return {"id": number, "server_id": "s", **texts, **values}


async def put_placement(store: Any) -> None:
    await put(store, placement.resource_providers, {"id": 1, "uuid": "p", "name": "host1"})
    await put(store, placement.resource_classes, {"id": 1, "name": "VCPU"})
    allocation = {"consumer": "s", "provider_id": 1, "class_id": 1, "holder": "", "used": 1}
    await put(store, placement.allocations, allocation, {**allocation, "consumer": "lost", "holder": "e", "used": 4})
    consumers = [{"uuid": name, "project_id": "p", "user_id": "u", "generation": at} for at, name in enumerate("st")]
    await put(store, placement.consumers, *consumers)
    await put(store, placement.claim_fence, {"server_id": "s", "turn": 3, "ordinal": 4, "outcome": ""})
    texts = {column.name: "" for column in ledger.c if str(column.type) == "TEXT" and not column.nullable}
    await put(store, ledger, {**texts, "consumer": "lost", "server_id": "t"})


async def put_control(store: Any) -> None:
    mapping = {"project_id": "p", "user_id": "u", "counted": 1}
    mappings = [{"server_id": "s", "cell": "cell1"}, {"server_id": "unplaced", "cell": None}]
    await put(store, control.server_mappings, *({**mapping, **one} for one in mappings))
    await put(store, control.build_requests, {"server_id": "unplaced"})
    await put(store, journal.operations, operation("o", server_id="in-control", facts='{"migration": "its-move"}'))
    await put(store, journal.operations, operation("p", server_id="s", live=0))
    await put(store, journal.findings, finding("f", way="undo", host=""), finding("g", open=0))


async def put_cell(store: Any) -> None:
    servers = [
        server(turn=5, project_id="of-s", user_id="by-s"),
        server(id="deleted", turn=6, deleted=1),
        server(id="busy", turn=7, flavor=PINNED),
        server(id="pinned", turn=8, flavor=PINNED),
    ]
    await put(store, cell.servers, *servers)
    await put(
        store, cell.migrations, move("m"), move("closed", open=0), move("of-busy", server_id="busy", source_gone=1)
    )
    copy = {"server_id": "pinned", "copy": 1, "host": "host1", "state": "whole", "operation_id": ""}
    await put(store, cell.copies, copy, {**copy, "server_id": "busy", "host": "host2"})
    await put(store, cell.quarantine, {"server_id": "s", "copy": 9, "host": "host3", "reason": "why", "power": "off"})
    await put(store, journal.operations, operation("q", server_id="busy", turn=7))
    left = '[{"consumer": "left", "provider": "host2", "resources": {"VCPU": 2}, "holder": "e"}]'
    await put(store, journal.findings, finding("h", step="build", host="host2", holds=left))


def test_a_reading_has_all_that_placement_is_compared_with(run: Run) -> None:
    async def story(stores: Any) -> None:
        await put_placement(stores.placement)
        await put_control(stores.control)
        await put_cell(stores.cell("cell1"))
        reading = await read_all(stores)
        own, pinned = {("host1", ""): OWN}, {("host1", ""): {"PCPU": 1, "MEMORY_MB": 1, "DISK_GB": 1}}
        assert reading == Reading(
            expected={"s": own, "m": {("host1", ""): OLD}, "busy": pinned, "pinned": pinned},
            held={"s": {("host1", ""): {"VCPU": 1}}, "lost": {("host1", "e"): {"VCPU": 4}}},
            server_of={"m": "s", "closed": "s", "of-busy": "busy", "lost": "t"},
            owners={"s": ("of-s", "by-s"), "deleted": ("p", "u"), "busy": ("p", "u"), "pinned": ("p", "u")},
            busy={"unplaced", "in-control", "its-move", "busy", "of-busy", ""},
            turns={"s": 5, "deleted": 6, "busy": 7, "pinned": 8},
            fences={"s": (3, 4)},
            generations={"s": 0, "t": 1},
            copies={("pinned", "host1"), ("busy", "host2")},
            quarantined={("s", "host3")},
            mapped={"s": "cell1", "unplaced": None},
            hardware={f"copy 1 of pinned on host1 needs host hardware, but has no recorded host claim; {NEXT}"},
            left={"left": {("host1", ""): {"VCPU": 1}, ("host2", "e"): {"VCPU": 2}}},
            abandoned=[
                f"undo of claim of server s was abandoned by u: why; {SETTLE} f --reason TEXT",
                f"build on host2 of server s was abandoned by u: why; {SETTLE} h --reason TEXT",
            ],
        )

    run(story)


def test_a_cell_that_does_not_answer_is_named(run: Run) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise StoreError("no answer")

    async def story(stores: Any) -> None:
        await put(stores.cell("cell1"), cell.servers, server(turn=5))
        cells = {"cell0": SimpleNamespace(read=away), "cell1": stores.cell("cell1")}
        stores.cells, stores.cell = lambda: list(cells), cells.__getitem__
        reading = await read_all(stores)
        assert (reading.unreachable, reading.turns) == ({"cell0": "no answer"}, {"s": 5})

    run(story)


def test_a_suspect_holds_something_else_than_it_owns_and_nobody_is_at_work_on_it() -> None:
    one, two = {("host1", ""): {"VCPU": 1}}, {("host1", ""): {"VCPU": 2}}
    expected = {"agrees": one, "other": one, "missing": one, "busy": one, "left": one}
    held = {"agrees": one, "other": two, "orphan": one, "busy": two, "left": two}
    reading = Reading(expected=expected, held=held, busy={"busy"}, left={"left": one})
    assert reading.suspects() == {"other", "missing", "orphan"}


@pytest.mark.parametrize(
    "known",
    [
        {"turns": {"s": 1}},
        {"fences": {"s": (1, 1)}},
        {"mapped": {"s": None}},
        {"server_of": {"s": "t"}},
        {"server_of": {"s": "t"}, "turns": {"t": 1}},
    ],
)
def test_a_consumer_is_ours_if_anything_is_known_of_it(known: dict[str, Any]) -> None:
    assert not Reading(turns={"t": 1}, fences={"t": (1, 1)}, mapped={"t": None}, server_of={"t": "u"}).is_ours("s")
    assert Reading(**known).is_ours("s")


@pytest.mark.parametrize(
    ("known", "is_unknown"),
    [
        ({}, True),  # a migration: any cell may have it
        ({"turns": {"s": 1}}, False),  # its record was read
        ({"server_of": {"s": "t"}, "turns": {"t": 1}}, False),
        ({"server_of": {"s": "t"}}, True),
        ({"mapped": {"s": None}}, True),
        ({"mapped": {"s": "away"}}, True),
        ({"mapped": {"s": "cell1"}}, False),  # which answered, and has no record of it
    ],
)
def test_what_a_cell_that_is_away_may_have_is_unknown(known: dict[str, Any], is_unknown: bool) -> None:
    assert Reading(unreachable={"away": "why"}, **known).is_unknown("s") is is_unknown
    assert not Reading(**known).is_unknown("s"), "no cell is away"


def test_a_version_is_of_the_consumer_and_of_its_server() -> None:
    reading = Reading(server_of={"m": "s"}, turns={"s": 1}, fences={"s": (2, 3)}, generations={"m": 4, "s": 5})
    assert reading.standing("m") == ServerVersion(1, (2, 3), 4)
    assert reading.standing("s") == ServerVersion(1, (2, 3), 5)
    assert reading.standing("t") == ServerVersion(None, None, None)
