"""A server is in every list from the moment it was asked for: also while it goes from control to its cell."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import NewServer, create
from kilonova.services.compute.server_lists import ServerQuery, page
from kilonova.services.compute.server_order import ServerOrder, ServerPage
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.shape import CloudShape
from kilonova.store.server_records import find

A, B = "5e7e0000-0000-4000-8000-00000000000a", "5e7e0000-0000-4000-8000-00000000000b"
FLAVOR = Flavor("small", 1, 1024, 10)


@pytest.fixture
def cloud() -> Iterator[SimCloud]:
    """A is on its way: mapped to its cell, its build request gone, its row not yet handed over. B is there."""
    cloud = SimCloud(CloudShape(hosts=2))
    cloud.start_all()
    cloud.loop.run_for(15.0)
    for server in (B, A):
        new = NewServer(id=server, name="a", flavor=FLAVOR, image="img", host="host1")
        cloud.do(lambda engine, new=new: create(engine, new, cloud.cause()))
        cloud.loop.run_for(10.0)
    tamper(cloud, "cell1", f"UPDATE servers SET hidden = 1 WHERE id = '{A}'")
    yield cloud
    cloud.close()


def tamper(cloud: SimCloud, database: str, sql: str) -> None:
    with sqlite3.connect(cloud.directory / f"{database}.db") as connection:
        assert connection.execute(sql).rowcount > 0


def listed(cloud: SimCloud, limit: int = 10) -> list[str]:
    found = cloud.do(lambda engine: page(engine.world.db, ServerQuery(), ServerOrder(), ServerPage(limit)))
    return [record.id for record in found]


def test_one_on_its_way_is_listed(cloud: SimCloud) -> None:
    assert listed(cloud) == [A, B]


def test_one_that_was_deleted_on_its_way_is_not(cloud: SimCloud) -> None:
    """And a page is not shorter for it."""
    tamper(cloud, "control", f"UPDATE server_mappings SET queued_for_delete = 1 WHERE server_id = '{A}'")
    assert listed(cloud, limit=1) == [B]


def test_one_that_is_still_asked_for_is_listed_once(cloud: SimCloud) -> None:
    tamper(cloud, "control", f"UPDATE server_mappings SET cell = NULL WHERE server_id = '{A}'")
    assert listed(cloud) == [B], "its row in the cell alone tells nothing: a delete has taken the request"


def test_nothing_but_a_delete_is_done_to_one_on_its_way(cloud: SimCloud) -> None:
    ask = Ask(kind="stop", server_id=A, cause=cloud.cause())
    with pytest.raises(Refused, match="is being built; wait until it has a host"):
        cloud.do(lambda engine: submit(engine, ask))


def test_it_is_shown_as_long_as_it_is_listed(cloud: SimCloud) -> None:
    """A delete takes the mapping's word first and the row's last; a conductor may be away in between."""
    tamper(cloud, "control", f"UPDATE server_mappings SET queued_for_delete = 1 WHERE server_id = '{B}'")
    assert B in listed(cloud)
    assert cloud.do(lambda engine: find(engine.world.db, B)) is not None
    tamper(cloud, "cell1", f"UPDATE servers SET deleted = 1 WHERE id = '{B}'")
    assert B not in listed(cloud)
    assert cloud.do(lambda engine: find(engine.world.db, B)) is None
