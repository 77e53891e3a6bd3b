"""Evacuate: how a server arrives, and how the record of its move ends."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.cell import servers
from kilonova.store import rows
from tests.engine.speaking import Speaker


def stranded(cloud, **columns):
    """A server whose host is dead."""
    cloud = cloud(hosts=2, conductors=1)
    server, _ = cloud.make(host="host1")

    async def change(engine):
        await engine.world.db.cell("cell1").write(lambda tx: rows.change(tx, servers, columns, id=server))

    if columns:
        cloud.do(change)
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(70.0)
    return cloud, server


def moves(cloud):
    return [(row["status"], row["open"]) for row in cloud.records().table("migrations")]


def test_a_server_in_error_comes_up_active_where_others_are_stopped(cloud):
    cloud, server = stranded(cloud, vm_state="error")
    cloud.submit("evacuate", server, stopped=True)
    cloud.loop.run_for(30.0)
    assert (cloud.server(server)["vm_state"], cloud.server(server)["power_state"]) == ("active", 1)


def test_a_delete_ends_the_record_of_an_evacuation_that_was_only_accepted(cloud):
    cloud, server = stranded(cloud)
    cloud.kill("conductor1")
    cloud.submit("evacuate", server)
    assert moves(cloud) == [("accepted", 0)]
    cloud.submit("delete", server)
    cloud.start("conductor1")
    cloud.loop.run_for(120.0)
    assert cloud.server(server)["deleted"]
    assert moves(cloud) == [("failed", 0)]


@pytest.mark.parametrize(("host", "code"), [("host1", "same_host"), ("host9", "no_such_host")])
def test_a_destination_that_cannot_be_is_refused_and_changes_nothing(cloud, host, code):
    cloud, server = stranded(cloud)
    before = cloud.server(server)
    with pytest.raises(Refused) as refused:
        cloud.submit("evacuate", server, host=host)
    assert refused.value.code == code
    assert (cloud.server(server), moves(cloud)) == (before, [])


def test_a_source_that_answers_again_registers_first(cloud):
    """Also where permission to run never moved: whatever it sends is of an epoch that has passed."""
    cloud = cloud(hosts=1, conductors=1)
    speaker = Speaker(cloud, "host1").join()
    server, _ = cloud.make(host="host1")
    (order,) = speaker.beat().steps
    assert speaker.finish(order)
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(70.0)
    evacuation = cloud.submit("evacuate", server).operation_id
    cloud.loop.run_for(30.0)
    assert cloud.operation(evacuation)["state"] == "undone"
    assert speaker.beat().register_again
