"""The verbs: each may be said twice, each finds halves and completes them."""

import pytest

from kilonova.domain.errors import Failed
from kilonova.world import CopyReport, Driver, HostFence, HostMemory
from tests.unit.compute.simulated_cloud import Cloud, spec


def test_it_is_what_the_world_asks_for(cloud: Cloud) -> None:
    from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedFence, SimulatedMemory

    driver: Driver = SimulatedDriver(cloud.hardware, "host1")
    memory: HostMemory = SimulatedMemory(cloud.hardware, "host1")
    fence: HostFence = SimulatedFence(cloud.hardware)
    assert driver and memory and fence


def test_inventory_is_the_size_of_the_host(cloud: Cloud) -> None:
    classes = cloud.ask(cloud.drivers["host1"].inventory()).classes
    assert classes == {"VCPU": (64, 0, 1.0), "MEMORY_MB": (262144, 0, 1.0), "DISK_GB": (4000, 0, 1.0)}


def test_a_guest_from_nothing_to_nothing(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    assert cloud.ask(driver.copies()) == []
    assert cloud.ask(driver.ensure_disk(spec())) == "created"
    assert cloud.ask(driver.copies()) == [CopyReport("s1", 1, "absent", True, "image:cirros", False)]
    cloud.ask(driver.ensure_defined(spec()))
    assert cloud.ask(driver.copies()) == [CopyReport("s1", 1, "off", True, "image:cirros", True)]
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert cloud.hardware.running("s1") == [("host1", 1)]
    cloud.ask(driver.ensure_power("s1", 1, on=False))
    assert cloud.hardware.running("s1") == []
    cloud.ask(driver.ensure_absent("s1", 1))
    assert cloud.ask(driver.copies()) == []
    assert cloud.hardware.storage.all() == []


def test_the_console_shows_name_boots_and_what_the_disk_holds(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot()
    cloud.hardware.write("s1", "note")
    cloud.ask(driver.ensure_power("s1", 1, on=False))
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert cloud.ask(driver.console("s1", 1)).splitlines() == [
        "KILONOVA-GUEST name=web boot=1 root=image:cirros volumes=",
        "KILONOVA-GUEST name=web boot=2 root=image:cirros+note volumes=",
    ]


def test_the_console_of_no_guest_is_a_failure(cloud: Cloud) -> None:
    with pytest.raises(Failed, match="host1 has no copy 7 of server s1") as why:
        cloud.ask(cloud.drivers["host1"].console("s1", 7))
    assert why.value.final


def test_the_console_is_rotated(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot()
    cloud.hardware.write("s1", "x" * 40_000)
    for _ in range(3):
        cloud.ask(driver.ensure_power("s1", 1, on=False))
        cloud.ask(driver.ensure_power("s1", 1, on=True))
    text = cloud.ask(driver.console("s1", 1))
    assert len(text) == 65536
    assert "boot=4" in text


def test_saying_a_verb_twice_changes_nothing(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot()
    before = cloud.hardware.survey()
    cloud.boot()
    assert cloud.ask(driver.ensure_disk(spec(image="other"))) == "kept"
    assert cloud.hardware.survey() == before
    assert "boot=2" not in cloud.ask(driver.console("s1", 1))
    for _ in range(2):
        cloud.ask(driver.ensure_power("s1", 1, on=False))
        cloud.ask(driver.ensure_absent("s1", 1))
        cloud.ask(driver.ensure_power("s1", 1, on=False))
    assert cloud.hardware.survey() == []


def test_removing_a_running_guest_stops_it(cloud: Cloud) -> None:
    cloud.boot()
    cloud.ask(cloud.drivers["host1"].ensure_absent("s1", 1))
    assert cloud.hardware.running("s1") == []


def test_copies_are_apart(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot(copy=1)
    cloud.boot(copy=2)
    cloud.ask(driver.ensure_absent("s1", 1))
    assert [(found.copy, found.power) for found in cloud.hardware.survey("s1")] == [(2, "on")]


@pytest.mark.parametrize("prepared", ["nothing", "half a disk", "no definition", "no disk"])
def test_a_guest_needs_a_whole_disk_and_a_definition_to_start(cloud: Cloud, prepared: str) -> None:
    driver = cloud.drivers["host1"]
    if prepared == "half a disk":
        cloud.hardware.fail("host1", "ensure_disk", how="crash")
        cloud.loop.create_task(driver.ensure_disk(spec()))
        cloud.loop.run_for(1)
    if prepared == "no definition":
        cloud.ask(driver.ensure_disk(spec()))
    if prepared in ("no disk", "half a disk"):
        cloud.ask(driver.ensure_defined(spec()))
    with pytest.raises(Failed) as failure:
        cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert failure.value.code == ("not_defined" if prepared == "no definition" else "no_disk")
    assert cloud.hardware.running("s1") == []


def test_boots_and_disks_take_their_time() -> None:
    cloud = Cloud(hosts=1, boot_seconds=30, copy_seconds=5)
    cloud.boot()
    assert cloud.loop.time() == 35
    cloud.boot()
    assert cloud.loop.time() == 35, "what is there already takes none"
    cloud.close()


def test_send_disk_copies_and_leaves_the_original(cloud: Cloud) -> None:
    cloud.boot("host1")
    cloud.hardware.write("s1", "note")
    cloud.ask(cloud.drivers["host1"].ensure_power("s1", 1, on=False))
    for _ in range(2):
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))
    seen = [(found.host, found.copy, found.power, found.marker, found.whole) for found in cloud.hardware.survey()]
    assert seen == [("host1", 1, "off", "image:cirros+note", True), ("host2", 2, "absent", "image:cirros+note", True)]
    cloud.boot("host2", copy=2)
    cloud.hardware.write("s1", "there")
    assert cloud.hardware.survey()[0].marker == "image:cirros+note", "they are two disks"


def test_send_disk_to_the_same_host(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec()))
    cloud.hardware.switch_link("host1", up=False)
    cloud.ask(driver.send_disk("s1", 1, to_host="host1", to_copy=2))
    assert [(found.copy, found.whole) for found in cloud.hardware.survey()] == [(1, True), (2, True)]


def test_the_disk_of_a_running_guest_is_not_sent(cloud: Cloud) -> None:
    cloud.boot("host1")
    with pytest.raises(Failed, match="copy 1 of server s1 runs on host1; stop it"):
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))


