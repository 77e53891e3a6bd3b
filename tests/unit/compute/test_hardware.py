"""Machines switched, failed and inspected from outside."""

import asyncio
import random
import time

import pytest

from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedFence, SimulatedMemory
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.domain.errors import Failed, Refused
from kilonova.sim.loop.process import Process
from tests.unit.compute.simulated_cloud import Cloud, spec

VERB_CALLS = {
    "inventory": lambda driver: driver.inventory(),
    "copies": lambda driver: driver.copies(),
    "ensure_disk": lambda driver: driver.ensure_disk(spec()),
    "send_disk": lambda driver: driver.send_disk("s1", 1, to_host="host2", to_copy=2),
    "ensure_defined": lambda driver: driver.ensure_defined(spec()),
    "ensure_power": lambda driver: driver.ensure_power("s1", 1, on=True),
    "ensure_absent": lambda driver: driver.ensure_absent("s1", 1),
    "console": lambda driver: driver.console("s1", 1),
}
every_verb = pytest.mark.parametrize("verb", list(VERB_CALLS))


def prepare(cloud: Cloud) -> None:
    cloud.ask(cloud.drivers["host1"].ensure_disk(spec()))
    cloud.ask(cloud.drivers["host1"].ensure_defined(spec()))


def test_power_off_stops_guests_and_keeps_disks(cloud: Cloud) -> None:
    cloud.boot()
    cloud.hardware.write("s1", "note")
    cloud.hardware.switch_power("host1", on=False)
    assert not cloud.hardware.is_running("host1")
    found = cloud.hardware.survey("s1")[0]
    assert (found.power, found.whole, found.defined, found.marker) == ("off", True, True, "image:cirros+note")
    cloud.hardware.switch_power("host1", on=True)
    assert cloud.hardware.running("s1") == [], "no guest starts by itself"


@every_verb
def test_no_verb_returns_on_a_host_without_power(cloud: Cloud, verb: str) -> None:
    prepare(cloud)
    cloud.hardware.switch_power("host1", on=False)
    task = cloud.loop.create_task(VERB_CALLS[verb](cloud.drivers["host1"]))
    cloud.loop.run_for(1000)
    cloud.hardware.switch_power("host1", on=True)
    cloud.loop.run_for(1000)
    assert not task.done()


def test_a_verb_begun_before_a_power_cut_has_no_effect_after_it() -> None:
    cloud = Cloud(copy_seconds=10)
    task = cloud.loop.create_task(cloud.drivers["host1"].ensure_disk(spec()))
    cloud.loop.run_for(5)
    cloud.hardware.switch_power("host1", on=False)
    cloud.hardware.switch_power("host1", on=True)
    cloud.loop.run_for(100)
    assert not task.done()
    assert not cloud.hardware.survey()[0].whole
    assert cloud.ask(cloud.drivers["host1"].ensure_disk(spec())) == "created"
    cloud.close()


def test_power_hooks_hear_each_change_once_and_after_it(cloud: Cloud) -> None:
    heard: list[tuple[bool, bool]] = []
    cloud.hardware.on_power("host1", lambda on: heard.append((on, cloud.hardware.is_running("host1"))))
    for on in (False, False, True, True):
        cloud.hardware.switch_power("host1", on=on)
    cloud.hardware.switch_power("host2", on=False)
    assert heard == [(False, False), (True, True)]


def test_a_cut_link_stops_nothing(cloud: Cloud) -> None:
    cloud.boot()
    cloud.hardware.switch_link("host1", up=False)
    assert (cloud.hardware.is_running("host1"), cloud.hardware.is_linked("host1")) == (True, False)
    assert cloud.hardware.running("s1") == [("host1", 1)]
    cloud.ask(cloud.drivers["host1"].ensure_power("s1", 1, on=False))
    cloud.hardware.switch_link("host1", up=True)
    assert cloud.hardware.is_linked("host1")
    cloud.hardware.switch_power("host1", on=False)
    assert not cloud.hardware.is_linked("host1")


@every_verb
def test_each_verb_can_fail_and_then_works_again(cloud: Cloud, verb: str) -> None:
    prepare(cloud)
    cloud.hardware.fail("host1", verb, times=2)
    for _ in range(2):
        with pytest.raises(Failed, match=f"{verb} failed on host1") as failure:
            cloud.ask(VERB_CALLS[verb](cloud.drivers["host1"]))
        assert failure.value.code == "driver_error"
    cloud.ask(VERB_CALLS[verb](cloud.drivers["host1"]))


@every_verb
def test_each_verb_can_crash_the_agent_and_is_completed_by_the_next(cloud: Cloud, verb: str) -> None:
    prepare(cloud)
    agent = Process("agent")
    log: list[str] = []
    cloud.hardware.on_crash("host1", lambda: cloud.loop.kill(agent))

    async def run() -> None:
        try:
            await VERB_CALLS[verb](cloud.drivers["host1"])
        finally:
            log.append("returned")

    cloud.hardware.fail("host1", verb, how="crash")
    cloud.loop.spawn(agent, run())
    cloud.loop.run_for(100)
    assert (log, agent.alive) == ([], False)
    cloud.ask(VERB_CALLS[verb](cloud.drivers["host1"]))


@pytest.mark.parametrize(
    ("verb", "left"),
    [("ensure_disk", ("absent", False)), ("ensure_power", ("on", True)), ("ensure_absent", ("absent", True))],
)
def test_a_crash_leaves_half_the_effect(cloud: Cloud, verb: str, left: tuple[str, bool]) -> None:
    if verb != "ensure_disk":
        prepare(cloud)
    cloud.hardware.fail("host1", verb, how="crash")
    cloud.loop.create_task(VERB_CALLS[verb](cloud.drivers["host1"]))
    cloud.loop.run_for(1)
    found = cloud.hardware.survey()[0]
    assert (found.power, found.whole) == left


