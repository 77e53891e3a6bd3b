"""A purge leaves what is live, owed, held, copied, in quarantine or a finding, also what came up while it ran; and who
wakes up after it claims nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from sqlalchemy import Table

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Superseded
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor
from kilonova.domain.volume import BootSource
from kilonova.engine.context import Context
from kilonova.engine.course import Problem
from kilonova.engine.model import Target
from kilonova.operations.create import place
from kilonova.operations.delete_unplaced import remove_rows
from kilonova.operations.facts import CreateFacts
from kilonova.placement import claims
from kilonova.placement.batch import BatchMember, claim_many
from kilonova.placement.claims import Claimed, Fence, HostCandidate
from kilonova.schema.tables import cell, control, placement
from kilonova.schema.tables.journal import findings, idempotency_keys, operations
from kilonova.store import expiry, rows
from kilonova.store import purge as purging
from kilonova.store.expiry import forget_keys, forget_ledger
from kilonova.world import Store, Tx
from tests.support.embedded import Embedded
from tests.support.people import administrator
from tests.unit.operations.test_retention import DAYS, age, cloud, make, run_purge, stores_of
from tests.unit.operations.test_user_data import delete_all

pytestmark = pytest.mark.slow

__all__ = ["cloud"]  # the fixture

Held = tuple[str, Store, Table, dict[str, Any]]
DEBT: dict[str, Any] = {"host": "host1", "copy": 1, "verb": "ensure_absent", "after": "{}", "operation_id": "x"}
COPY: dict[str, Any] = {"host": "host1", "copy": 1, "state": "whole", "claim": None, "operation_id": "x"}
GUEST: dict[str, Any] = {
    **{"host": "host1", "copy": 1, "reason": "unknown", "found_at": 1.0, "power": "on", "whole": 1, "turn": 1},
    **dict.fromkeys(("action", "action_by", "action_at", "ended_at")),
}
FINDING: dict[str, Any] = {
    **{"id": "f", "operation_id": "x", "ordinal": 1, "kind": "delete", "step": "unmap", "way": "do", "host": ""},
    **{"copy": 0, "holds": "{}", "error": None, "user_id": "u", "reason": "r", "open": 1, "created_at": 1.0},
    **dict.fromkeys(("settled_by", "settled_reason", "settled_at")),
}
REQUEST: dict[str, Any] = {"turn": 1, "operation_id": "x", "server": "{}", "created_at": 1.0}
LIVE: dict[str, Any] = {
    **{"id": "live", "kind": "stop", "version": 1, "turn": 1, "state": "waiting", "ordinal": 1, "course": "{}"},
    **{"committed": 0, "params": "{}", "facts": "{}", "cause": "{}", "request_id": "r", "live": 1},
    **{"created_at": 1.0, "updated_at": 1.0},
}
SHARE: dict[str, Any] = {"provider_id": 1, "class_id": 1, "holder": "", "used": 1, "created_at": 1.0}
# What comes up is not an operation: these keep the server, and need none.
NEED_NO_OPERATION = ("copied", "held by the server")


def migration(server: str, *, is_open: bool) -> dict[str, Any]:
    columns = {
        one.name: None if one.nullable else "" if one.type.python_type is str else 0 for one in cell.migrations.c
    }
    return {**columns, "id": "m", "server_id": server, "operation_id": "x", "open": int(is_open)}


def holders(stores: Any, server: str) -> list[Held]:
    there, cell1 = {"server_id": server}, stores.cell("cell1")
    return [
        ("live in its cell", cell1, operations, {**LIVE, **there}),
        ("live in control", stores.control, operations, {**LIVE, **there}),
        ("owed", cell1, cell.debts, {**DEBT, **there, "created_at": 1.0}),
        ("quarantined", cell1, cell.quarantine, {**GUEST, **there}),
        ("a finding in its cell", cell1, findings, {**FINDING, **there}),
        ("a finding in control", stores.control, findings, {**FINDING, **there}),
        ("requested", stores.control, control.build_requests, {**REQUEST, **there}),
        ("moving", cell1, cell.migrations, migration(server, is_open=True)),
        ("copied", cell1, cell.copies, {**COPY, **there, "created_at": 1.0}),
        ("held by the server", stores.placement, placement.allocations, {**SHARE, "consumer": server}),
    ]


def put(cloud: Embedded, held: Held) -> None:
    _, store, table, row = held

    async def body(tx: Tx) -> None:
        await rows.put(tx, table, **row)

    cloud.wait(store.write(body))


def remove(cloud: Embedded, held: Held) -> None:
    _, store, table, row = held

    async def body(tx: Tx) -> None:
        await rows.remove(tx, table, **{key: row[key] for key in row if key in ("server_id", "consumer", "id")})

    cloud.wait(store.write(body))


def deleted_server(cloud: Embedded) -> str:
    """One that ran, deleted two days ago."""
    admin = administrator(cloud)
    server = make(cloud, admin)
    delete_all(cloud, admin)
    age(cloud)
    return server


def test_what_is_needed_stays(cloud: Embedded) -> None:
    server = deleted_server(cloud)
    for held in holders(stores_of(cloud), server):
        put(cloud, held)
        run_purge(cloud)
        after, what = cloud.records(), held[0]
        assert [one["id"] for one in after["cell1.servers"]] == [server], what
        assert [one["server_id"] for one in after["control.server_mappings"]] == [server], what
        assert after["placement.claim_fence"] and after["cell1.fences"] and after["cell1.actions"], what
        kept = [one for one in after["cell1.operations"] if one["id"] != "live"]
        assert what in NEED_NO_OPERATION or (kept and after["cell1.steps"]), what
        remove(cloud, held)
    run_purge(cloud)
    assert not cloud.records()["cell1.servers"]


def test_a_migration_that_holds_something_keeps_its_server(cloud: Embedded) -> None:
    server = deleted_server(cloud)
    put(cloud, ("", stores_of(cloud).cell("cell1"), cell.migrations, migration(server, is_open=False)))
    held: Held = ("", stores_of(cloud).placement, placement.allocations, {**SHARE, "consumer": "m"})
    put(cloud, held)
    run_purge(cloud)
    assert cloud.records()["control.server_mappings"] and cloud.records()["cell1.servers"]
    remove(cloud, held)
    run_purge(cloud)
    assert not cloud.records()["cell1.servers"] and not cloud.records()["cell1.migrations"]


def test_a_server_that_control_has_not_given_up_stays(cloud: Embedded) -> None:
    """Control may be from a backup of before the delete: the server counts, and an operator sees that it is missing."""
    server = deleted_server(cloud)
    control_store = stores_of(cloud).control

    def queue(value: int) -> None:
        mapping = {"queued_for_delete": value}
        cloud.wait(control_store.write(lambda tx: rows.change(tx, control.server_mappings, mapping, server_id=server)))

    queue(0)
    run_purge(cloud)
    after = cloud.records()
    assert [one["server_id"] for one in after["control.server_mappings"]] == [server]
    assert [one["id"] for one in after["cell1.servers"]] == [server]
    queue(1)
    run_purge(cloud)
    assert not cloud.records()["cell1.servers"]


def writing(held: Held, then: Any) -> Any:
    """Do as `then` does, and right after it the row comes up."""

    async def both(*given: Any) -> Any:
        result = await then(*given)
        await held[1].write(lambda tx: rows.put(tx, held[2], **held[3]))
        return result

    return both


def test_what_came_up_after_the_first_look_stays(cloud: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that returns reports what nobody expected while the purge is at work."""
    server = deleted_server(cloud)
    every = [held for held in holders(stores_of(cloud), server) if held[1].name != "placement"]
    look = purging._read_held
    for held in [one for one in every if one[1].name == "cell1" and one[0] not in NEED_NO_OPERATION]:
        monkeypatch.setattr(purging, "_read_held", writing(held, look))
        run_purge(cloud)
        assert [one for one in cloud.records()["cell1.operations"] if one["id"] != "live"], held[0]
        remove(cloud, held)
    monkeypatch.setattr(purging, "_read_held", look)
    run_purge_but_servers(cloud, monkeypatch)
    look = purging._without_traces
    for held in every:
        monkeypatch.setattr(purging, "_without_traces", writing(held, look))
        run_purge(cloud)
        assert [one["id"] for one in cloud.records()["cell1.servers"]] == [server], held[0]
        remove(cloud, held)
    monkeypatch.setattr(purging, "_without_traces", look)
    run_purge(cloud)
    assert not cloud.records()["cell1.servers"]


