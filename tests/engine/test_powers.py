"""What a host says about the power of guests: believed only of the copy it may run, and never on its word alone."""

import pytest

from kilonova.conductor.powers import _note_power
from kilonova.schema.tables import cell
from kilonova.store import rows
from tests.engine.speaking import Speaker
from tests.engine.test_restored import server as server_row
from tests.support.neighbours import Watched, put_neighbours


@pytest.fixture
def running(cloud):
    """An active server on host1, which the test speaks for."""
    cloud = cloud(hosts=2)
    speaker = Speaker(cloud, "host1").join()
    server, _ = cloud.make(host="host1")
    (order,) = speaker.beat().steps
    assert speaker.finish(order)
    cloud.loop.run_for(2.0)
    assert shown(cloud, server) == ("active", 1, None)
    return cloud, speaker, server, order.copy


def shown(cloud, server):
    row = cloud.server(server)
    return row["vm_state"], row["power_state"], row["task_state"]


def test_a_guest_that_ended_is_looked_at_again(running):
    cloud, speaker, server, copy = running
    orders = speaker.beat(powers=[(server, copy, False)])
    assert orders.noted == []
    (order,) = orders.steps or speaker.beat().steps
    assert (order.kind, order.name, order.copy) == ("follow_power", "stop_instance", copy)
    assert shown(cloud, server)[0] == "active", "nothing is changed by the report"
    assert speaker.finish(order, result={"running": False})
    cloud.loop.run_for(2.0)
    assert shown(cloud, server) == ("stopped", 4, None)
    assert speaker.beat(powers=[(server, copy, False)]).noted == [(server, copy)], "the records agree"


def test_what_could_not_be_followed_is_followed_again(running):
    cloud, speaker, server, copy = running
    orders = speaker.beat(powers=[(server, copy, False)])
    (order,) = orders.steps or speaker.beat().steps
    speaker.finish(order, error={"code": "hangs", "message": "libvirtd does not answer"})
    cloud.loop.run_for(2.0)
    assert shown(cloud, server) == ("active", 1, None)
    orders = speaker.beat(powers=[(server, copy, False)])
    (order,) = orders.steps or speaker.beat().steps
    assert order.kind == "follow_power"


def test_a_report_that_came_late_changes_nothing(running):
    """When the host looks again, the guest runs."""
    cloud, speaker, server, copy = running
    orders = speaker.beat(powers=[(server, copy, False)])
    (order,) = orders.steps or speaker.beat().steps
    assert speaker.finish(order, result={"running": True})
    cloud.loop.run_for(2.0)
    assert shown(cloud, server) == ("active", 1, None)


def test_another_hosts_word_about_the_guest_is_worth_nothing(running):
    cloud, _, server, copy = running
    other = Speaker(cloud, "host2", "other").join()
    for number in (copy, copy + 1):
        answer = other.beat(powers=[(server, number, False)])
        assert (answer.noted, answer.steps, answer.register_again) == ([(server, number)], [], False)
    assert shown(cloud, server) == ("active", 1, None)
    assert other.beat(powers=[(server, copy, True)]).register_again, "it runs there without permission"


def test_another_copy_of_the_guest_is_not_the_guest(running):
    cloud, speaker, server, copy = running
    answer = speaker.beat(powers=[(server, copy + 1, False)])
    assert (answer.noted, answer.steps) == ([(server, copy + 1)], [])
    assert shown(cloud, server) == ("active", 1, None)


def test_while_an_operation_is_under_way_it_is_told_again(running):
    cloud, speaker, server, copy = running
    cloud.submit("stop", server)
    (order,) = speaker.beat().steps
    answer = speaker.beat(has=[f"{order.operation}/{order.ordinal}"], powers=[(server, copy, False)])
    assert answer.noted == []
    assert speaker.finish(order, result={"running": False})
    cloud.loop.run_for(2.0)
    answer = speaker.beat(powers=[(server, copy, False)])
    assert (answer.noted, answer.steps) == ([(server, copy)], []), "it agrees with the records"
    assert shown(cloud, server) == ("stopped", 4, None)


def test_a_stopped_guest_that_runs_is_stopped_again(running):
    cloud, speaker, server, copy = running
    cloud.submit("stop", server)
    (order,) = speaker.beat().steps
    assert speaker.finish(order, result={"running": False})
    cloud.loop.run_for(2.0)
    orders = speaker.beat(powers=[(server, copy, True)])
    (order,) = orders.steps or speaker.beat().steps
    assert order.kind == "follow_power" and order.facts.was == "stopped"
    assert speaker.finish(order, result={"running": False})
    cloud.loop.run_for(2.0)
    assert shown(cloud, server) == ("stopped", 4, None)


def test_a_host_of_a_past_epoch_is_not_heard(running):
    cloud, speaker, server, copy = running
    speaker.epoch -= 1
    answer = speaker.beat(powers=[(server, copy, False)])
    assert answer.register_again and answer.noted == []
    assert shown(cloud, server) == ("active", 1, None)


def test_what_was_read_before_an_operation_ended_changes_nothing(running):
    """The server was stopped, by an operation from its beginning to its end, after the record was read."""
    cloud, speaker, server, _ = running
    seen = cloud.server(server)
    cloud.submit("stop", server)
    (order,) = speaker.beat().steps
    assert speaker.finish(order)
    cloud.loop.run_for(2.0)
    assert shown(cloud, server) == ("stopped", 4, None)
    late = {**seen, "power_state": 4}  # as it was read
    cloud.do(lambda engine: _note_power(engine, engine.world.db.cell("cell1"), late, on=True))
    assert shown(cloud, server) == ("stopped", 4, None)


def test_each_server_is_judged_by_its_own_record(running):
    cloud, speaker, first, copy = running
    second, _ = cloud.make("second", host="host1")
    (order,) = speaker.beat().steps
    assert speaker.finish(order)
    cloud.loop.run_for(2.0)
    for server, number in ((first, copy), (second, order.copy)):
        assert speaker.beat(powers=[(server, number, True)]).noted == [(server, number)], "the records agree"
        answer = speaker.beat(powers=[(server, number, False)])
        (follow,) = answer.steps or speaker.beat().steps
        assert (answer.noted, follow.server) == ([], server)
        assert speaker.finish(follow, result={"running": True})
        cloud.loop.run_for(2.0)


def test_only_the_power_of_the_guest_itself_is_noted(cloud):
    """In the record as it was read: none of a later turn, and none that an operation is about."""
    cloud = cloud(hosts=1)
    row = server_row(power_state=4)

    async def note(engine):
        journal = engine.world.db.cell("cell1")

        async def put(tx):
            await put_neighbours(tx, cell.servers, row, id="0", operation_id="o")
            await rows.put(tx, cell.servers, **row)
            return await Watched.since_now(tx, cell.servers)

        before = await journal.write(put)
        for seen in (row, {**row, "id": "0-neighbour-1"}, {**row, "turn": row["turn"] + 1}):
            await _note_power(engine, journal, {**seen, "power_state": 4}, on=True)
        return [changed["id"] for changed in await journal.read(before.changed)]

    assert cloud.do(note) == ["s"]
