"""Every verb of the simulated driver: its middle, its errors, the time it takes and what it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.simulated.driver import HYPERTHREADING, SimulatedDriver
from kilonova.compute.drivers.simulated.faults import VERBS
from kilonova.compute.drivers.simulated.topology import SimulatedTopology
from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.domain.errors import Failed
from kilonova.domain.guest_contents import GuestFile, GuestSecrets
from kilonova.domain.image_bytes import ImageOrder
from kilonova.domain.machine import SentDisk
from kilonova.world import GuestVolume
from tests.unit.compute.simulated_cloud import Cloud, spec

VOLUME = GuestVolume(attachment="a1", volume="v1", device="/dev/vdb")
ROOT = GuestVolume(attachment="a0", volume="v0", device="/dev/vda", is_root=True)


async def all_of(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


CALLS: dict[str, Callable[[SimulatedDriver], Awaitable[Any]]] = {
    "inventory": lambda driver: driver.inventory(),
    "copies": lambda driver: driver.copies(),
    "ensure_disk": lambda driver: driver.ensure_disk(spec(copy=2)),
    "ensure_disk that adopts": lambda driver: driver.ensure_disk(spec(copy=2), adopt=1),
    "room_for_rebuild": lambda driver: driver.room_for_rebuild(spec(copy=2), of_copy=1, keeps_ephemeral=False),
    "sees_disk": lambda driver: driver.sees_disk("s1", 1),
    "send_disk": lambda driver: driver.send_disk("s1", 1, to_host="host2", to_copy=2),
    "send_disk that is there": lambda driver: driver.send_disk("s1", 1, to_host="host1", to_copy=1),
    "ensure_disk_size": lambda driver: driver.ensure_disk_size(spec(disk_gb=2)),
    "ensure_ephemeral": lambda driver: driver.ensure_ephemeral(spec(copy=2), of_copy=1),
    "ensure_defined": lambda driver: driver.ensure_defined(spec()),
    "ensure_power": lambda driver: driver.ensure_power("s1", 1, on=True),
    "is_on": lambda driver: driver.is_on("s1", 1),
    "ensure_volume": lambda driver: driver.ensure_volume("s1", 1, VOLUME),
    "ensure_no_volume": lambda driver: driver.ensure_no_volume("s1", 1, "a1"),
    "ensure_absent": lambda driver: driver.ensure_absent("s1", 1),
    "ensure_snapshot": lambda driver: driver.ensure_snapshot("s1", 1, "another"),
    "read_snapshot": lambda driver: all_of(driver.read_snapshot("s1", 1, "one")),
    "ensure_no_snapshot": lambda driver: driver.ensure_no_snapshot("s1", 1, "one"),
    "console": lambda driver: driver.console("s1", 1),
    "open_console": lambda driver: driver.open_console("s1", 1, "serial"),
    "cache_images": lambda driver: driver.cache_images([ImageOrder(image="i1")]),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest, cloud: Cloud) -> asyncio.Task[Any]:
    """The verb, about to begin on host1, which has a guest of server s1 with a snapshot."""
    driver = cloud.drivers["host1"]
    cloud.boot()
    cloud.ask(driver.ensure_snapshot("s1", 1, "one"))
    if request.param != "open_console":
        cloud.ask(driver.ensure_power("s1", 1, on=False))

    async def said() -> Any:
        return await CALLS[request.param](driver)

    return cloud.loop.create_task(said())


def test_every_verb_is_here() -> None:
    assert {name.partition(" ")[0] for name in CALLS} == {*VERBS, "is_on"}


def test_a_verb_ends(cloud: Cloud, call: asyncio.Task[Any]) -> None:
    cloud.loop.run_for(1)
    assert call.done() and call.exception() is None


def test_an_agent_may_crash_in_the_middle_of_each_verb(cloud: Cloud, call: asyncio.Task[Any]) -> None:
    crashed: list[bool] = []
    cloud.hardware.on_crash("host1", lambda: crashed.append(True))
    cloud.hardware.fail("host1", "*", how="crash")
    cloud.loop.run_for(1)
    assert crashed == [True] and not call.done()


def test_the_power_may_go_in_the_middle_of_each_verb(cloud: Cloud, call: asyncio.Task[Any]) -> None:
    cloud.loop.call_soon(cloud.hardware.switch_power, "host1", False)
    cloud.loop.call_soon(cloud.hardware.switch_power, "host1", True)
    cloud.loop.run_for(1)
    assert not call.done()


@pytest.mark.parametrize(
    ("how", "code", "elsewhere", "final"),
    [("error", "driver_error", True, False), ("refuse", "invalid_input", False, True)],
)
def test_each_verb_may_fail(
    cloud: Cloud, call: asyncio.Task[Any], how: str, code: str, elsewhere: bool, final: bool
) -> None:
    cloud.hardware.fail("host1", "*", how=how)
    cloud.loop.run_for(1)
    why = call.exception()
    assert isinstance(why, Failed) and (why.code, why.elsewhere, why.final) == (code, elsewhere, final)


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vcpus", "topology", "has_threads"),
    [(4, SimulatedTopology(), False), (4, SimulatedTopology(threads=2), True), (3, SimulatedTopology(2, 2), True)],
    ids=["one thread a core", "two", "two in one cell, one in the other"],
)
def test_a_host_says_whether_its_cores_have_threads(vcpus: int, topology: SimulatedTopology, has_threads: bool) -> None:
    cloud = Cloud(1, vcpus=vcpus, topology=topology)
    assert (HYPERTHREADING in cloud.ask(cloud.drivers["host1"].inventory()).traits) is has_threads
    cloud.close()


def test_a_host_measures_the_processors_of_guests_that_run(cloud: Cloud) -> None:
    cloud.boot()
    cloud.boot(server="s2")
    cloud.ask(cloud.drivers["host1"].ensure_power("s2", 1, on=False))
    assert cloud.ask(cloud.drivers["host1"].inventory()).hypervisor.metrics == {"cpu.percent": 1.6}, "1 of 64"


def test_a_machine_without_processors_is_idle() -> None:
    cloud = Cloud(1, vcpus=0)
    assert cloud.ask(cloud.drivers["host1"].inventory()).hypervisor.metrics == {"cpu.percent": 0.0}
    cloud.close()


# -- disks -----------------------------------------------------------------------------------------------------------


def test_a_cached_image_is_not_fetched() -> None:
    cloud = Cloud(1, copy_seconds=5)
    driver = cloud.drivers["host1"]
    cloud.ask(driver.cache_images([ImageOrder(image="cirros")]))
    assert cloud.loop.time() == 5
    cloud.ask(driver.ensure_disk(spec()))
    assert cloud.loop.time() == 5
    cloud.ask(driver.ensure_disk(spec(copy=2, image="other")))
    assert cloud.loop.time() == 10
    cloud.close()


def test_a_copy_removed_while_its_disk_is_made_does_not_come_back() -> None:
    cloud = Cloud(1, copy_seconds=10)
    driver = cloud.drivers["host1"]
    cloud.loop.call_later(5, lambda: cloud.loop.create_task(driver.ensure_absent("s1", 1)))
    with pytest.raises(Failed, match="copy 1 of server s1 was removed from host1 while"):
        cloud.ask(driver.ensure_disk(spec()))
    assert cloud.hardware.survey() == [] and cloud.hardware.storage.all() == []
    cloud.close()


@pytest.mark.parametrize(
    ("has_room", "guest", "room"),
    [(True, spec(), BESIDE), (False, spec(), INSTEAD), (False, spec(volumes=[ROOT]), BESIDE)],
    ids=["room", "no room", "no local root disk"],
)
def test_where_the_disks_of_a_rebuild_go(cloud: Cloud, has_room: bool, guest: Any, room: str) -> None:
    cloud.hardware.host("host1").has_room = has_room
    driver = cloud.drivers["host1"]
    assert cloud.ask(driver.room_for_rebuild(guest, of_copy=1, keeps_ephemeral=False)) == room


def test_only_a_whole_disk_is_seen(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    assert cloud.ask(driver.sees_disk("s1", 1)) is False
    cloud.hardware.fail("host1", "ensure_disk", how="crash")
    cloud.loop.create_task(driver.ensure_disk(spec()))
    cloud.loop.run_for(1)
    assert cloud.ask(driver.sees_disk("s1", 1)) is False, "half of it"
    cloud.ask(driver.ensure_disk(spec()))
    assert cloud.ask(driver.sees_disk("s1", 1)) is True


class Elsewhere:
    """Machines of other processes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, SentDisk]] = []

    async def send(self, to_host: str, disk: SentDisk) -> None:
        self.sent.append((to_host, disk))


