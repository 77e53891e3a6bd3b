"""A delete that read the mapping before a server left cell0 is accepted there, wherever the rebuild is by then: its
conductor stands still at each point, another one does the delete, and then the first goes on."""

import os

from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask, accept
from kilonova.operations.in_cell0.retry import rebuild_unplaced
from kilonova.sim.crashes.host_acts import buried
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.crashes.scenarios import SPARING
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.rest import come_to_rest
from kilonova.sim.lab.shape import CloudShape

SHAPE = CloudShape(conductors=2, addresses=4, ports=1, volumes=2, rare_volumes=True, flush_seconds=SPARING)
STEP = 1 if os.environ.get("KILONOVA_FULL") else 5


def prepared():
    cloud = SimCloud(SHAPE, seed="leaving cell0")
    cloud.start_all()
    cloud.loop.run_for(15.0)
    buried(cloud)
    return cloud


def rebuild(cloud):
    ask = Ask(kind="rebuild", server_id=SERVER, cause=cloud.cause())
    cloud.do(lambda engine: rebuild_unplaced(engine, ask))


def delete_in_cell0(cloud):
    """As a request would that has already read where the server is."""
    ask = Ask(kind="delete", server_id=SERVER, cause=cloud.cause())
    try:
        cloud.do(lambda engine: accept(engine, engine.world.db.cell("cell0"), ask))
    except Refused:
        return False
    return True


def points_of_a_rebuild():
    cloud = prepared()
    first = cloud.loop.points
    rebuild(cloud)
    cloud.loop.run_for(0.5)
    found = cloud.loop.points - first
    cloud.close()
    return found


def delete_while_stalled_at(point):
    """What is wrong afterwards; and of which operations the delete took over."""
    cloud = prepared()
    stalled = []

    def stall(process):
        if process.name.startswith("conductor"):
            stalled.append(process)
            cloud.loop.freeze(process)

    cloud.loop.crash_when(cloud.loop.points + point, stall)
    rebuild(cloud)
    deleted = delete_in_cell0(cloud)
    cloud.loop.run_for(60.0)
    for process in stalled:
        cloud.loop.thaw(process)
    records = come_to_rest(cloud)
    found = violations(records, cloud, at_rest=True)
    if deleted and (server := records.server(SERVER)) is not None and not server["deleted"]:
        found.append(f"it was deleted, and is {server['vm_state']}")
    taken_over = {op["kind"] for op in records.table("operations") if op["superseded_by"]}
    cloud.close()
    return found, taken_over if deleted else set()


def test_a_delete_accepted_in_cell0_wins_wherever_the_rebuild_is():
    seen = set()
    for point in range(1, points_of_a_rebuild(), STEP):
        found, taken_over = delete_while_stalled_at(point)
        assert not found, f"stalled at point {point}: {found}"
        seen |= taken_over
    assert seen == {"rebuild_in_cell0", "place"}, "both ways of losing were tried"
