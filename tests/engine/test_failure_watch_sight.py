"""The failure watch holds while it cannot see all hosts: also those of a cell that this process could not open."""

from kilonova.schema.tables.control import cells, host_mappings
from kilonova.services.compute.hosts import read_away
from kilonova.store import rows
from tests.engine.test_failure_watch import LATER, SOON, decisions, kill, status, watched

__all__ = ["watched"]  # the fixture
UNOPENED = {"name": "cell3", "id": "cell3", "sealed_url": "sealed by another key", "bus_prefix": "", "disabled": 0}


def in_control(cloud, body):
    cloud.alone(lambda stores: stores.control.write(body), "control is written", faulty=False)


async def make_cell(tx):
    """As another process does, whose key can open the address."""
    await rows.put(tx, cells, ("created_at",), **UNOPENED)
    await rows.put(tx, host_mappings, host="far1", cell="cell3")


async def delete_cell(tx):
    await rows.remove(tx, host_mappings, host="far1")
    await rows.remove(tx, cells, name="cell3")


def test_a_cell_that_cannot_be_opened_is_a_reason_to_hold(watched):
    cloud = watched(hosts=12)
    in_control(cloud, make_cell)
    kill(cloud, "host1")
    cloud.loop.run_for(SOON + LATER)
    cloud.do(lambda engine: engine.world.db.learn())  # the api tells what it knows itself
    assert decisions(cloud) == {"host1": "held"} and cloud.fence.fenced == []
    assert status(cloud)["cells_away"] == ["cell3"]
    assert "the database of cell3 does not answer" in status(cloud)["silent"][0]["why"]
    assert cloud.do(lambda engine: read_away(engine.world.db)) == ["far1"]
    in_control(cloud, delete_cell)
    cloud.loop.run_for(SOON + LATER)
    assert cloud.fence.fenced == ["host1"]