def test_a_disk_goes_over_the_bus_only_to_machines_of_other_processes() -> None:
    cloud, elsewhere = Cloud(2, copy_seconds=5), Elsewhere()
    driver = SimulatedDriver(cloud.hardware, "host1", elsewhere)
    with pytest.raises(Failed, match="no complete disk"):
        cloud.ask(driver.send_disk("s1", 1, to_host="far", to_copy=2))
    assert cloud.loop.time() == 0, "nothing was copied first"
    cloud.ask(driver.ensure_disk(spec()))
    cloud.ask(driver.send_disk("s1", 1, to_host="host2", to_copy=2))
    assert elsewhere.sent == [] and cloud.loop.time() == 10
    cloud.ask(driver.send_disk("s1", 1, to_host="far", to_copy=3))
    assert elsewhere.sent == [("far", SentDisk("s1", 3, ["image:cirros"], 1))] and cloud.loop.time() == 15
    cloud.close()


@pytest.mark.parametrize("half", [False, True], ids=["no disk", "half a disk"])
def test_what_is_not_sent_leaves_nothing_there(cloud: Cloud, half: bool) -> None:
    driver = cloud.drivers["host1"]
    if half:
        cloud.hardware.fail("host1", "ensure_disk", how="crash")
        cloud.loop.create_task(driver.ensure_disk(spec()))
        cloud.loop.run_for(1)
    with pytest.raises(Failed, match="no complete disk on host1"):
        cloud.ask(driver.send_disk("s1", 1, to_host="host2", to_copy=2))
    assert [one.host for one in cloud.hardware.survey() if one.host != "host1"] == []


