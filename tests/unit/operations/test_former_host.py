"""Whether a server may be evacuated from the host that undoing its move has brought it back to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kilonova.domain.errors import Failed
from kilonova.domain.host import FENCE, FORCED_DOWN, SILENCE, HostState
from kilonova.domain.server import Flavor, Server, flavor_document
from kilonova.operations.facts import EvacuateFacts
from kilonova.operations.steps.former_host import _leave_from, require_dead
from kilonova.schema.tables import cell
from kilonova.store import rows
from tests.unit.operations.cloud_rows import add_server


class Noting(NamedTuple):
    """As much of a context as the record of the move needs."""

    row: Server
    facts: EvacuateFacts
    in_transaction: Callable[[Any], None]


def judge(proven_by: str, down: list[str], accepts: bool | None) -> None:
    state = HostState("host1", "down" if proven_by else "unknown", "host1 …", proven_by=proven_by)
    require_dead(state, "a", down, accepts)


@pytest.mark.parametrize("accepts", [None, False, True])
@pytest.mark.parametrize("proof", [FENCE, FORCED_DOWN])
def test_a_host_that_was_fenced_or_declared_down_is_dead(proof: str, accepts: bool | None) -> None:
    judge(proof, ["host2"], accepts)


@pytest.mark.parametrize("accepts", [None, True])
def test_silence_counts_where_the_request_was_made_in_spite_of_it(accepts: bool | None) -> None:
    judge(SILENCE, ["host2", "host1"], accepts)


@pytest.mark.parametrize(
    ("proof", "down", "accepts", "code"),
    [
        (SILENCE, ["host2"], None, "former_host_down"),
        (SILENCE, ["host2"], True, "former_host_down"),
        (SILENCE, ["host2", "host1"], False, "unfenced"),
        ("", ["host2", "host1"], True, "former_host_down"),
    ],
)
def test_a_host_that_may_be_alive_is_not_left(proof: str, down: list[str], accepts: bool | None, code: str) -> None:
    with pytest.raises(Failed, match=r"^server a: it is back on host1") as failed:
        judge(proof, down, accepts)
    assert failed.value.code == code and failed.value.final


def test_the_record_of_the_move_says_what_the_new_source_holds(databases: Any) -> None:
    """It was made with what the server had on the host that it was accepted for; the audit believes it."""

    async def story(stores: Any) -> None:
        small, large = (flavor_document(Flavor(name, 1, 512, 1)) for name in ("small", "large"))
        held = {"flavor": small, "copy": 1, "claimed": "host1's"}
        server = await add_server(stores, "a", "host1", **held)
        of_move = {"id": "m", "server_id": server, "operation_id": "o", "kind": "evacuation", "status": "accepted"}
        of_move |= {"old_vm_state": "active", "user_id": "u", "project_id": "p"}
        before = {"source_host": "host2", "source_copy": 2, "old_claimed": "host2's"}
        before |= {"old_flavor": large, "new_flavor": large}
        times = {"created_at": 0.0, "updated_at": 0.0}
        changes: list[Any] = []

        async def body(tx: Any) -> Any:
            await rows.put(tx, cell.migrations, **of_move, **before, **times, open=0)
            row = await rows.fetch(tx, cell.servers, id=server)
            _leave_from(Noting(Server.from_row(row), EvacuateFacts(migration="m"), changes.append), "host1")  # type: ignore[arg-type]
            await changes[0](tx, 1.0)
            return await rows.fetch(tx, cell.migrations, id="m")

        move = await stores.cell("cell1").write(body)
        flavors = {"old_flavor": small, "new_flavor": small}
        assert {name: move[name] for name in before} == {
            **flavors,
            "source_host": "host1",
            "source_copy": 1,
            "old_claimed": "host1's",
        }

    databases(story)
