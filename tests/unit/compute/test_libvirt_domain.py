"""A guest's definition for libvirt: its name, its disks in order, its volumes, and the hardware that it was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from kilonova.compute.drivers.libvirt.devices import attached_in, free_target, same_source, targets_in, volume_disk
from kilonova.compute.drivers.libvirt.disks import CONFIG_DRIVE
from kilonova.compute.drivers.libvirt.domain import copy_of, domain_xml, name_of, owner_in, spec_in
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestVolume
from kilonova.domain.hardware import HardwareRequest, HostClaim
from kilonova.domain.numa import CellClaim, CellRules
from kilonova.domain.pci import DeviceClaim
from tests.unit.compute.simulated_cloud import spec

SOCKET = {"driver_volume_type": "nbd", "data": {"socket": "/s", "export": "e"}}


def volume(number: int = 1, **changes: Any) -> GuestVolume:
    values: dict[str, Any] = {"attachment": f"a{number}", "volume": f"v{number}", "connection": SOCKET}
    return GuestVolume(**values | changes)


def xml(folder: Path = Path("/there"), accelerator: str = "qemu", **changes: Any) -> Element:
    return ElementTree.fromstring(domain_xml(spec(**changes), folder, accelerator, "host1"))


def disks(domain: Element) -> list[tuple[str, str, str]]:
    """Target, serial and device of each."""
    found = domain.findall("./devices/disk")
    return [(one.find("target").get("dev"), one.findtext("serial") or "", one.get("device")) for one in found]  # type: ignore[union-attr, misc]


# -- names -----------------------------------------------------------------------------------------------------------


def test_a_domain_is_known_by_its_server_and_copy() -> None:
    assert copy_of(name_of("5e7e-00-a", 17)) == ("5e7e-00-a", 17)
    assert name_of("s", 1) != name_of("s", 2)


@pytest.mark.parametrize(
    "name", ["", "web", "web-1", "kilonova-", "kilonova-1", "kilonova-s", "kilonova-s-", "kilonova-s-x"]
)
def test_others_domains_are_left_alone(name: str) -> None:
    assert copy_of(name) is None


@pytest.mark.parametrize(
    ("name", "title"), [("my web", "my web"), ("two\nlines ", "two lines"), (" \n", "s1"), ("", "s1")]
)
def test_a_title_has_one_line(name: str, title: str) -> None:
    assert xml(name=name).findtext("title") == title


def test_a_definition_says_whose_it_is() -> None:
    assert owner_in(xml()) == "host1" and spec_in(xml()) == spec()
    other = ElementTree.fromstring("<domain><name>x</name><metadata/></domain>")
    assert owner_in(other) == "" and spec_in(other) is None


# -- hardware --------------------------------------------------------------------------------------------------------


def test_an_emulated_cpu_is_bounded_in_memory_and_a_real_one_is_the_hosts() -> None:
    emulated, real = xml(), xml(accelerator="kvm")
    assert emulated.findtext("./features/tcg/tb-cache") == "32" and real.find("./features/tcg") is None
    assert (emulated.find("cpu").attrib, real.find("cpu").attrib) == ({}, {"mode": "host-model"})  # type: ignore[union-attr]
    assert all(
        one.find("./features/acpi") is not None and one.findtext("on_crash") == "destroy" for one in (emulated, real)
    )


CELLS = (
    CellClaim(cell=1, pinning=((0, 4), (1, 5)), memory_mb=512, page_kb=2048, emulator=(6,)),
    CellClaim(cell=0, shared=(2, 3), memory_mb=256, page_kb=2048, emulator=(7,)),
)


@pytest.mark.parametrize(("pages", "has_pages"), [("", False), ("small", False), ("large", True), ("2048", True)])
def test_a_guest_has_the_cpus_and_memory_that_the_host_gave_it(pages: str, has_pages: bool) -> None:
    found = xml(claim=HostClaim(cells=CELLS), hardware=HardwareRequest(rules=CellRules("", pages)))
    assert [one.attrib for one in found.findall("./cputune/vcpupin")] == [
        {"vcpu": "0", "cpuset": "4"},
        {"vcpu": "1", "cpuset": "5"},
    ]
    assert [one.attrib for one in found.findall("./cputune/emulatorpin")] == [{"cpuset": "6-7"}]
    assert [one.attrib for one in found.findall("./numatune/memnode")] == [
        {"cellid": "0", "mode": "strict", "nodeset": "1"},
        {"cellid": "1", "mode": "strict", "nodeset": "0"},
    ]
    assert [(one.get("id"), one.get("cpus"), one.get("memory")) for one in found.findall("./cpu/numa/cell")] == [
        ("0", "0-1", "512"),
        ("1", "2-3", "256"),
    ]
    backing = found.findall("./memoryBacking/hugepages/page")
    assert [(one.get("size"), one.get("nodeset")) for one in backing] == (
        [("2048", "0"), ("2048", "1")] if has_pages else []
    )
    assert len(found.findall("./memoryBacking")) == has_pages and len(found.findall("./cpu")) == 1


def test_a_guest_whose_emulator_is_nowhere_pinned() -> None:
    cell = CellClaim(cell=0, pinning=((0, 1),), memory_mb=512, page_kb=4)
    assert xml(claim=HostClaim(cells=(cell,))).find("./cputune/emulatorpin") is None


@pytest.mark.parametrize("claim", [None, HostClaim()])
def test_a_plain_guest_floats_over_its_host(claim: HostClaim | None) -> None:
    found = xml(claim=claim)
    assert [one.tag for one in found if one.tag in ("cputune", "numatune", "memoryBacking", "cpu")] == ["cpu"]


def test_devices_of_the_host_go_to_the_guest() -> None:
    given = tuple(DeviceClaim("nic", address) for address in ("0000:81:02.1", "0001:0a:00.0"))
    found = xml(claim=HostClaim(devices=given))
    addresses = [one.attrib for one in found.findall("./devices/hostdev/source/address")]
    assert addresses == [
        {"domain": "0x0000", "bus": "0x81", "slot": "0x02", "function": "0x1"},
        {"domain": "0x0001", "bus": "0x0a", "slot": "0x00", "function": "0x0"},
    ]
    assert xml().find("./devices/hostdev") is None


# -- disks -----------------------------------------------------------------------------------------------------------


def test_disks_keep_their_order_and_volumes_their_names() -> None:
    found = xml(
        ephemeral_gb=[1],
        swap_mb=8,
        volumes=[volume(1, device="/dev/vdz"), volume(2), volume(3, device="/dev/vda"), volume(4, connection={})],
    )
    assert disks(found) == [
        ("vda", "", "disk"),
        ("vdb", "ephemeral0", "disk"),
        ("vdc", "swap", "disk"),
        ("vdz", "v1", "disk"),
        ("vdd", "v2", "disk"),
        ("vde", "v3", "disk"),
    ]
    assert targets_in(found) == [target for target, _, _ in disks(found)]
    assert {name: one.findtext("serial") for name, one in attached_in(found).items()} == {
        "a1": "v1",
        "a2": "v2",
        "a3": "v3",
    }


@pytest.mark.parametrize("connection", [SOCKET, {}], ids=["", "it is not connected yet"])
def test_a_guest_that_boots_from_a_volume_has_no_other_first_disk(connection: dict[str, Any]) -> None:
    root = volume(7, is_root=True, connection=connection, device="/dev/vdx")
    found = disks(xml(volumes=[volume(1), root], swap_mb=8))
    assert found == [*([("vda", "v7", "disk")] if connection else []), ("vdb", "swap", "disk"), ("vdc", "v1", "disk")]


def test_a_config_drive_is_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    assert "cdrom" not in [kind for _, _, kind in disks(xml(tmp_path))]
    (tmp_path / CONFIG_DRIVE).touch()
    found = xml(tmp_path).find("./devices/disk[@device='cdrom']")
    assert found is not None and found.find("readonly") is not None
    assert [one.get("dev") for one in found.findall("target")] == ["hda"]


@pytest.mark.parametrize(
    ("taken", "wanted", "target"),
    [
        ([], "", "vda"),
        (["vda"], "/dev/vda", "vdb"),
        (["vda"], "vdq", "vdq"),
        (["vda"], "/dev/vdaa", "vdb"),
        (["vda"], "/dev/vd1", "vdb"),
        (["vda"], "/dev/vdA", "vdb"),
        (["vda"], "/dev/xvd", "vdb"),
        (["vda", "vdc"], "/dev/sdb", "vdb"),
    ],
)
def test_a_disk_has_the_name_that_was_wanted_if_it_is_one_and_free(taken: list[str], wanted: str, target: str) -> None:
    assert free_target(taken, wanted) == target


@pytest.mark.parametrize(
    ("data", "host", "extra"),
    [
        ({"socket": "/s", "target_host": "h"}, {"transport": "unix", "socket": "/s"}, set()),
        ({"target_host": "h"}, {"name": "h", "port": "10809"}, set()),
        ({"target_host": "h", "target_port": 7, "tls": True}, {"name": "h", "port": "7"}, {"tls"}),
        ({"socket": "/s", "access_mode": "ro"}, {"transport": "unix", "socket": "/s"}, {"readonly"}),
        ({"socket": "/s", "access_mode": "rw"}, {"transport": "unix", "socket": "/s"}, set()),
        ({"socket": "/s", "multiattach": True}, {"transport": "unix", "socket": "/s"}, {"shareable"}),
    ],
)
def test_a_volume_is_opened_as_its_connection_says(data: dict[str, Any], host: dict[str, str], extra: set[str]) -> None:
    disk = volume_disk(volume(connection={"driver_volume_type": "nbd", "data": data}), "vdb")
    source = disk.find("source")
    assert source is not None and source.get("name") == "v1", "its export is called so unless the connection says"
    assert [one.attrib for one in source.findall("host")] == [host]
    found = {tag for tag in ("readonly", "shareable") if disk.find(tag) is not None}
    assert found | ({"tls"} if source.get("tls") == "yes" else set()) == extra


def test_an_export_may_have_another_name_than_its_volume() -> None:
    source = volume_disk(volume(), "vdb").find("source")
    assert source is not None and source.get("name") == "e"


@pytest.mark.parametrize(
    ("connection", "code", "final"),
    [
        ({"driver_volume_type": "rbd", "data": {}}, "volume_unsupported", True),
        ({"data": {"socket": "/s"}}, "volume_unsupported", True),
        ({"driver_volume_type": "nbd", "data": {}}, "volume_unreachable", False),
        ({"driver_volume_type": "nbd"}, "volume_unreachable", False),
    ],
)
def test_a_connection_that_cannot_be_opened_is_refused(connection: dict[str, Any], code: str, final: bool) -> None:
    with pytest.raises(Failed) as why:
        volume_disk(volume(connection=connection), "vdb")
    assert (why.value.code, why.value.final) == (code, final)


def test_a_disk_is_the_same_while_it_is_opened_in_the_same_way() -> None:
    def opened(**data: Any) -> Element:
        given = {"socket": "/s", "export": "e", **data}
        return volume_disk(volume(connection={"driver_volume_type": "nbd", "data": given}), "vdb")

    assert same_source(opened(), opened(multiattach=True)), "how it is used is another matter"
    for changed in ({"socket": "/t"}, {"export": "f"}, {"tls": True}, {"socket": "", "target_host": "h"}):
        assert not same_source(opened(), opened(**changed)), changed
    assert not same_source(opened(), Element("disk")) and same_source(Element("disk"), Element("disk"))
