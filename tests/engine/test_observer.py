"""Silence counts only while the observer was listening without a gap (law 9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kilonova.conductor.observer import Observer
from kilonova.settings import Default
from kilonova.sim.lab.settings import simulated
from kilonova.store.hosts import judge_all
from tests.engine.speaking import Speaker


def states(cloud: Any) -> dict[str, str]:
    """Of the hosts of cell1, by the records alone."""

    async def look(stores: Any) -> dict[str, str]:
        down_after = cloud.shape.settings.default.service_down_time
        found = await stores.cell("cell1").read(lambda tx: judge_all(tx, down_after))
        return {name: state.status for name, state in found.items()}

    return cloud.alone(look, "the hosts", faulty=False)  # type: ignore[no-any-return]


def seen_during(cloud: Any, seconds: float) -> list[dict[str, str]]:
    found = []
    for _ in range(int(seconds * 4)):
        cloud.loop.run_for(0.25)
        found.append(states(cloud))
    return found


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_suspended_machine_wakes_up(cloud: Any, hosts: int) -> None:
    """Everybody stood still together. The conductor runs again before the first heartbeat comes."""
    made = cloud(hosts=hosts)
    roles = [made.roles[name].process for name in ("conductor1", "api", *(f"host{n + 1}" for n in range(hosts)))]
    for process in roles:
        made.loop.freeze(process)
    made.loop.run_for(600.0)
    conductor, *others = roles
    made.loop.thaw(conductor)
    assert {word for seen in seen_during(made, 5.0) for word in seen.values()} == {"unknown"}
    for process in others:
        made.loop.thaw(process)
    made.loop.run_for(15.0)
    assert set(states(made).values()) == {"up"}


def test_hosts_beat_while_nobody_can_record_it(cloud: Any) -> None:
    """The database is away for longer than a host may be silent: when it is back, what was heard meanwhile counts."""
    made = cloud(hosts=2)
    made.outages.begin("cell1")
    made.loop.run_for(75.0)
    assert set(states(made).values()) == {"unknown"}
    made.outages.end("cell1")
    after = seen_during(made, 8.0)
    assert not any("down" in seen.values() for seen in after)
    assert set(after[3].values()) == {"up"}, "a second is enough: nobody waits for the next heartbeat"


def test_a_host_whose_hypervisor_hangs_is_up(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat needs nothing of it. For a libvirtd that hangs see tests/guests/test_hung.py."""
    made, asked = cloud(hosts=2), list[str]()
    driver = made.roles["host1"].part.driver

    async def hang(*_: Any, **__: Any) -> None:
        asked.append("")
        await asyncio.get_running_loop().create_future()

    for verb in ("copies", "inventory", "is_on", "ensure_disk", "ensure_defined", "ensure_power"):
        monkeypatch.setattr(driver, verb, hang)
    states_seen = seen_during(made, 2 * made.shape.settings.default.service_down_time)
    assert {seen["host1"] for seen in states_seen} == {"up"} and not asked


def test_a_host_that_died_meanwhile_is_not_heard(cloud: Any) -> None:
    made = cloud(hosts=2)
    made.outages.begin("cell1")
    made.hardware.switch_power("host1", False)
    made.loop.run_for(75.0)
    made.outages.end("cell1")
    after = seen_during(made, 50.0)
    assert {seen["host1"] for seen in after} == {"unknown"}, "nobody has listened for long enough"
    made.loop.run_for(20.0)
    assert states(made) == {"host1": "down", "host2": "up"}


def test_a_host_whose_heartbeats_go_to_a_conductor_that_stands_still_is_not_down(cloud: Any) -> None:
    """A broker gives each heartbeat to one of the conductors: by bad luck always to this one."""
    made = cloud(hosts=3, conductors=2)
    picked = made.hub.receivers

    def unlucky(subject: str) -> Any:
        if subject != "conductor.beat":
            return picked(subject)
        return [server for server in made.hub._servers[subject] if server.end.name == "conductor2"]

    made.hub.receivers = unlucky
    made.loop.freeze(made.roles["conductor2"].process)
    assert {word for seen in seen_during(made, 200.0)[40:] for word in seen.values()} == {"up"}


def test_what_was_heard_long_ago_does_not_hide_what_another_has_heard_since(cloud: Any) -> None:
    """A conductor whose database was away records late what it heard before that."""
    made = cloud(hosts=2)
    before = {row["name"]: (row["session"], row["last_seen"]) for row in made.records().table("hosts")}

    async def late(engine: Any) -> None:
        observer = Observer(engine, engine.world.db.cell("cell1"))
        heard = engine.world.clock.monotonic() - 100.0
        observer.heard = {name: (session, heard) for name, (session, _) in before.items()}
        await observer.flush(True)

    made.do(late)
    assert all(row["last_seen"] >= before[row["name"]][1] for row in made.records().table("hosts"))
    assert set(states(made).values()) == {"up"}


def test_an_agent_that_was_replaced_is_not_heard(cloud: Any) -> None:
    """Two agents of one host, say after a live clone of the machine: only the one that registered last counts."""
    made = cloud(hosts=2)
    old, new = Speaker(made, "host1", "old").join(), Speaker(made, "host1", "new").join()
    for _ in range(12):
        new.beat()
        made.loop.run_for(10.0)
    assert states(made) == {"host1": "up", "host2": "up"}
    for _ in range(12):
        assert old.beat().register_again
        made.loop.run_for(10.0)
    assert states(made) == {"host1": "down", "host2": "up"}


@pytest.mark.parametrize(("down_after", "seconds"), [(60.0, 1.0), (4.0, 0.5)])
def test_heartbeats_are_recorded_well_before_silence_counts(cloud: Any, down_after: float, seconds: float) -> None:
    lab = cloud(hosts=1, settings=simulated(default=Default(report_interval=1.0, service_down_time=down_after)))
    assert lab.roles["conductor1"].engine.flush_seconds == seconds
