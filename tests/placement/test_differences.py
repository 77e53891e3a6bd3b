"""The audit finds what is wrong at rest, and says nothing about what somebody is busy with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from kilonova.domain.server import Flavor
from kilonova.engine.accept import Ask
from kilonova.operations.submit import NewServer, create, submit
from kilonova.placement.differences import find_differences
from kilonova.sim.cloud import CloudShape, SimCloud

SMALL = Flavor("small", 1, 1024, 10)
A = "5e7e0000-0000-4000-8000-00000000000a"


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


def found(cloud: SimCloud) -> list[str]:
    return [difference.sentence() for difference in cloud.do(lambda engine: find_differences(engine.world.db))]


def tamper(cloud: SimCloud, database: str, sql: str) -> None:
    with sqlite3.connect(cloud.directory / f"{database}.db") as connection:
        assert connection.execute(sql).rowcount > 0


def test_books_in_order(cloud: SimCloud) -> None:
    assert found(cloud) == []


def test_lost_claim(cloud: SimCloud) -> None:
    tamper(cloud, "placement", "DELETE FROM allocations")
    assert found(cloud) == [f"{A} holds nothing, owns 10 DISK_GB 1024 MEMORY_MB 1 VCPU on host1"]


def test_leaked_claim(cloud: SimCloud) -> None:
    columns = "provider_id, class_id, holder, used, created_at"
    tamper(
        cloud,
        "placement",
        f"INSERT INTO allocations (consumer, {columns}) SELECT 'ghost', {columns} FROM allocations",
    )
    assert found(cloud) == ["ghost holds 10 DISK_GB 1024 MEMORY_MB 1 VCPU on host1, owns nothing"]


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
    assert readings == 2