def test_a_crash_while_sending_leaves_half_a_disk_there(cloud: Cloud) -> None:
    prepare(cloud)
    cloud.hardware.fail("host1", "send_disk", how="crash")
    cloud.loop.create_task(VERB_CALLS["send_disk"](cloud.drivers["host1"]))
    cloud.loop.run_for(1)
    assert [(found.host, found.whole) for found in cloud.hardware.survey()] == [("host1", True), ("host2", False)]


def test_any_verb_and_only_on_that_host(cloud: Cloud) -> None:
    cloud.hardware.fail("host1", "*")
    cloud.ask(cloud.drivers["host2"].copies())
    with pytest.raises(Failed):
        cloud.ask(cloud.drivers["host1"].copies())
    cloud.ask(cloud.drivers["host1"].copies())


def test_failures_can_be_taken_back(cloud: Cloud) -> None:
    cloud.hardware.fail("host1", "*", times=100)
    cloud.hardware.fail("host2", "copies", times=100)
    cloud.hardware.heal("host1")
    cloud.ask(cloud.drivers["host1"].copies())
    cloud.hardware.heal()
    cloud.ask(cloud.drivers["host2"].copies())


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (("mars", "copies"), "simulated host 'mars': not found; there are 3"),
        (("host1", "explode"), "verb 'explode': unknown; use one of inventory, copies"),
        (("host1", "copies", 0), "times=0: must be 1 or more"),
        (("host1", "copies", 1, "politely"), "use error or refuse or crash"),
    ],
)
def test_orders_that_make_no_sense_are_refused(cloud: Cloud, order: tuple[str, ...], words: str) -> None:
    with pytest.raises(Refused, match=words):
        cloud.hardware.fail(*order)


@pytest.mark.parametrize("text", ["", "two words", "new\nline", "\t"])
def test_only_one_word_can_be_written(cloud: Cloud, text: str) -> None:
    cloud.boot()
    with pytest.raises(Refused, match="must be one word"):
        cloud.hardware.write("s1", text)


def test_writing_needs_one_running_copy(cloud: Cloud) -> None:
    with pytest.raises(Refused, match="runs nowhere"):
        cloud.hardware.write("s1", "note")
    cloud.boot("host1", copy=1)
    cloud.boot("host2", copy=2)
    with pytest.raises(Refused, match=r"runs host1 \(copy 1\), host2 \(copy 2\)"):
        cloud.hardware.write("s1", "note")
    cloud.hardware.write("s1", "note", host="host2")
    assert (cloud.hardware.read("s1", "host1"), cloud.hardware.read("s1", "host2")) == (
        "image:cirros",
        "image:cirros+note",
    )


def test_planted_guests_are_reported_like_all_others(cloud: Cloud) -> None:
    cloud.hardware.plant("host1", "stranger", 9, "on")
    cloud.hardware.plant("host1", "sleeper", 1, "off")
    reports = cloud.ask(cloud.drivers["host1"].copies())
    assert [(report.server, report.copy, report.power, report.whole) for report in reports] == [
        ("stranger", 9, "on", True),
        ("sleeper", 1, "off", True),
    ]
    assert cloud.hardware.running("stranger") == [("host1", 9)]


def test_memory_is_a_copy_and_per_host(cloud: Cloud) -> None:
    memory, other = SimulatedMemory(cloud.hardware, "host1"), SimulatedMemory(cloud.hardware, "host2")
    assert memory.load() == {}
    turn = [4, 1]
    memory.keep("key", "abc")
    memory.keep("s1", turn)
    turn[0] = 5  # changed later
    memory.load()["s1"][0] = 99
    assert memory.load() == {"key": "abc", "s1": [4, 1]}
    memory.drop("s1")
    memory.drop("never kept")
    assert memory.load() == {"key": "abc"}
    assert other.load() == {}


def test_the_fence_cuts_the_power_and_says_so(cloud: Cloud) -> None:
    fence = SimulatedFence(cloud.hardware)
    cloud.boot()
    assert cloud.ask(fence.fence("host1")) == "host1 was powered off by the simulated fence"
    assert cloud.hardware.running("s1") == []
    assert "was found without power" in cloud.ask(fence.fence("host1"))


def test_a_broken_fence_fails_and_cuts_nothing(cloud: Cloud) -> None:
    fence = SimulatedFence(cloud.hardware)
    fence.broken = "the power controller does not answer"
    with pytest.raises(Failed, match="host1 could not be fenced: the power controller"):
        cloud.ask(fence.fence("host1"))
    assert cloud.hardware.is_running("host1")


def test_times_vary_with_the_seed_and_repeat_with_it() -> None:
    def lasts(seed: int) -> float:
        cloud = Cloud(hosts=0)
        cloud.hardware = Hardware(clock_sleep=asyncio.sleep, random=random.Random(seed))
        cloud.hardware.add_host("host1", boot_seconds=60)
        cloud.drivers["host1"] = SimulatedDriver(cloud.hardware, "host1")
        cloud.boot()
        cloud.close()
        return cloud.loop.time()

    assert lasts(1) == lasts(1) != lasts(2)
    assert 54 <= lasts(1) <= 66


def test_ten_thousand_hosts_are_light() -> None:
    began = time.process_time()
    cloud = Cloud(hosts=10_000)
    cloud.boot("host9999")
    assert cloud.hardware.running("s1") == [("host9999", 1)]
    assert len(cloud.hardware.hosts()) == 10_000
    cloud.close()
    assert time.process_time() - began < 2