def test_no_disk_is_not_sent(cloud: Cloud) -> None:
    with pytest.raises(Failed, match="no complete disk on host1"):
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))


def test_a_disk_is_not_sent_to_an_unknown_host(cloud: Cloud) -> None:
    with pytest.raises(Failed, match="simulated host 'mars': not found") as why:
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="mars", to_copy=2))
    assert (why.value.code, why.value.final) == ("unreachable", True)


@pytest.mark.parametrize("trouble", ["link here", "link there", "power there"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_send_disk_needs_power_and_links(trouble: str, when: str) -> None:
    cloud = Cloud(copy_seconds=10)
    cloud.ask(cloud.drivers["host1"].ensure_disk(spec()))

    def strike() -> None:
        if trouble.startswith("link"):
            cloud.hardware.switch_link("host1" if trouble == "link here" else "host2", up=False)
        else:
            cloud.hardware.switch_power("host2", on=False)

    cloud.loop.call_later(0 if when == "before" else 5, strike)
    cloud.loop.run_for(0)
    with pytest.raises(Failed) as failure:
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))
    assert failure.value.code == "unreachable"
    cloud.hardware.switch_link("host1", up=True)
    cloud.hardware.switch_link("host2", up=True)
    cloud.hardware.switch_power("host2", on=True)
    assert not any(found.whole for found in cloud.hardware.survey() if found.host == "host2")
    cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))
    assert cloud.hardware.survey()[-1].marker == "image:cirros"
    cloud.close()


def test_a_power_cycle_of_the_target_breaks_the_sending_too() -> None:
    cloud = Cloud(copy_seconds=10)
    cloud.ask(cloud.drivers["host1"].ensure_disk(spec()))
    cloud.loop.call_later(3, cloud.hardware.switch_power, "host2", False)
    cloud.loop.call_later(6, cloud.hardware.switch_power, "host2", True)
    with pytest.raises(Failed, match="host2 lost power while"):
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))
    cloud.close()


def test_a_copy_removed_while_it_is_sent_does_not_come_back() -> None:
    cloud = Cloud(copy_seconds=10)
    cloud.ask(cloud.drivers["host1"].ensure_disk(spec()))

    async def undo() -> None:
        await cloud.drivers["host2"].ensure_absent("s1", 2)

    cloud.loop.call_later(5, lambda: cloud.loop.create_task(undo()))
    with pytest.raises(Failed, match="copy 2 of server s1 was removed from host2"):
        cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))
    assert [found.host for found in cloud.hardware.survey()] == ["host1"]
    cloud.close()


def test_a_guest_started_while_its_disk_is_sent_spoils_the_copy() -> None:
    cloud = Cloud(copy_seconds=10)
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec()))
    cloud.ask(driver.ensure_defined(spec()))
    cloud.loop.call_later(5, lambda: cloud.loop.create_task(driver.ensure_power("s1", 1, on=True)))
    with pytest.raises(Failed, match="stop it first"):
        cloud.ask(driver.send_disk("s1", 1, to_host="host2", to_copy=2))
    cloud.close()


def test_a_snapshot_is_of_the_moment_its_image_was_asked_for(cloud: Cloud) -> None:
    """Asked again for the same image it is the same; for another one the disk is looked at again."""
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec()))
    cloud.ask(driver.ensure_defined(spec()))
    disk = cloud.hardware.disk(cloud.hardware.host("host1"), "s1", 1)
    assert disk is not None

    async def content(name: str) -> bytes:
        await driver.ensure_snapshot("s1", 1, name)
        return b"".join([piece async for piece in driver.read_snapshot("s1", 1, name)])

    first = cloud.ask(content("one"))
    disk.content.append("written since")
    assert cloud.ask(content("one")) == first
    assert b"written since" in cloud.ask(content("two")) and b"written since" not in first
    with pytest.raises(Failed, match="no snapshot one"):
        cloud.ask(anext(driver.read_snapshot("s1", 1, "one")))