def test_no_disk_has_no_size(cloud: Cloud) -> None:
    with pytest.raises(Failed, match="no complete disk on host1"):
        cloud.ask(cloud.drivers["host1"].ensure_disk_size(spec()))


@pytest.mark.parametrize(("ephemeral", "seconds"), [([2], 5), ([], 0)])
def test_ephemeral_disks_take_their_time_and_make_a_copy(ephemeral: list[int], seconds: int) -> None:
    cloud = Cloud(1, copy_seconds=5)
    driver, guest = cloud.drivers["host1"], spec(ephemeral_gb=ephemeral)
    cloud.ask(driver.ensure_disk(guest))
    began = cloud.loop.time()
    cloud.ask(driver.ensure_ephemeral(spec(copy=2, ephemeral_gb=ephemeral), of_copy=1))
    assert cloud.loop.time() - began == seconds
    assert [(one.copy, one.whole) for one in cloud.hardware.survey()] == [(1, True), (2, False)]
    cloud.close()


def test_the_ephemeral_disks_of_a_copy_that_runs_stay_as_they_are(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot()
    cloud.ask(driver.ensure_power("s1", 1, on=False))
    cloud.boot(copy=2)
    with pytest.raises(Failed, match="copy 2 of server s1 runs on host1; stop it first"):
        cloud.ask(driver.ensure_ephemeral(spec(copy=2), of_copy=1))


# -- guests ----------------------------------------------------------------------------------------------------------


def test_a_definition_and_its_secrets_are_there_after_a_restart(tmp_path: Path) -> None:
    cloud = Cloud(1, persist=tmp_path / "hardware")
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec()))
    secrets = GuestSecrets(files=[GuestFile("/etc/motd", "aGVsbG8=")], admin_password="hunter2")
    cloud.ask(driver.ensure_defined(spec(), secrets))
    cloud.ask(driver.ensure_defined(spec(name="new")))  # an order that makes no copy brings none
    cloud.close()
    cloud = Cloud(1, persist=tmp_path / "hardware")
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert cloud.ask(driver.console("s1", 1)).splitlines() == [
        "KILONOVA-CONTENTS files=/etc/motd password=set",
        "KILONOVA-GUEST name=new boot=1 root=image:cirros volumes=",
    ]
    cloud.close()


