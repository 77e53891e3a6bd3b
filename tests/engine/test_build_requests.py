"""The build request of a server in no cell: what it holds, and where the server may be inserted all the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.domain.details import Details
from kilonova.domain.network import WantedPort
from kilonova.domain.params import BuildRequest, ServerSpec
from kilonova.domain.server import Flavor
from kilonova.engine import journal
from kilonova.engine.build_requests import places_of, put_request, stored_spec, take_request
from kilonova.operations import REGISTRY
from kilonova.schema.tables.control import build_requests
from kilonova.schema.tables.journal import operations, steps
from tests.engine.rows_of_one import OPERATION, STEP, operation
from tests.support.small_cloud import SmallCloud, put, read

SPEC = ServerSpec(
    project_id="p",
    user_id="u",
    created_at=5.0,
    name="n",
    flavor=Flavor("f", 1, 1, 1),
    host="host1",
    forced=True,
    networks=[WantedPort()],
    details=Details(description="d", personality="sealed"),
)


def test_a_stored_request_has_nothing_that_only_placing_needs() -> None:
    stored = msgspec.json.decode(stored_spec(SPEC), type=ServerSpec)
    assert (stored.networks, stored.host, stored.forced, stored.details.personality) == ([], None, False, None)
    assert (stored.name, stored.flavor, stored.details.description) == ("n", SPEC.flavor, "d")


def test_a_build_request_says_what_was_requested(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        engine = small_cloud.engine()
        await engine.world.db.control.write(lambda tx: put_request(tx, "s", 3, "o", SPEC))
        (row,) = await read(engine, "control", build_requests)
        assert (row["server_id"], row["turn"], row["operation_id"], row["created_at"]) == ("s", 3, "o", 5.0)
        asked = msgspec.json.decode(row["server"], type=BuildRequest)
        assert (asked.vm_state, asked.host, asked.networks) == ("building", "host1", SPEC.networks)

    small_cloud.run(story)


@pytest.mark.parametrize(
    ("facts", "mode", "places"),
    [
        ({}, "forward", []),
        ({"cell": "cell1"}, "forward", ["cell1"]),
        ({"cell": "cell1", "from_cell0": True}, "forward", ["cell1", "cell0"]),
        ({"from_cell0": True}, "back", ["cell0"]),
        ({"cell": "cell1"}, "back", ["cell1"]),
        ({}, "ending", ["cell0"]),
        ({"cell": "cell1"}, "ending", ["cell1", "cell0"]),
    ],
)
def test_where_a_server_that_is_being_placed_may_be_inserted(facts: Any, mode: str, places: list[str]) -> None:
    """In the cell of the last claim; and in cell0, where it is buried or has not left."""
    placing = operation(facts=msgspec.json.encode(facts).decode(), course=f'{{"mode": "{mode}"}}')
    assert places_of(placing) == places


@pytest.mark.parametrize(
    ("placing", "places", "state"),
    [
        ({}, ["cell1"], "superseded"),
        ({"live": 0, "state": "undone"}, ["cell1"], "undone"),
        ({"server_id": "another"}, [], "running"),
        ({"id": "another"}, [], "running"),
    ],
)
def test_a_delete_takes_the_request_and_ends_its_placing(
    small_cloud: SmallCloud,
    monkeypatch: pytest.MonkeyPatch,
    placing: dict[str, Any],
    places: list[str],
    state: str,
) -> None:
    """Of one of many that are placed together, none is. A conductor may be about to end its step: it is locked."""
    locks, really = list[bool](), journal.load

    async def load(tx: Any, operation_id: str, *, lock: bool = False) -> Any:
        locks.append(lock)
        return await really(tx, operation_id, lock=lock)

    monkeypatch.setattr(journal, "load", load)

    async def story() -> None:
        engine = small_cloud.engine()
        control = engine.world.db.control
        values = {**OPERATION, "kind": "place", "facts": '{"cell": "cell1"}', **placing}
        await put(engine, "control", operations, **values)
        await put(engine, "control", steps, **{**STEP, "operation_id": values["id"]})
        for name in ("s", "t"):
            await control.write(lambda tx, name=name: put_request(tx, name, 3, "o", SPEC))
        request: Any = {"server_id": "s", "operation_id": "o"}
        taken = await control.write(lambda tx: take_request(tx, request, "heir", REGISTRY["delete_unplaced"], 7.0))
        assert taken == places and locks == [True]
        assert [row["server_id"] for row in await read(engine, "control", build_requests)] == ["t"]
        (op,) = await read(engine, "control", operations)
        assert (op["state"], op["superseded_by"]) == (state, "heir" if state == "superseded" else None)

    small_cloud.run(story)
