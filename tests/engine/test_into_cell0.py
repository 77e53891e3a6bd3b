"""A server whose build failed goes to cell0. Its conductor stands still at each point of that way, somebody deletes the
server or tries it again meanwhile, and then the first goes on: it is in one place, and what was asked for counts."""

import os

import pytest

from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import create
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.sim.crashes.acts import new_server
from kilonova.sim.crashes.host_acts import hosts_fail
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.crashes.scenarios import SPARING
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import is_idle, read_records
from kilonova.sim.lab.rest import come_to_rest
from kilonova.sim.lab.shape import CloudShape

SHAPE = CloudShape(conductors=2, addresses=4, ports=1, volumes=2, rare_volumes=True, flush_seconds=SPARING)
BURIAL = 75 if os.environ.get("KILONOVA_FULL") else 25  # the last points: what comes before is the build, which fails


def failing():
    """A cloud in which a server is being created that no host builds; nothing of that has happened yet."""
    cloud = SimCloud(SHAPE, seed="into cell0")
    cloud.start_all()
    cloud.loop.run_for(15.0)
    hosts_fail(cloud)
    cloud.do(lambda engine: create(engine, new_server(cloud), cloud.cause()))
    return cloud


def points_of_a_burial():
    cloud = failing()
    first = cloud.loop.points
    for _ in range(300):
        if not is_idle(cloud):
            cloud.loop.run_for(0.1)
    found = cloud.loop.points - first
    assert read_records(cloud).server(SERVER)["database"] == "cell0"
    cloud.close()
    return found


def ask_for(cloud, kind):
    """Whether it was accepted."""
    ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=ANY_FAILURE if kind == "rebuild" else {})
    try:
        cloud.do(lambda engine: (rebuild_unplaced if kind == "rebuild" else submit)(engine, ask))
    except Refused as why:
        assert why.code in ("busy", "not_for_want_of_a_host", "invalid_state"), why
        return False
    return True


def stalled_at(point):
    """The cloud, and its conductors that stand still."""
    cloud = failing()
    stalled = []

    def stall(process):
        if process.name.startswith("conductor"):
            stalled.append(process)
            cloud.loop.freeze(process)

    cloud.loop.crash_when(cloud.loop.points + point, stall)
    for _ in range(300):
        if not stalled:
            cloud.loop.run_for(0.1)
    return cloud, stalled


def ask_while_stalled_at(point, kind, *, mended=False):
    """What is wrong afterwards; which operations lost the server; and whether somebody had to ask again. `mended`: by
    then the hosts build it."""
    cloud, stalled = stalled_at(point)
    accepted = ask_for(cloud, kind)
    cloud.loop.run_for(60.0)
    if mended:
        cloud.hardware.heal()
    was_refused = not accepted
    if was_refused:
        assert ask_for(cloud, kind), "another conductor has taken over, and it is still refused"
    cloud.loop.run_for(60.0)
    for process in stalled:
        cloud.loop.thaw(process)
    records = come_to_rest(cloud)
    found = violations(records, cloud, at_rest=True)
    server = records.server(SERVER)
    if kind == "delete" and server is not None and not server["deleted"]:
        found.append(f"it was deleted, and is {server['vm_state']}")
    if kind == "rebuild" and (server["database"], server["vm_state"]) not in (("cell1", "active"), ("cell0", "error")):
        found.append(f"it is {server['vm_state']} in {server['database']}")
    if mended and was_refused and server["vm_state"] != "active":
        found.append(f"it is {server['vm_state']}")
    taken_over = {op["kind"] for op in records.table("operations") if op["superseded_by"]}
    cloud.close()
    return found, taken_over, was_refused


@pytest.mark.parametrize(("kind", "mended"), [("delete", False), ("rebuild", False), ("rebuild", True)])
def test_what_is_asked_meanwhile_counts_wherever_the_burial_is(kind, mended):
    seen, refused = set(), 0
    points = points_of_a_burial()
    for point in range(points - BURIAL, points):
        found, taken_over, was_refused = ask_while_stalled_at(point, kind, mended=mended)
        assert not found, f"stalled at point {point}: {found}"
        seen |= taken_over
        refused += was_refused
    assert (seen, bool(refused)) == (({"build"}, False) if kind == "delete" else (set(), True)), "a retry waits"


def databases_with(records, table, **columns):
    """Where the table has such a row."""
    matches = columns.items()
    return {
        name
        for name, tables in records.databases.items()
        if any(matches <= row.items() for row in tables.get(table, ()))
    }


def test_a_delete_is_journaled_where_the_server_still_has_its_row():
    """Readers follow the mapping to cell0, but the cell that the server leaves owns it until its row there is gone."""
    seen, points = set(), points_of_a_burial()
    for point in range(points - BURIAL, points):
        cloud, _ = stalled_at(point)
        records = read_records(cloud)
        mapped = next(row["cell"] for row in records.table("server_mappings") if row["server_id"] == SERVER)
        rows = databases_with(records, "servers", id=SERVER)
        assert ask_for(cloud, "delete")
        owners = databases_with(read_records(cloud), "operations", kind="delete", server_id=SERVER)
        assert owners == ({"cell1"} if "cell1" in rows else {"cell0"}), f"stalled at point {point}"
        seen.add((mapped, *owners))
        cloud.close()
    assert seen >= {("cell1", "cell1"), ("cell0", "cell1"), ("cell0", "cell0")}, "before, on the way, and there"