def test_is_on(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    assert cloud.ask(driver.is_on("s1", 1)) is False
    cloud.boot()
    assert cloud.ask(driver.is_on("s1", 1)) is True
    cloud.ask(driver.ensure_power("s1", 1, on=False))
    assert cloud.ask(driver.is_on("s1", 1)) is False


def test_a_crash_while_a_running_guest_is_removed_leaves_it_stopped_and_undefined(tmp_path: Path) -> None:
    """Also when the machine room is opened again."""
    cloud = Cloud(1, persist=tmp_path / "hardware")
    cloud.boot()
    cloud.hardware.fail("host1", "ensure_absent", how="crash")
    cloud.loop.create_task(cloud.drivers["host1"].ensure_absent("s1", 1))
    cloud.loop.run_for(1)
    assert cloud.hardware.running("s1") == []
    cloud.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    assert [(one.power, one.defined) for one in again.hardware.survey()] == [("absent", False)]
    assert again.hardware.running("s1") == []
    again.close()


def test_a_guest_that_is_removed_twice_at_once_is_gone(cloud: Cloud) -> None:
    cloud.boot()
    driver = cloud.drivers["host1"]

    async def both() -> None:
        await asyncio.gather(driver.ensure_absent("s1", 1), driver.ensure_absent("s1", 1))

    cloud.ask(both())
    assert cloud.hardware.survey() == []


@pytest.mark.parametrize("prepared", ["nothing", "a disk"])
def test_a_volume_needs_a_defined_guest(cloud: Cloud, prepared: str) -> None:
    driver = cloud.drivers["host1"]
    if prepared == "a disk":
        cloud.ask(driver.ensure_disk(spec()))
    with pytest.raises(Failed, match="copy 1 of server s1 is not defined on host1") as why:
        cloud.ask(driver.ensure_volume("s1", 1, VOLUME))
    assert why.value.code == "not_defined"
    cloud.ask(driver.ensure_no_volume("s1", 1, "a1"))  # there is nothing to take away


class Volumes:
    """`VolumeDoor` to volumes that hold their own names; `away` are those that cannot be opened."""

    def __init__(self) -> None:
        self.away: set[str] = set()

    async def read(self, volume: GuestVolume) -> str:
        if volume.volume in self.away:
            raise Failed("volume_unreachable", f"volume {volume.volume} cannot be opened")
        return f"in-{volume.volume}"

    async def write(self, volume: GuestVolume, text: str) -> None: ...


def test_a_guest_finds_its_volumes_when_it_boots_and_while_it_runs(tmp_path: Path) -> None:
    cloud, volumes = Cloud(1, persist=tmp_path / "hardware"), Volumes()
    driver = SimulatedDriver(cloud.hardware, "host1", volumes=volumes)
    cloud.ask(driver.ensure_disk(spec()))
    with pytest.raises(Failed, match="not defined"):
        cloud.ask(driver.ensure_power("s1", 1, on=True))
    cloud.ask(driver.ensure_defined(spec(volumes=[ROOT])))

    def last_line() -> str:
        return cloud.ask(driver.console("s1", 1)).splitlines()[-1].partition("boot=")[2]

    cloud.ask(driver.ensure_volume("s1", 1, GuestVolume(attachment="a2", volume="v2")))
    assert cloud.ask(driver.console("s1", 1)) == "", "it is off"
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert last_line() == "1 root=in-v0 volumes=in-v2"
    for _ in range(2):
        cloud.ask(driver.ensure_volume("s1", 1, VOLUME))
        assert last_line() == "1 root=in-v0 volumes=in-v2,in-v1"
    volumes.away = {"v3"}
    with pytest.raises(Failed, match="v3 cannot be opened"):
        cloud.ask(driver.ensure_volume("s1", 1, GuestVolume(attachment="a3", volume="v3")))
    assert [one.volumes for one in cloud.hardware.survey()] == [("a0", "a2", "a1")]
    cloud.ask(driver.ensure_no_volume("s1", 1, "a2"))
    assert last_line() == "1 root=in-v0 volumes=in-v1"
    before = cloud.ask(driver.console("s1", 1))
    cloud.ask(driver.ensure_no_volume("s1", 1, "a2"))
    assert cloud.ask(driver.console("s1", 1)) == before, "there was nothing to take away"
    cloud.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    assert [one.volumes for one in again.hardware.survey()] == [("a0", "a1")]
    again.close()


def test_a_guest_knows_its_root_disk_among_its_volumes(cloud: Cloud) -> None:
    driver = SimulatedDriver(cloud.hardware, "host1", volumes=Volumes())
    for server, volumes, line in (("s1", [VOLUME], "image:cirros"), ("s2", [VOLUME, ROOT], "in-v0")):
        guest = spec(server, volumes=volumes)
        for work in (driver.ensure_disk(guest), driver.ensure_defined(guest), driver.ensure_power(server, 1, on=True)):
            cloud.ask(work)
        assert f"root={line} volumes=in-v1\n" in cloud.ask(driver.console(server, 1))


def test_the_volumes_of_a_guest_that_is_off_are_there_after_a_restart(tmp_path: Path) -> None:
    for given in (True, False):
        cloud = Cloud(1, persist=tmp_path / "hardware")
        driver = cloud.drivers["host1"]
        cloud.ask(driver.ensure_disk(spec()))
        if given:
            cloud.ask(driver.ensure_defined(spec()))
            cloud.ask(driver.ensure_volume("s1", 1, VOLUME))
        else:
            cloud.ask(driver.ensure_no_volume("s1", 1, "a1"))
        cloud.close()
        again = Cloud(1, persist=tmp_path / "hardware")
        assert [one.volumes for one in again.hardware.survey()] == [("a1",) if given else ()]
        again.close()


@pytest.mark.parametrize(
    ("state", "code", "final"), [("none", "no_guest", True), ("off", "guest_off", False), ("on", "", False)]
)
def test_only_a_guest_that_runs_has_a_console_to_open(cloud: Cloud, state: str, code: str, final: bool) -> None:
    driver = cloud.drivers["host1"]
    if state != "none":
        cloud.boot()
        cloud.ask(driver.ensure_power("s1", 1, on=state == "on"))
    if not code:
        assert cloud.ask(driver.consoles("s1", 1)) == ("serial",)
        return
    for verb in (lambda: driver.consoles("s1", 1), lambda: driver.open_console("s1", 1, "serial")):
        with pytest.raises(Failed) as why:
            cloud.ask(verb())
        assert (why.value.code, why.value.final) == (code, final)