def run_purge_but_servers(cloud: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> set[str]:
        return set()

    with monkeypatch.context() as patched:
        patched.setattr(purging, "_without_traces", nothing)
        run_purge(cloud)
    assert cloud.records()["cell1.servers"] and not cloud.records()["cell1.operations"]


# -- whoever wakes up late --------------------------------------------------------------------------------------


def candidates(cloud: Embedded) -> tuple[HostCandidate, ...]:
    return tuple(
        HostCandidate(one["uuid"], {"VCPU": 1})
        for one in cloud.records()["placement.resource_providers"]
        if one["accepting"]
    )


def late(cloud: Embedded, server: str, *, days: float, turn: int = 1) -> Fence:
    """A step that was taken that long ago, when the server was mapped."""
    now = cloud.service.engine.world.clock.now()
    return Fence(server, turn, 1, stores_of(cloud).control, now - days * DAYS)


def test_a_claim_without_a_mapping_is_refused(cloud: Embedded) -> None:
    server = deleted_server(cloud)
    stores, places = stores_of(cloud), candidates(cloud)

    def claim(fence: Fence) -> Any:
        return cloud.wait(claims.claim(stores.placement, fence, places, project="p", user="u"))

    run_purge(cloud)
    assert not cloud.records()["control.server_mappings"]
    with pytest.raises(Superseded, match="comes too late"):  # its fence is still there
        claim(late(cloud, server, days=2.0))
    age(cloud)
    run_purge(cloud)
    assert not cloud.records()["placement.claim_fence"]
    with pytest.raises(Superseded, match="no mapping"):
        claim(late(cloud, server, days=2.0))
    with pytest.raises(Superseded, match="no mapping"):
        cloud.wait(claims.release(stores.placement, late(cloud, server, days=2.0), [server]))
    members = [BatchMember(late(cloud, server, days=2.0), places)]
    assert cloud.wait(claim_many(stores.placement, members, project="p", user="u")) == {}
    records = cloud.records()
    assert not records["placement.claim_fence"] and not records["placement.allocations"]


def test_a_claim_that_waited_long_for_its_turn_is_not_refused(cloud: Embedded) -> None:
    """The databases were away for days, say: nothing of a live operation was purged."""
    stores, places = stores_of(cloud), candidates(cloud)
    columns = {"project_id": "p", "user_id": "u", "vcpus": 1, "memory_mb": 1, "queued_for_delete": 0, "counted": 1}
    for server in ("s1", "s2"):
        mapping = {"server_id": server, "cell": None, "created_at": 1.0, **columns}
        put(cloud, ("", stores.control, control.server_mappings, mapping))
    one = cloud.wait(claims.claim(stores.placement, late(cloud, "s1", days=9.0), places, project="p", user="u"))
    assert isinstance(one, Claimed)
    members = [BatchMember(late(cloud, server, days=9.0), places) for server in ("s2", "gone")]
    assert cloud.wait(claim_many(stores.placement, members, project="p", user="u")).keys() == {"s2"}


def test_a_new_claim_reads_nothing_in_control(cloud: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    stores, places = stores_of(cloud), candidates(cloud)

    async def read(*_: Any) -> None:
        raise AssertionError("control was read")

    monkeypatch.setattr(Fence, "look_again", read)
    fence = late(cloud, "new", days=0.1)
    assert isinstance(cloud.wait(claims.claim(stores.placement, fence, places, project="p", user="u")), Claimed)


class PlaceOrDelete(CreateFacts, kw_only=True):
    cells: list[str]


def stalled(cloud: Embedded, server: str, *, days: float) -> Context[Any, Any]:
    """A step of `place` that was taken that long ago; its conductor stood still since."""
    engine = cloud.service.engine
    flavor = Flavor("f", 1, 1, 1)
    params = ServerSpec(project_id="p", user_id="u", name="n", created_at=1.0, flavor=flavor)
    return Context(
        world=engine.world,
        journal=engine.world.db.control,
        operation_id="x",
        kind="place",
        turn=1,
        ordinal=5,
        server_id=server,
        params=params,
        facts=PlaceOrDelete(cell="cell1", destination="host1", cells=["cell1"]),
        cause=Cause(request_id="r", user_id="u", project_id="p", through="test"),
        target=Target(""),
        problem=Problem(code="no_valid_host", message="no host"),
        accepted_at=engine.world.clock.now() - days * DAYS,
    )


WRITES: list[Any] = [
    place.insert_server,
    place.hand_over,
    place.bury,
    place.remove_server,
    place.leave_cell0,
    remove_rows,
]


def test_nothing_is_written_into_a_cell_without_a_mapping(cloud: Embedded) -> None:
    server = deleted_server(cloud)
    for _ in range(2):  # its fences go a day after its mapping
        run_purge(cloud)
        age(cloud)
    for write in WRITES:
        with pytest.raises(Superseded, match="no mapping"):
            cloud.wait(write(stalled(cloud, server, days=2.0)))
    records = cloud.records()
    tables = [f"{name}.{table}" for name in ("cell0", "cell1") for table in ("servers", "fences")]
    assert [table for table in tables if records[table]] == []


def test_no_port_and_no_volume_is_taken_without_a_mapping(cloud: Embedded) -> None:
    server = deleted_server(cloud)
    for _ in range(2):
        run_purge(cloud)
        age(cloud)
    world, fence = cloud.service.engine.world, (server, 1, 5)
    assert world.network is not None and world.volume is not None
    owner = {"project_id": "p", "user_id": "u"}
    late: list[Awaitable[Any]] = [
        world.network.allocate(fence, **owner, wanted=[], security_groups=[], host="host1"),
        world.network.bind(fence, server_id=server, host="host1"),
        world.network.release(fence, server_id=server),
        world.volume.create_for_boot(fence, **owner, slot=0, size=1, source=BootSource()),
        world.volume.reserve(fence, project_id="p", volume_id="v"),
        world.volume.release_all(fence),
    ]
    for write in late:
        with pytest.raises(Superseded, match="no mapping"):
            cloud.wait(write)
    records = cloud.records()
    assert not records["control.fences"] and not records["control.ports"] and not records["control.volumes"]


def test_a_server_that_waited_long_is_put_into_its_cell(cloud: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"project_id": "p", "user_id": "u", "vcpus": 1, "memory_mb": 1, "queued_for_delete": 0, "counted": 1}
    mapping = {"server_id": "s1", "cell": None, "created_at": 1.0, **columns}
    put(cloud, ("", stores_of(cloud).control, control.server_mappings, mapping))
    cloud.wait(place.insert_server(stalled(cloud, "s1", days=9.0)))

    async def read(*_: Any) -> None:
        raise AssertionError("control was read")

    monkeypatch.setattr(Fence, "look_again", read)
    cloud.wait(place.insert_server(stalled(cloud, "s1", days=9.0)))  # its fence is there
    cloud.wait(place.insert_server(stalled(cloud, "new", days=0.1)))
    assert {row["id"] for row in cloud.records()["cell1.servers"]} == {"s1", "new"}


# -- in small batches -------------------------------------------------------------------------------------------


def test_keys_and_lines_of_the_ledger_go_in_batches(cloud: Embedded) -> None:
    stores, many = stores_of(cloud), expiry.BATCH + 3
    key = {"user_id": "u", "project_id": "p", "route": "r", "body_hash": "h", "operation_id": "x"}
    line = {"consumer": "gone", "server_id": "gone", "verb": "claim", "who": "", "holds": "[]"}

    async def fill(tx: Tx, table: Table, given: dict[str, Any]) -> None:
        for number in range(many):
            named = {"key": f"k{number}", "created_at": 1.0} if table is idempotency_keys else {"at": 1.0}
            await rows.put(tx, table, **given, **named)

    cloud.wait(stores.control.write(lambda tx: fill(tx, idempotency_keys, key)))
    cloud.wait(stores.placement.write(lambda tx: fill(tx, placement.ledger, line)))
    assert cloud.wait(forget_keys(stores.control)) == many
    assert cloud.wait(forget_ledger(stores.placement, 90.0)) == many
    records = cloud.records()
    assert not records["control.idempotency_keys"] and not records["placement.ledger"]
