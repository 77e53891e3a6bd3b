"""Databases that are away for longer than service_down_time, and hosts that fail while they return: a living host never
counts as down, no guest runs twice, and no complete disk is lost."""

import pytest

from kilonova.compute.drivers.simulated.faults import VERBS
from kilonova.domain.errors import KilonovaError
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.hosts.states import declare_down, declare_up
from kilonova.sim.invariants.invariants import check
from kilonova.store.hosts import judge_all

DOWN = 60.0  # service_down_time


def states(cloud):
    async def body(tx):
        return {name: state.status for name, state in (await judge_all(tx, DOWN)).items()}

    return cloud.do(lambda engine: engine.world.db.cell("cell1").read(body))


def evacuated(cloud, server):
    """Whether an evacuation was accepted."""
    ask = Ask(kind="evacuate", server_id=server, cause=cloud.cause(), params={})
    try:
        cloud.do(lambda engine: submit(engine, ask))
    except KilonovaError:
        return False
    return True


@pytest.mark.parametrize("database", ["cell1", "control", "placement"])
@pytest.mark.parametrize("how", ["refuses", "hangs"])
@pytest.mark.parametrize("seconds", [75.0, 200.0])
def test_a_living_host_is_not_down_after_a_database_was_away(cloud, database, how, seconds):
    """Hosts beat all the time; what could not be written was not heard, and the observer knows that of itself."""
    cloud = cloud(hosts=3, conductors=2)
    servers = [cloud.make(f"s{n}", host=f"host{n}")[0] for n in (1, 2, 3)]
    cloud.loop.run_for(2 * DOWN)
    cloud.outages.begin(database, how)
    cloud.loop.run_for(seconds)
    cloud.outages.stop()
    for _ in range(120):
        cloud.loop.run_for(0.25)
        try:
            words = states(cloud)
        except KilonovaError:
            continue
        assert "down" not in words.values(), words
        assert not any(evacuated(cloud, server) for server in servers)
    assert set(states(cloud).values()) == {"up"}
    assert [cloud.hardware.running(server) for server in servers] == [[(f"host{n}", 1)] for n in (1, 2, 3)]


@pytest.mark.parametrize("database", ["cell1", "control", "placement"])
def test_a_dead_host_is_evacuated_and_returns_around_an_outage(cloud, database):
    """The host dies for good while the database is away: once its silence is proven it may be evacuated, and comes home
    to give up its copy."""
    cloud = cloud(hosts=3)
    server, _ = cloud.make(host="host1")
    cloud.loop.run_for(2 * DOWN)
    cloud.outages.begin(database)
    cloud.hardware.switch_power("host1", False)
    cloud.kill("host1")
    cloud.loop.run_for(75.0)
    cloud.outages.stop()
    cloud.loop.run_for(5.0)
    if database == "cell1":  # only then was nobody heard
        assert not evacuated(cloud, server), "nothing is proven yet"
    cloud.loop.run_for(3 * DOWN)
    assert states(cloud)["host1"] == "down"
    assert evacuated(cloud, server)
    cloud.outages.begin(database)
    cloud.loop.run_for(75.0)
    cloud.outages.stop()
    cloud.loop.run_for(120.0)
    cloud.hardware.switch_power("host1", True)
    cloud.start("host1")
    cloud.loop.run_for(120.0)
    assert len(cloud.hardware.running(server)) == 1
    assert cloud.server(server)["host"] != "host1"
    assert check(cloud) == []


@pytest.mark.parametrize("how", ["error", "crash"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_fails_once_while_a_host_returns(cloud, verb, how):
    """It has a copy to adopt and start, one to keep off, and one to remove. Whatever goes wrong on the way, in the end
    it is done."""
    cloud = cloud(hosts=2, volumes=1)
    volume = [{"volume_id": cloud.stock.volumes[0]}]
    runs, _ = cloud.make("runs", host="host1", volumes=volume)
    stopped, _ = cloud.make("stopped", host="host1" if verb != "ensure_power" else "host2")  # else it takes the failure
    gone, _ = cloud.make("gone", host="host1")
    cloud.submit("stop", stopped)
    cloud.loop.run_for(20.0)
    cloud.kill("host1")
    cloud.hardware.switch_power("host1", False)
    cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.submit("delete", gone)
    cloud.loop.run_for(20.0)
    assert [debt["server_id"] for debt in cloud.records().table("debts")] == [gone]
    cloud.hardware.switch_power("host1", True)
    cloud.hardware.fail("host1", verb, 1, how)
    cloud.hardware.on_crash("host1", lambda: cloud.crash("host1", 1.0))
    cloud.start("host1")
    cloud.loop.run_for(60.0)
    assert cloud.records().table("debts") == []
    cloud.do(lambda engine: declare_up(engine, "host1"))
    cloud.loop.run_for(60.0)
    cloud.hardware.heal()
    assert cloud.hardware.running(runs) == [("host1", 1)]
    assert cloud.hardware.running(stopped) == [] and cloud.hardware.survey(gone) == []
    assert cloud.server(runs)["vm_state"] == "active"
    assert states(cloud)["host1"] == "up"
    assert check(cloud) == []
