"""Weighers: the share that each gives to hosts."""

from __future__ import annotations

import numpy as np
import pytest

from kilonova.domain.guest import Hypervisor
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.request import ImageFacts
from kilonova.scheduler.surroundings import Surroundings
from kilonova.scheduler.weighers import WeighedHosts
from kilonova.settings import MetricsOptions, Settings
from tests.unit.scheduler.worlds import aggregate, asked, big, choose, field_of, settings, sized, weigher, weights

HOSTS = {"a": sized(memory_mb=1000), "b": sized(memory_mb=3000), "c": sized(memory_mb=2000)}


def test_free_memory() -> None:
    assert weights("RAMWeigher", HOSTS) == [0.0, 1.0, 0.5]
    assert weights("RAMWeigher", HOSTS, by=settings(ram_weight_multiplier=-2.0)) == [0.0, -2.0, -1.0]


def test_aggregates_may_weigh_otherwise() -> None:
    inside = [aggregate(1, "b", ram_weight_multiplier="5"), aggregate(2, "b", ram_weight_multiplier="3")]
    assert weights("RAMWeigher", HOSTS, aggregates=inside) == [0.0, 3.0, 0.5]


def test_free_processors() -> None:
    hosts = {"a": sized(vcpus=40), "b": sized(vcpus=10), "c": sized(vcpus=20)}
    assert weights("CPUWeigher", hosts) == [1.0, 0.0, round(1 / 3, 6)]
    assert weights("CPUWeigher", hosts, by=settings(cpu_weight_multiplier=-1.0)) == [-1.0, 0.0, round(-1 / 3, 6)]


def test_free_disk() -> None:
    hosts = {"a": sized(disk_gb=40), "b": sized(disk_gb=10), "c": sized(disk_gb=20)}
    assert weights("DiskWeigher", hosts) == [1.0, 0.0, round(1 / 3, 6)]
    assert weights("DiskWeigher", hosts, by=settings(disk_weight_multiplier=-1.0)) == [-1.0, 0.0, round(-1 / 3, 6)]


def test_newer_first() -> None:
    hosts = {name: big(hypervisor=Hypervisor("kvm", version)) for name, version in (("a", 5), ("b", 9), ("c", 6))}
    assert weights("HypervisorVersionWeigher", hosts) == [0.0, 1.0, 0.25]
    assert weights("HypervisorVersionWeigher", {"a": big(), "b": big()}) == [0.0, 0.0]


def test_how_many_servers_there_are() -> None:
    hosts = {"a": big(servers=1), "b": big(servers=2), "c": big(servers=3)}
    assert weights("NumInstancesWeigher", hosts) == [0.0, 0.0, 0.0]
    assert weights("NumInstancesWeigher", hosts, by=settings(num_instances_weight_multiplier=2.0)) == [0.0, 1.0, 2.0]
    empty = {"a": big(), "b": big()}
    assert weights("NumInstancesWeigher", empty, by=settings(num_instances_weight_multiplier=2.0)) == [0.0, 0.0]


def test_how_many_busy_servers_there_are() -> None:
    hosts = {"a": big(busy=1), "b": big(busy=2), "c": big(busy=3)}
    assert weights("IoOpsWeigher", hosts) == [-0.0, -0.5, -1.0]
    assert weights("IoOpsWeigher", hosts, by=settings(io_ops_weight_multiplier=2.0)) == [0.0, 1.0, 2.0]
    assert weights("IoOpsWeigher", {"a": big(), "b": big()}, by=settings(io_ops_weight_multiplier=2.0)) == [0.0, 0.0]


def test_hosts_with_few_devices_first() -> None:
    assert weights("PCIWeigher", {"a": big(devices=0), "b": big(devices=50), "c": big(devices=500)}) == [
        1.0,
        round(49 / 99, 6),
        0.0,
    ]
    assert weights("PCIWeigher", {"a": big(), "b": big()}) == [0.0, 0.0]


