"""The audit finds what is wrong at rest, and says nothing about what somebody is busy with."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from kilonova.audit.findings import Report
from kilonova.audit.run import audit, read_reports
from kilonova.conductor.auditing import audit_all
from kilonova.domain.errors import StoreError
from kilonova.domain.server import Flavor
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import NewServer, create
from kilonova.placement.snapshot import ClassColumns, PlacementSnapshot
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.flavors import OFFER, PINNED, TOPOLOGY, VCPUS
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.shape import CloudShape

SMALL = Flavor("small", 1, 1024, 10)
A, B = "5e7e0000-0000-4000-8000-00000000000a", "5e7e0000-0000-4000-8000-00000000000b"


@pytest.fixture
def cloud() -> Iterator[SimCloud]:
    cloud = SimCloud(CloudShape(hosts=2))
    cloud.start_all()
    cloud.loop.run_for(15.0)
    new = NewServer(id=A, name="a", flavor=SMALL, image="img", host="host1")
    cloud.do(lambda engine: create(engine, new, cloud.cause()))
    cloud.loop.run_for(10.0)
    yield cloud
    cloud.close()


def audited(cloud: SimCloud, *, mend: bool = False) -> Report:
    report: Report = cloud.do(lambda engine: audit(engine.world.db, engine.world.clock, mend=mend))
    return report


def found(cloud: SimCloud) -> list[str]:
    return [finding.sentence for finding in audited(cloud).findings]


def mended(cloud: SimCloud) -> list[tuple[str, str, str]]:
    """Kind, outcome and why of each; and afterwards there is nothing left to find but what was left."""
    report = audited(cloud, mend=True)
    left = [finding.sentence for finding in report.findings if finding.outcome == "left"]
    assert found(cloud) == left
    assert not audited(cloud).unbalanced
    return [(finding.kind, finding.outcome, finding.why) for finding in report.findings]


def tamper(cloud: SimCloud, database: str, *statements: str) -> None:
    with sqlite3.connect(cloud.directory / f"{database}.db") as connection:
        for sql in statements:
            assert connection.execute(sql).rowcount > 0


def leak(cloud: SimCloud, consumer: str, host: str = "host1") -> None:
    """The consumer holds on that host what A holds on host1."""
    there = f"(SELECT id FROM resource_providers WHERE name = '{host}')"
    tamper(
        cloud,
        "placement",
        "INSERT INTO allocations (consumer, provider_id, class_id, holder, used, created_at) "
        f"SELECT '{consumer}', {there}, class_id, holder, used, created_at FROM allocations WHERE consumer = '{A}'",
        f"UPDATE inventories SET used = used + (SELECT coalesce(sum(used), 0) FROM allocations "
        f"WHERE consumer = '{consumer}' AND class_id = inventories.class_id AND provider_id = {there}) "
        f"WHERE provider_id = {there}",
    )
    if consumer != A:
        tamper(
            cloud,
            "placement",
            f"INSERT INTO consumers SELECT '{consumer}', project_id, user_id, type_id, 1, created_at, updated_at "
            f"FROM consumers WHERE uuid = '{A}'",
        )


def test_books_in_order(cloud: SimCloud) -> None:
    assert found(cloud) == []


def test_lost_claim(cloud: SimCloud) -> None:
    tamper(cloud, "placement", "DELETE FROM allocations")
    assert found(cloud) == [f"{A} holds nothing, owns 10 DISK_GB 1024 MEMORY_MB 1 VCPU on host1"]


def test_what_others_hold_is_left_alone(cloud: SimCloud) -> None:
    leak(cloud, "ghost")
    report = audited(cloud, mend=True)
    assert (report.findings, report.foreign, report.is_clean) == ([], ["ghost"], True)
    assert audited(cloud).foreign == ["ghost"]


def test_an_orphan_is_released(cloud: SimCloud) -> None:
    """A server of ours, by its fence, that is recorded nowhere any more."""
    leak(cloud, "ghost")
    tamper(cloud, "placement", "INSERT INTO claim_fence VALUES ('ghost', 3, 4, '{}')")
    assert found(cloud) == ["ghost holds 10 DISK_GB 1024 MEMORY_MB 1 VCPU on host1, owns nothing"]
    assert mended(cloud) == [("orphan", "repaired", "")]


def test_a_missing_record_frees_nothing(cloud: SimCloud) -> None:
    """Control knows the server, its cell does not any more: perhaps the cell was restored from a backup (law 15)."""
    tamper(cloud, "cell1", f"DELETE FROM servers WHERE id = '{A}'")
    ((kind, outcome, why),) = mended(cloud)
    assert (kind, outcome) == ("orphan", "left") and "a missing record frees nothing" in why


def test_a_lost_claim_is_made_again(cloud: SimCloud) -> None:
    tamper(cloud, "placement", "DELETE FROM allocations", "DELETE FROM consumers", "UPDATE inventories SET used = 0")
    assert mended(cloud) == [("missing", "repaired", "")]


def test_a_lost_claim_that_does_not_fit_is_left(cloud: SimCloud) -> None:
    tamper(cloud, "placement", "DELETE FROM allocations", "DELETE FROM consumers", "UPDATE inventories SET used = 0")
    tamper(cloud, "placement", "UPDATE inventories SET capacity = 0")
    ((kind, outcome, why),) = mended(cloud)
    assert (kind, outcome) == ("missing", "left")
    assert "needs 10 DISK_GB, 0 free of 0" in why


def test_a_second_claim_elsewhere_is_dropped(cloud: SimCloud) -> None:
    leak(cloud, A, "host2")
    assert mended(cloud) == [("excess", "repaired", "")]


def test_a_second_claim_is_left_where_a_copy_is(cloud: SimCloud) -> None:
    leak(cloud, A, "host2")
    tamper(cloud, "cell1", f"INSERT INTO copies VALUES ('{A}', 99, 'host2', 'whole', NULL, 'op', 0)")
    assert mended(cloud) == [("excess", "left", "a copy of the server is still recorded on host2")]


def test_use_that_is_not_the_sum_is_counted_anew(cloud: SimCloud) -> None:
    """And whoever chooses hosts sees it: what changed is read by the mark of its provider."""
    tamper(cloud, "placement", "UPDATE inventories SET used = used + 1")
    seen, fresh = PlacementSnapshot(), PlacementSnapshot()
    cloud.do(lambda engine: seen.sync(engine.world.db.placement))
    first = audited(cloud, mend=True)
    assert {(found.used, found.held, found.outcome) for found in first.unbalanced} >= {(2, 1, "repaired")}
    assert not audited(cloud).unbalanced
    for one in (seen, fresh):
        cloud.do(lambda engine, one=one: one.sync(engine.world.db.placement))
    assert used(seen) == used(fresh)


def used(snapshot: PlacementSnapshot) -> dict[tuple[str, str], int]:
    """By provider and class."""
    row, classes = ClassColumns.NAMES.index("used"), snapshot.classes.items()
    return {(uuid, name): int(of.table[row, at]) for uuid, at in snapshot.index.items() for name, of in classes}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE claim_fence SET ordinal = ordinal + 1",
        "UPDATE claim_fence SET turn = turn + 1",
        "UPDATE consumers SET generation = generation + 1",
    ],
)
def test_whoever_wrote_since_is_not_overruled(cloud: SimCloud, change: str) -> None:
    """The fence moved after the second reading, or a client of the API wrote: the token no longer fits."""
    leak(cloud, A, "host2")
    engine = cloud.roles["api"].engine
    assert engine is not None
    store: Any = engine.world.db.placement
    write = store.write

    async def late(body: Any) -> Any:
        tamper(cloud, "placement", change)
        return await write(body)

    store.write = late
    report = audited(cloud, mend=True)
    assert [(finding.outcome, finding.why) for finding in report.findings] == [
        ("left", "modified concurrently; the next audit compares it again")
    ]
    store.write = write
    assert mended(cloud) == [("excess", "repaired", "")]


def test_a_cell_that_does_not_answer_makes_no_orphans(cloud: SimCloud) -> None:
    """Neither servers, which control has in that cell, nor migrations, which only their cell knows."""
    ask = Ask(kind="migrate", server_id=A, cause=cloud.cause())
    cloud.do(lambda engine: submit(engine, ask))
    cloud.loop.run_for(20.0)
    holders = sorted(read_records(cloud).held)
    assert len(holders) == 2 and A in holders
    engine = cloud.roles["api"].engine
    assert engine is not None
    store: Any = engine.world.db.cell("cell1")
    read = store.read

    async def silent(body: Any, **_: Any) -> Any:
        raise StoreError("database cell1: no answer")

    store.read = silent
    report = audited(cloud, mend=True)
    assert (report.findings, sorted(report.unknown)) == ([], holders)
    assert report.unreachable == {"cell1": "database cell1: no answer"}
    store.read = read
    assert found(cloud) == []


def test_claim_on_the_wrong_host(cloud: SimCloud) -> None:
    tamper(cloud, "cell1", "UPDATE servers SET host = 'host2'")
    (sentence,) = found(cloud)
    assert "on host1, owns " in sentence and sentence.endswith("on host2")


def test_deleted_server_owns_nothing(cloud: SimCloud) -> None:
    tamper(cloud, "cell1", "UPDATE servers SET deleted = 1")
    (sentence,) = found(cloud)
    assert sentence.endswith("owns nothing")


def test_nothing_about_a_server_with_a_live_operation(cloud: SimCloud) -> None:
    """Looked at again and again while it is migrated, reverted and deleted."""
    for kind in ("migrate", "revert_resize", "delete"):
        ask = Ask(kind=kind, server_id=A, cause=cloud.cause())
        cloud.do(lambda engine, ask=ask: submit(engine, ask))
        for _ in range(100):
            assert found(cloud) == []
            cloud.loop.run_for(0.05)


def test_a_difference_that_goes_away_is_none(cloud: SimCloud) -> None:
    """Found at the first reading, and the fence has moved at the second."""
    tamper(cloud, "placement", "DELETE FROM allocations")
    readings = 0

    def moving(read: Any) -> Any:
        async def body_of(body: Any) -> Any:
            nonlocal readings
            readings += 1
            result = await read(body)
            tamper(cloud, "placement", "UPDATE claim_fence SET ordinal = ordinal + 1")
            return result

        return body_of

    engine = cloud.roles["api"].engine
    assert engine is not None
    store: Any = engine.world.db.placement
    store.read = moving(store.read)
    assert found(cloud) == []
    assert readings == 3  # two readings, and the balance


def test_the_audit_that_runs_by_itself(cloud: SimCloud) -> None:
    """It keeps its report, and forgets old keys and old lines of the ledger."""
    leak(cloud, A, "host2")
    tamper(
        cloud,
        "control",
        "INSERT INTO idempotency_keys VALUES ('old', 'u', 'p', 'r', 'h', 'o', NULL, -1e9), "
        "('new', 'u', 'p', 'r', 'h', 'o', NULL, 1e12)",
    )
    cloud.do(audit_all)
    (report,) = cloud.do(lambda engine: read_reports(engine.world.db, 10))
    assert [finding.outcome for finding in report.findings] == ["repaired"]
    assert found(cloud) == []
    with sqlite3.connect(cloud.directory / "control.db") as connection:
        assert [row[0] for row in connection.execute("SELECT key FROM idempotency_keys")] == ["new"]


@pytest.fixture
def pinning() -> Iterator[SimCloud]:
    """A and B are pinned, each on a host of its own."""
    cloud = SimCloud(CloudShape(hosts=2, vcpus=VCPUS, topology=TOPOLOGY, offer=OFFER))
    cloud.start_all()
    cloud.loop.run_for(15.0)
    for server, host in ((A, "host1"), (B, "host2")):
        new = NewServer(id=server, name=server[-1], flavor=PINNED, image="img", host=host)
        cloud.do(functools.partial(create, new=new, cause=cloud.cause()))
    cloud.loop.run_for(10.0)
    assert audited(cloud).is_clean
    yield cloud
    cloud.close()


def test_a_copy_that_lost_its_hardware_is_found(pinning: SimCloud) -> None:
    tamper(pinning, "cell1", f"UPDATE copies SET claim = NULL WHERE server_id = '{A}'")
    (sentence,) = audited(pinning).hardware
    assert sentence.startswith(f"copy 1 of {A} on host1 needs host hardware, but has no recorded host claim")
    pinning.crash("host1")
    pinning.loop.run_for(20.0)
    assert audited(pinning).is_clean, "the host tells what it holds when it registers"


def test_what_two_servers_hold_is_found(pinning: SimCloud) -> None:
    tamper(pinning, "cell1", f"UPDATE copies SET host = 'host1' WHERE server_id = '{B}'")
    assert [sentence.partition(" by the")[0] for sentence in audited(pinning).hardware] == [
        f"host1: CPU 6 is given to {A} and to {B}",
        f"host1: CPU 7 is given to {A} and to {B}",
        f"host1: device 0000:81:00.1 is given to {A} and to {B}",
    ]
