"""NUMA cells and PCI devices as libvirt describes them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kilonova.compute.drivers.libvirt.machine import cells_in, devices_in
from kilonova.compute.offer import Offer
from kilonova.domain.numa import HostCell, Pages
from kilonova.domain.pci import PHYSICAL, STANDARD, VIRTUAL, PciDevice


def cells(inside: str, offer: Offer | None = None) -> tuple[HostCell, ...]:
    text = f"<capabilities><host><topology><cells>{inside}</cells></topology></host></capabilities>"
    return cells_in(ElementTree.fromstring(text), offer or Offer())


def test_a_cell_has_its_cpus_cores_memory_and_pages() -> None:
    found = cells(
        "<cell id='1'><memory unit='KiB'>2098176</memory>"
        "<pages unit='KiB' size='2048'>7</pages><pages unit='KiB' size='4'>500000</pages>"
        "<cpus><cpu id='10' socket_id='3' siblings='2,10'/><cpu id='2' socket_id='3' siblings='2,10'/>"
        "<cpu id='4' socket_id='3'/></cpus></cell>",
        Offer(frozenset({4}), frozenset({2})),
    )
    assert found == (
        HostCell(
            id=1,
            shared=(2,),
            dedicated=(4,),
            cores=((2, 10), (4,)),
            memory_mb=2049,
            pages=(Pages(4, 500000), Pages(2048, 7)),
            socket=3,
        ),
    )


def test_a_cell_without_cpus_or_memory_is_one_all_the_same() -> None:
    """Memory that is attached otherwise has a cell of its own; and some machines do not say everything."""
    found = cells("<cell id='0'><pages size='4'/></cell><cell id='1'><memory/></cell>")
    assert [(one.id, one.memory_mb, one.shared, one.socket) for one in found] == [(0, 0, (), 0), (1, 0, (), 0)]
    assert found[0].pages == (Pages(4, 0),)


def device(inside: str, address: tuple[int | str, int | str, int | str, int | str] = (0, 0x81, 2, 1)) -> str:
    names = ("domain", "bus", "slot", "function")
    where = "".join(f"<{name}>{number}</{name}>" for name, number in zip(names, address, strict=True))
    ids = "<product id='0x1572'>X710</product><vendor id='0x8086'>Intel</vendor>"
    return f"<device><name>pci</name><capability type='pci'>{where}{ids}{inside}</capability></device>"


FUNCTIONS = "<capability type='virt_functions' maxCount='4'/>"
PARENT = (
    "<capability type='phys_function'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></capability>"
)


@pytest.mark.parametrize(
    ("inside", "kind", "cell", "parent"),
    [
        ("", STANDARD, None, ""),
        ("<numa node='1'/>", STANDARD, 1, ""),
        (f"<numa node='0'/>{FUNCTIONS}", PHYSICAL, 0, ""),
        (f"{PARENT}<numa node='1'/>", VIRTUAL, 1, "0000:81:00.0"),
    ],
)
def test_a_device_is_of_one_of_three_kinds(inside: str, kind: str, cell: int | None, parent: str) -> None:
    assert devices_in([device(inside)]) == [
        PciDevice(address="0000:81:02.1", vendor_id="8086", product_id="1572", type=kind, cell=cell, parent=parent)
    ]


def test_devices_come_by_address_and_others_are_passed_over() -> None:
    other = "<device><name>net</name><capability type='net'/></device>"
    addresses = [(0, 0x82, 0, 0), (0, 2, 0x1F, 7), (1, 0, 0, 0)]
    found = devices_in([other, *(device("", one) for one in addresses)])
    assert [one.address for one in found] == ["0000:02:1f.7", "0000:82:00.0", "0001:00:00.0"]


def test_a_device_that_says_little_is_known_by_its_address() -> None:
    text = "<device><capability type='pci'><bus>3</bus><slot/></capability></device>"
    assert devices_in([text]) == [PciDevice(address="0000:03:00.0", vendor_id="0000", product_id="0000")]
