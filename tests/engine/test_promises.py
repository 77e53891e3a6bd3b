"""What the scheduler promised ends with the claim that each operation makes of it, one way or the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.engine.accept import Ask
from kilonova.engine.rehearse import rehearse
from kilonova.operations.create.accept import NewServer, NewServers, create, create_many
from kilonova.operations.create.plan import rehearse_create
from kilonova.scheduler import promises
from kilonova.scheduler.promises import Promise, Promises
from tests.engine.conftest import SMALL


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Servers that were promised a host. Their age ends none of it here."""
    found: list[str] = []
    make = Promises.make

    def noting(self: Promises, decisions: Any) -> None:
        decided = list(decisions)
        found.extend(decision.request.server for decision in decided)
        make(self, decided)

    monkeypatch.setattr(Promises, "make", noting)
    monkeypatch.setattr(promises, "EXPIRES_AFTER", 1e9)
    return found


def outstanding(cloud: Any) -> dict[str, Promise]:
    engines = [role.engine for role in cloud.roles.values() if role.engine is not None]
    return {server: one for engine in engines for server, one in engine.scheduler._promises.outstanding().items()}


def pair() -> NewServers:
    def make(count: int) -> list[NewServer]:
        return [NewServer(name=f"s{n}", flavor=SMALL, image="img") for n in range(count)]

    return NewServers(flavor=SMALL, least=2, most=2, make=make)


def creates(cloud: Any) -> int:
    cloud.make()
    return 1


def creates_where_the_first_host_fails(cloud: Any) -> int:
    cloud.hardware.fail("host1", "ensure_disk", times=1)
    cloud.make()
    return 2


def creates_several(cloud: Any) -> int:
    cloud.do(lambda engine: create_many(engine, pair(), cloud.cause()))
    cloud.loop.run_for(20.0)
    return 2


def migrates(cloud: Any) -> int:
    server, _ = cloud.make()
    cloud.submit("migrate", server)
    cloud.loop.run_for(20.0)
    return 2


def evacuates(cloud: Any) -> int:
    server, _ = cloud.make()
    cloud.hardware.switch_power(cloud.server(server)["host"], False)
    cloud.loop.run_for(90.0)
    cloud.submit("evacuate", server)
    cloud.loop.run_for(20.0)
    return 2


@pytest.mark.parametrize(
    "work",
    [creates, creates_where_the_first_host_fails, creates_several, migrates, evacuates],
    ids=lambda f: f.__name__,
)
def test_nothing_is_left_once_it_is_claimed(cloud: Any, made: list[str], work: Callable[[Any], int]) -> None:
    cloud = cloud()
    promised = work(cloud)
    assert len(made) == promised
    assert outstanding(cloud) == {}
    assert {row["vm_state"] for row in cloud.records().table("servers")} <= {"active", "resized"}


def test_nothing_is_left_when_claims_are_refused(cloud: Any, made: list[str]) -> None:
    cloud = cloud(hosts=1, vcpus=1, conductors=2)
    news = [NewServer(name=f"s{n}", flavor=SMALL, image="img") for n in range(6)]

    async def at_once(engine: Any) -> None:
        await asyncio.gather(*(create(engine, new, cloud.cause()) for new in news))

    cloud.do(at_once)
    cloud.loop.run_for(30.0)
    refused = [row for row in cloud.records().table("steps") if row["name"] == "claim" and row["state"] == "failed"]
    assert made and refused
    assert outstanding(cloud) == {}


def test_a_dry_run_promises_nothing(cloud: Any, made: list[str]) -> None:
    cloud = cloud()
    server, _ = cloud.make()
    made.clear()
    ask = Ask(kind="migrate", server_id=server, cause=cloud.cause())
    cloud.do(lambda engine: rehearse(engine, engine.world.db.cell("cell1"), ask))
    told = cloud.do(lambda engine: rehearse_create(engine, pair(), cloud.cause()))
    one = NewServers(flavor=SMALL, least=1, most=1, make=pair().make)
    cloud.do(lambda engine: rehearse_create(engine, one, cloud.cause()))
    assert told.problem is None and len(told.servers) == 2
    assert made == []
