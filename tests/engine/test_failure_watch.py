"""The failure watch on a simulated cloud: what it does about dead hosts, and above all when it does nothing."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.hosts.failures import arm_watch, disarm_watch, watch_status
from kilonova.hosts.states import declare_down
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.schema.tables.journal import operations
from kilonova.schema.tables.stores import this_store
from kilonova.settings import HaOptions
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.settings import simulated
from kilonova.sim.loop.faults import Weather
from kilonova.store import rows

AUTOMATIC = HaOptions(automatic=True)
DOWN = 60.0
SOON = 2 * DOWN + 20.0  # it is fenced by then
LATER = 120.0  # and evacuated


@pytest.fixture
def watched(cloud):
    def build(hosts=12, rules=AUTOMATIC, **shape):
        made = cloud(hosts=hosts, settings=simulated(ha=rules), **shape)
        made.hub.weather = made.weather = Weather("calm")
        made.weather.stop()
        made.loop.run_for(2 * DOWN)  # a watcher that has just begun has not heard enough
        return made

    return build


def kill(cloud, *hosts, used=True):
    """A host without servers is left alone, so each gets one."""
    for host in hosts:
        if used and not any(row["host"] == host for row in cloud.records().table("servers")):
            cloud.make(f"on-{host}", host=host)
    for host in hosts:
        cloud.hardware.switch_power(host, on=False)


def cut(cloud, *roles):
    cloud.weather.cut.update(roles)


def mend(cloud):
    cloud.weather.cut.clear()


def status(cloud):
    return cloud.do(watch_status)


def decisions(cloud):
    return {one["host"]: one["decision"] for one in status(cloud)["silent"]}


def failures(cloud):
    return [(one["host"], one["state"]) for one in status(cloud)["records"]]


def evacuations(cloud):
    return [row for row in cloud.records().databases["cell1"]["operations"] if row["kind"] == "evacuate_host"]


def wrong_afterwards(cloud):
    """Every host is there again and has paid: nothing may be left, and no guest run twice."""
    mend(cloud)
    for host in cloud.hardware.hosts():
        if not cloud.hardware.is_running(host):
            cloud.hardware.switch_power(host, on=True)
    cloud.loop.run_for(LATER)
    return check(cloud)


def test_a_dead_host_is_fenced_and_evacuated(watched):
    cloud = watched()
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(3)]
    kill(cloud, "host1")
    cloud.loop.run_for(DOWN + 10.0)
    assert decisions(cloud) == {"host1": "waits"} and cloud.fence.fenced == []
    cloud.loop.run_for(SOON - DOWN - 10.0)
    assert cloud.fence.fenced == ["host1"]
    cloud.loop.run_for(LATER)
    record = status(cloud)["records"][0]
    assert (record["state"], record["sentence"]) == ("done", "3 moved; 0 failed; 0 impossible")
    assert record["evidence"].startswith("host1 has been silent for ") and "found without power" in record["proof"]
    assert "host1" not in {cloud.server(server)["host"] for server in servers}
    assert {cloud.server(server)["vm_state"] for server in servers} == {"active"}
    assert wrong_afterwards(cloud) == [] and failures(cloud) == [("host1", "returned")]


def test_nothing_is_automatic_by_default(watched):
    cloud = watched(rules=HaOptions())
    server, _ = cloud.make("a", host="host1")
    kill(cloud, "host1")
    cloud.loop.run_for(1000.0)
    assert decisions(cloud) == {"host1": "asks"} and failures(cloud) == []
    assert cloud.fence.fenced == [] and cloud.server(server)["host"] == "host1"


def test_the_fence_command_is_not_shown(watched):
    """It may hold a password of the power switches."""
    shown = status(watched(rules=HaOptions(fence_command=("fence", "-psecret", "{host}"))))["rules"]
    assert shown == {
        "automatic": False,
        "storm_percent": 10.0,
        "storm_hosts": 3,
        "storm_window": 600.0,
        "fence_timeout": 60.0,
    }


def test_half_the_fleet_falls_silent_at_once(watched):
    """H4."""
    cloud = watched()
    cloud.make("a", host="host1")
    cut(cloud, *(f"host{number}" for number in range(1, 7)))
    cloud.loop.run_for(1000.0)
    assert set(decisions(cloud).values()) == {"held"} and cloud.fence.fenced == [] and evacuations(cloud) == []
    assert "6 of 12 hosts are silent, more than storm_hosts = 3" in status(cloud)["silent"][0]["why"]
    mend(cloud)
    cloud.loop.run_for(60.0)
    assert decisions(cloud) == {} and failures(cloud) == [] and wrong_afterwards(cloud) == []


@pytest.mark.parametrize(("hosts", "dead"), [(12, 2), (30, 4), (2, 1), (10, 2)])
def test_a_storm(watched, hosts, dead):
    cloud = watched(hosts=hosts)
    kill(cloud, *(f"host{number}" for number in range(1, dead + 1)))
    cloud.loop.run_for(SOON + LATER)
    assert set(decisions(cloud).values()) == {"held"} and cloud.fence.fenced == []


@pytest.mark.parametrize(("hosts", "dead"), [(3, 1), (30, 3), (20, 2)])
def test_no_storm(watched, hosts, dead):
    cloud = watched(hosts=hosts)
    names = [f"host{number}" for number in range(1, dead + 1)]
    kill(cloud, *names)
    cloud.loop.run_for(SOON + LATER)
    assert sorted(cloud.fence.fenced) == names and {state for _, state in failures(cloud)} == {"done"}


def test_a_rack_that_dies_slowly_is_a_storm_too(watched):
    """Each host alone would be fenced; those that were fenced within storm_window count with the next ones."""
    cloud = watched(hosts=30)
    for number in range(1, 7):
        kill(cloud, f"host{number}")
        cloud.loop.run_for(SOON)
    assert len(cloud.fence.fenced) == 3
    assert set(decisions(cloud).values()) == {"held"}


def test_a_deaf_watcher_does_nothing(watched):
    """Its database works, and it hears nobody."""
    cloud = watched()
    cut(cloud, "conductor1")
    cloud.loop.run_for(1000.0)
    assert set(decisions(cloud).values()) == {"held"} and cloud.fence.fenced == []
    mend(cloud)
    cloud.loop.run_for(30.0)
    assert cloud.fence.fenced == [] and failures(cloud) == []


def test_a_watcher_that_has_just_begun_waits_until_it_has_heard_enough(watched):
    cloud = watched()
    kill(cloud, "host1")
    cloud.loop.run_for(2 * DOWN - 10.0)
    cloud.crash("conductor1")
    cloud.loop.run_for(DOWN)
    assert cloud.fence.fenced == []
    cloud.loop.run_for(2 * DOWN)
    assert cloud.fence.fenced == ["host1"]


def test_a_host_that_flaps_is_never_fenced(watched):
    cloud = watched()
    cloud.make("a", host="host1")
    for _ in range(6):
        cut(cloud, "host1")
        cloud.loop.run_for(1.5 * DOWN)
        mend(cloud)
        cloud.loop.run_for(20.0)
    assert cloud.fence.fenced == [] and failures(cloud) == [] and wrong_afterwards(cloud) == []


def test_two_watchers_act_once(watched):
    cloud = watched(conductors=3)
    server, _ = cloud.make("a", host="host1")
    kill(cloud, "host1")
    cloud.loop.run_for(SOON + LATER)
    assert cloud.fence.fenced == ["host1"] and len(evacuations(cloud)) == 1
    assert (
        failures(cloud) == [("host1", "done")]
        and cloud.server(server)["host"] != "host1"
        and wrong_afterwards(cloud) == []
    )


def test_a_partitioned_host_is_switched_off_before_its_servers_run_elsewhere(watched):
    cloud = watched()
    server, _ = cloud.make("a", host="host1")
    cut(cloud, "host1")
    cloud.loop.run_for(SOON + LATER)
    assert not cloud.hardware.is_running("host1")
    assert cloud.server(server)["host"] != "host1" and wrong_afterwards(cloud) == []


def test_a_fence_that_fails_is_tried_again_and_nothing_is_evacuated_before(watched):
    cloud = watched()
    cloud.make("a", host="host1")
    cloud.fence.broken = "no route to its power switch"
    kill(cloud, "host1")
    cloud.loop.run_for(SOON)
    record = status(cloud)["records"][0]
    assert record["state"] == "fence_failed" and "no route to its power switch" in record["sentence"]
    cloud.loop.run_for(1000.0)
    assert 3 <= len(cloud.fence.fenced) <= 6 and evacuations(cloud) == []
    cloud.fence.broken = ""
    cloud.loop.run_for(800.0)
    assert failures(cloud) == [("host1", "done")]


def test_a_fence_that_hangs_holds_nobody_else_up(watched):
    cloud = watched(hosts=30)
    for host in ("host1", "host2"):
        cloud.make(f"on-{host}", host=host)
    cloud.fence.hangs = True
    kill(cloud, "host1")
    cloud.loop.run_for(2 * DOWN + 10.0)
    cloud.fence.hangs = False
    kill(cloud, "host2")
    cloud.loop.run_for(40.0)
    assert failures(cloud) == [("host1", "fencing")]
    cloud.loop.run_for(30.0)
    record = status(cloud)["records"][0]
    assert record["state"] == "fence_failed" and "no answer within 60 s" in record["sentence"]
    cloud.loop.run_for(200.0)
    assert sorted(failures(cloud)) == [("host1", "done"), ("host2", "done")]


def test_a_fence_that_fails_leaves_a_living_host_open(watched):
    cloud = watched()
    cloud.make("there", host="host1")
    cloud.fence.broken = "no route to its power switch"
    cut(cloud, "host1")
    cloud.loop.run_for(SOON)
    mend(cloud)
    cloud.loop.run_for(60.0)
    assert failures(cloud) == [("host1", "returned")]
    server, _ = cloud.make("a", host="host1")
    assert cloud.server(server)["vm_state"] == "active"


def test_a_fence_that_lied_disarms_the_watch(watched):
    """The host was cut off and lives. Heard again before its servers were evacuated, it keeps them."""
    cloud = watched()
    server, _ = cloud.make("a", host="host1")
    cloud.fence.lies = True
    cut(cloud, "host1")
    while not cloud.fence.fenced:
        cloud.loop.run_for(1.0)
    mend(cloud)
    cloud.loop.run_for(60.0)
    told = status(cloud)
    assert failures(cloud) == [("host1", "lied")] and evacuations(cloud) == []
    assert not told["armed"] and "its agent never stopped" in told["disarmed"]["reason"]
    assert cloud.server(server)["host"] == "host1" and wrong_afterwards(cloud) == []
    kill(cloud, "host2")
    cloud.loop.run_for(SOON + LATER)
    assert cloud.fence.fenced == ["host1"]
    cloud.fence.lies = False
    cloud.do(arm_watch)
    cloud.loop.run_for(SOON)
    assert cloud.fence.fenced == ["host1", "host2"]


def test_disarmed_it_waits_and_goes_on_afterwards(watched):
    cloud = watched()
    cloud.make("a", host="host1")
    cloud.do(lambda engine: disarm_watch(engine, 600.0, "the switch is replaced", cloud.cause()))
    kill(cloud, "host1")
    cloud.loop.run_for(590.0)
    assert decisions(cloud) == {"host1": "held"} and cloud.fence.fenced == []
    assert status(cloud)["silent"][0]["why"] == "the watch is disarmed: the switch is replaced"
    cloud.loop.run_for(60.0)
    assert cloud.fence.fenced == ["host1"]


@pytest.mark.parametrize(("seconds", "reason"), [(0.0, "why"), (-1.0, "why"), (31 * 24 * 3600.0, "why"), (60.0, " ")])
def test_disarming_needs_a_time_and_a_reason(watched, seconds, reason):
    cloud = watched(hosts=3)
    with pytest.raises(Refused):
        cloud.do(lambda engine: disarm_watch(engine, seconds, reason, cloud.cause()))
    assert status(cloud)["armed"]


def test_disarmed_between_fence_and_evacuation_the_servers_stay(watched):
    cloud = watched()
    cloud.make("a", host="host1")
    kill(cloud, "host1")
    while not cloud.fence.fenced:
        cloud.loop.run_for(1.0)
    cloud.do(lambda engine: disarm_watch(engine, 600.0, "I look myself", cloud.cause()))
    cloud.loop.run_for(300.0)
    assert failures(cloud) == [("host1", "fenced")] and evacuations(cloud) == []
    cloud.do(arm_watch)
    cloud.loop.run_for(LATER)
    assert failures(cloud) == [("host1", "done")]


@pytest.mark.parametrize("after", [0.0, 0.5, 5.0, 21.0, 24.0, 30.0])
def test_a_watcher_that_dies_is_followed_by_another(watched, after):
    """While the fence works, after it, and while the servers are evacuated."""
    cloud = watched(conductors=2)
    server, _ = cloud.make("a", host="host1")
    kill(cloud, "host1")
    while not cloud.fence.fenced:
        cloud.loop.run_for(0.25)
    cloud.loop.run_for(after)
    cloud.crash("conductor1")
    cloud.loop.run_for(2.0)
    cloud.crash("conductor2", back_after=10.0)
    cloud.loop.run_for(500.0)
    assert failures(cloud) == [("host1", "done")] and len(evacuations(cloud)) == 1
    assert cloud.server(server)["host"] != "host1" and wrong_afterwards(cloud) == []


def test_servers_that_fit_nowhere_are_tried_again(watched):
    cloud = watched(hosts=3, vcpus=1)
    servers = {host: cloud.make(host, host=host)[0] for host in ("host1", "host2", "host3")}
    kill(cloud, "host1")
    cloud.loop.run_for(SOON + LATER)
    record = status(cloud)["records"][0]
    assert record["state"] == "incomplete" and "0 moved; 0 failed; 1 impossible" in record["sentence"]
    cloud.submit("delete", servers["host2"])
    cloud.loop.run_for(400.0)
    assert failures(cloud) == [("host1", "done")] and cloud.server(servers["host1"])["host"] == "host2"
    assert len(evacuations(cloud)) == 2 and wrong_afterwards(cloud) == []


@pytest.mark.parametrize("state", ["failed", "undone"])
def test_an_evacuation_that_ended_without_an_account_is_begun_again(watched, state):
    """An operator abandoned it, or its records were restored: nobody knows who is left on the host."""
    cloud = watched(hosts=3, boot_seconds=30.0)
    kill(cloud, "host1")
    while failures(cloud) != [("host1", "evacuating")]:
        cloud.loop.run_for(1.0)
    (evacuation,) = evacuations(cloud)

    async def end(tx):
        await rows.change(tx, operations, {"state": state, "live": 0}, id=evacuation["id"])

    cloud.do(lambda engine: engine.world.db.cell("cell1").write(end))
    cloud.loop.run_for(5.0)
    assert failures(cloud) == [("host1", "incomplete")]
    cloud.loop.run_for(400.0)
    assert failures(cloud) == [("host1", "done")] and len(evacuations(cloud)) == 2


def test_what_an_operator_has_declared_is_left_to_the_operator(watched):
    cloud = watched()
    cloud.make("a", host="host1")
    kill(cloud, "host1")
    cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.loop.run_for(SOON + LATER)
    assert decisions(cloud) == {} and cloud.fence.fenced == [] and evacuations(cloud) == []


def test_a_host_without_servers_is_left_alone(watched):
    """Somebody may be writing its firmware."""
    cloud = watched(hosts=4)
    kill(cloud, "host1", used=False)
    cloud.loop.run_for(SOON + LATER)
    assert decisions(cloud) == {"host1": "held"} and "no server is there" in status(cloud)["silent"][0]["why"]
    assert cloud.fence.fenced == []


def test_a_drained_host_is_left_alone_and_is_no_storm(watched):
    cloud = watched(hosts=6)
    servers = [cloud.make(f"s{number}", host=f"host{number}")[0] for number in (1, 2, 3)]
    drained = [f"host{number}" for number in (1, 2, 3)]
    cloud.do(lambda engine: ask_for_hosts(engine, "drain_host", drained, cloud.cause(), None, Bulk(by="stop")))
    cloud.loop.run_for(60.0)
    kill(cloud, *drained)
    cloud.loop.run_for(SOON + LATER)
    assert set(decisions(cloud).values()) == {"held"} and cloud.fence.fenced == []
    assert "drained for maintenance" in status(cloud)["silent"][0]["why"]
    kill(cloud, "host4")
    cloud.loop.run_for(SOON + LATER)
    assert cloud.fence.fenced == ["host4"] and {cloud.server(one)["host"] for one in servers} == set(drained)


def test_restored_records_prove_no_silence(watched):
    """They say when the host was heard before the backup."""
    cloud = watched()
    kill(cloud, "host1")
    cloud.loop.run_for(2 * DOWN - 10.0)

    async def restore(stores):
        async def body(tx):
            await rows.change(tx, this_store, {}, ("restored_at",), id=1)

        await stores.cell("cell1").write(body)

    cloud.alone(restore, "the records are restored", faulty=False)
    cloud.loop.run_for(2 * DOWN - 10.0)
    assert cloud.fence.fenced == []
    cloud.loop.run_for(30.0)
    assert cloud.fence.fenced == ["host1"]


def test_a_cell_that_is_away_is_a_reason_to_hold(watched):
    cloud = watched(hosts=12, cells=2)
    kill(cloud, "host1")
    cloud.outages.begin("cell2")
    cloud.loop.run_for(SOON + LATER)
    assert cloud.fence.fenced == []
    cloud.outages.end("cell2")
    cloud.loop.run_for(SOON + LATER)
    assert cloud.fence.fenced == ["host1"]