EQUAL = {name: big() for name in ("a", "b", "c")}
AROUND = Surroundings({"p-a": frozenset({"s1", "s2"}), "p-b": frozenset({"s3", "me"})})


def test_where_the_group_is() -> None:
    request = asked(group=GroupRule("g", "soft-affinity"), server="me")
    assert weights("ServerGroupSoftAffinityWeigher", EQUAL, request, around=AROUND) == [1.0, 0.5, 0.0]
    assert weights("ServerGroupSoftAffinityWeigher", EQUAL, asked(), around=AROUND) == [0.0, 0.0, 0.0]
    other = asked(group=GroupRule("g", "anti-affinity"))
    assert weights("ServerGroupSoftAffinityWeigher", EQUAL, other, around=AROUND) == [0.0, 0.0, 0.0]


def test_where_the_group_is_not() -> None:
    request = asked(group=GroupRule("g", "soft-anti-affinity"), server="me")
    assert weights("ServerGroupSoftAntiAffinityWeigher", EQUAL, request, around=AROUND) == [0.0, 0.5, 1.0]
    assert weights("ServerGroupSoftAntiAffinityWeigher", EQUAL, asked(), around=AROUND) == [0.0, 0.0, 0.0]
    other = asked(group=GroupRule("g", "anti-affinity"))
    assert weights("ServerGroupSoftAntiAffinityWeigher", EQUAL, other, around=AROUND) == [0.0, 0.0, 0.0]


def test_failures_outweigh_everything() -> None:
    assert weights("BuildFailureWeigher", {"a": big(failed=2), "b": big(failed=1), "c": big()}) == [
        0.0,
        500000.0,
        1000000.0,
    ]
    chosen = choose({"large": big(failed=1), "small": sized(vcpus=4, memory_mb=8192, disk_gb=40)}).chosen
    assert chosen is not None and chosen.host == "small"


def test_its_own_cell_first() -> None:
    hosts = {"a": big(cell="one"), "b": big(cell="two")}
    assert weights("CrossCellWeigher", hosts, asked(from_cell="two")) == [0.0, 1000000.0]
    assert weights("CrossCellWeigher", hosts) == [0.0, 0.0]


LINUX = asked(image=ImageFacts("i", "", {"os_distro": "linux", "hw_disk_bus": "virtio"}))


def values(by: Settings) -> list[float] | None:
    field = field_of({"a": big(), "b": big()})
    field.hosts.image_values = {"a": {("os_distro", "linux"): 2}, "b": {("hw_disk_bus", "virtio"): 3}}
    weighed = WeighedHosts(by, field, LINUX, np.arange(2))
    shared = weigher("ImagePropertiesWeigher").values(weighed)
    return None if shared is None else [float(value) for value in shared]


def test_servers_that_are_alike() -> None:
    assert values(settings()) == [2.0, 3.0]
    assert values(settings(image_props_weight_setting=("os_distro=4",))) == [8.0, 0.0]
    assert values(settings(image_props_weight_setting=("unknown=1",))) is None


MEASURED = {
    "a": big(hypervisor=Hypervisor(metrics={"cpu": 10.0, "io": 1.0})),
    "b": big(hypervisor=Hypervisor(metrics={"cpu": 20.0, "io": 4.0})),
    "c": big(),
}


@pytest.mark.parametrize(
    ("setting", "required", "expected"),
    [
        (("cpu=1",), True, [0.0, 1.0, 0.0]),
        (("cpu=1", "io=-5"), True, [1.0, 0.0, 0.0]),
        (("cpu=1",), False, [round(10010 / 10020, 6), 1.0, 0.0]),
        ((), True, [0.0, 0.0, 0.0]),
        (("unknown",), True, [0.0, 0.0, 0.0]),
    ],
)
def test_what_hosts_measure(setting: tuple[str, ...], required: bool, expected: list[float]) -> None:
    by = Settings(metrics=MetricsOptions(weight_setting=setting, required=required))
    assert weights("MetricsWeigher", MEASURED, by=by) == expected
