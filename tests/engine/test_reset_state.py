"""An administrator's word about a server's state is refused where it would hide what is under way, or missing."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.operations import reset_state as reset_module
from kilonova.operations.reset_state import reset_state
from kilonova.schema.tables import cell
from kilonova.sim.lab.rest import audited
from kilonova.store import rows
from tests.engine.conftest import SMALL


@pytest.fixture
def lab(cloud):
    return cloud(hosts=2)


def reset(lab, server, state):
    return lab.do(lambda engine: reset_state(engine, server, state, lab.cause()))


def change(lab, table, values, **keys):
    async def body(tx):
        assert await rows.change(tx, table, values, **keys)

    lab.alone(lambda stores: stores.cell("cell1").write(body), "a change", faulty=False)


def test_a_guest_is_not_touched(lab):
    server, _ = lab.make()
    before, running = lab.server(server), lab.hardware.running(server)
    assert reset(lab, server, "error") == "error"
    assert (lab.server(server)["vm_state"], lab.server(server)["turn"]) == ("error", before["turn"])
    assert reset(lab, server, "active") == "active"
    lab.loop.run_for(60.0)
    assert lab.server(server)["vm_state"] == "active"
    assert lab.hardware.running(server) == running
    assert [row["action"] for row in lab.records().table("actions")] == ["create", "resetState", "resetState"]
    assert audited(lab) == []


def test_a_server_whose_guest_is_off_is_stopped(lab):
    server, _ = lab.make()
    lab.submit("stop", server)
    lab.loop.run_for(10.0)
    assert (reset(lab, server, "error"), reset(lab, server, "active")) == ("error", "stopped")
    lab.loop.run_for(60.0)
    assert (lab.server(server)["vm_state"], lab.hardware.running(server)) == ("stopped", [])


@pytest.mark.parametrize("state", ["active", "error"])
def test_not_while_an_operation_is_under_way(lab, state):
    server, _ = lab.make()
    operation = lab.submit("rebuild", server, image="other").operation_id
    with pytest.raises(Refused) as refused:
        reset(lab, server, state)
    assert (refused.value.code, refused.value.details["operation"]) == ("busy", operation)
    lab.loop.run_for(30.0)
    assert lab.server(server)["vm_state"] == "active"


@pytest.mark.parametrize("state", ["active", "error"])
def test_not_while_it_is_placed(lab, state):
    for name in [name for name in lab.roles if name.startswith("conductor")]:
        lab.kill(name)
    server, _ = lab.make(wait=1.0)
    with pytest.raises(Refused, match="is being built"):
        reset(lab, server, state)


def test_what_never_had_a_host_is_not_active(lab):
    server, _ = lab.make(flavor=SMALL.__class__("huge", 1000, 1024, 10))
    assert reset(lab, server, "error") == "error"
    with pytest.raises(Refused, match="it has no guest"):
        reset(lab, server, "active")


def test_a_disk_that_is_not_whole_does_not_look_well(lab):
    server, _ = lab.make()
    change(lab, cell.copies, {"state": "begun"}, server_id=server)
    assert reset(lab, server, "error") == "error"
    with pytest.raises(Refused, match="its disk is not whole; rebuild it"):
        reset(lab, server, "active")
    assert lab.server(server)["vm_state"] == "error"


def test_a_restored_record_waits_for_its_host(lab):
    server, _ = lab.make()
    change(lab, cell.servers, {"unsettled": 1}, id=server)
    with pytest.raises(Refused, match="has not reported since"):
        reset(lab, server, "active")


@pytest.mark.parametrize("state", ["active", "error"])
def test_not_while_two_copies_are_there(lab, state):
    server, _ = lab.make()
    lab.submit("migrate", server)
    lab.loop.run_for(40.0)
    with pytest.raises(Refused, match="while it is in vm_state resized"):
        reset(lab, server, state)


def test_a_deleted_server_is_not_found(lab):
    server, _ = lab.make()
    lab.submit("delete", server)
    lab.loop.run_for(20.0)
    with pytest.raises(Refused, match="could not be found"):
        reset(lab, server, "active")


@pytest.mark.parametrize("since", [{"turn": 99}, {"operation_id": "another"}, {"turn": 99, "vm_state": "error"}])
def test_a_server_that_changed_since_the_look_is_looked_at_again(lab, monkeypatch, since):
    """Another transaction may have come in between: what it wrote is not overwritten by what was read before it."""
    server, _ = lab.make()
    real, looks = reset_module.gather, []

    async def changed_afterwards(engine, tx, ask, operation):
        subject = await real(engine, tx, ask, operation)
        looks.append(subject.server.turn)
        if len(looks) == 1:
            await rows.change(tx, cell.servers, since, id=server)
        return subject

    monkeypatch.setattr(reset_module, "gather", changed_afterwards)
    reset(lab, server, "error")
    assert len(looks) == 2  # the first transaction was rolled back with all that was written in it
    assert [row["action"] for row in lab.records().table("actions")] == ["create", "resetState"]
