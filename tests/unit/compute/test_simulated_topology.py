"""The inside of simulated machines, from a few numbers."""

from __future__ import annotations

import pytest

from kilonova.compute.drivers.simulated.topology import SimulatedTopology, hardware_of
from kilonova.compute.offer import Offer
from kilonova.domain.hardware_options import SimulatedCard
from kilonova.domain.numa import HostCell, Pages
from kilonova.domain.pci import PHYSICAL, STANDARD, VIRTUAL, DeviceSpec, PciDevice

ALL = Offer(devices=(DeviceSpec(),))


def cells(topology: SimulatedTopology, vcpus: int, memory_mb: int = 1024, offer: Offer = ALL) -> tuple[HostCell, ...]:
    return hardware_of(topology, vcpus, memory_mb, offer).cells


def test_a_plain_machine_is_one_cell() -> None:
    assert cells(SimulatedTopology(), 2) == (
        HostCell(
            id=0,
            shared=(0, 1),
            dedicated=(),
            cores=((0,), (1,)),
            memory_mb=1024,
            pages=(Pages(4, 1024 * 256),),
            socket=0,
        ),
    )


@pytest.mark.parametrize(
    ("nodes", "threads", "vcpus", "cores"),
    [
        (2, 2, 8, [((0, 1), (2, 3)), ((4, 5), (6, 7))]),
        (2, 2, 7, [((0, 1), (2, 3)), ((4, 5), (6,))]),
        (2, 1, 3, [((0,),), ((1,), (2,))]),
        (4, 1, 2, [((0,),), ((1,),)]),
        (1, 4, 2, [((0, 1),)]),
    ],
    ids=["even", "half a core", "uneven", "more cells than cores", "more threads than CPUs"],
)
def test_cpus_are_numbered_core_by_core_and_cell_by_cell(
    nodes: int, threads: int, vcpus: int, cores: list[tuple[tuple[int, ...], ...]]
) -> None:
    found = cells(SimulatedTopology(nodes, threads), vcpus)
    assert [one.cores for one in found] == cores
    assert [(one.id, one.socket) for one in found] == [(number, number) for number in range(len(cores))]
    assert [one.shared for one in found] == [tuple(cpu for core in cell for cpu in core) for cell in cores]


def test_cells_divide_the_memory_and_large_pages_are_cut_out_of_it() -> None:
    first, second = cells(SimulatedTopology(2, huge_pages={1048576: 1, 2048: 10}), 2, 4096)
    assert first.memory_mb == second.memory_mb == 2048
    small = (2048 * 1024 - 1048576 - 10 * 2048) // 4
    assert first.pages == second.pages == (Pages(4, small), Pages(2048, 10), Pages(1048576, 1)), "the smallest first"


def test_more_large_pages_than_memory_leave_no_small_ones() -> None:
    (cell,) = cells(SimulatedTopology(huge_pages={2048: 1000}), 1, 64)
    assert cell.pages == (Pages(4, 0), Pages(2048, 1000))


def test_guests_may_have_what_the_operator_offers() -> None:
    first, second = cells(SimulatedTopology(2), 4, offer=Offer(frozenset({1, 2}), frozenset({0})))
    assert (first.shared, first.dedicated, second.shared, second.dedicated) == ((0,), (1,), (), (2,))


def test_a_machine_without_cpus_has_no_cells() -> None:
    assert cells(SimulatedTopology(2), 0) == ()


NIC = SimulatedCard(vendor_id="8086", product_id="1563", numa_node=1, vfs=9, vf_product_id="15A8")
GPU = SimulatedCard(vendor_id="10DE", product_id="20B0", count=2)


def devices(*cards: SimulatedCard, offer: Offer = ALL) -> tuple[PciDevice, ...]:
    return hardware_of(SimulatedTopology(cards=cards), 1, 64, offer).devices


def test_each_card_has_a_bus_and_its_virtual_functions_follow_it() -> None:
    found = devices(GPU, NIC)
    assert found[:2] == tuple(
        PciDevice(address=f"0000:{bus}:00.0", vendor_id="10de", product_id="20b0", type=STANDARD)
        for bus in ("81", "82")
    )
    whole, *functions = found[2:]
    assert whole == PciDevice(address="0000:83:00.0", vendor_id="8086", product_id="1563", type=PHYSICAL, cell=1)
    assert [one.address for one in functions] == [
        *(f"0000:83:00.{number}" for number in range(1, 8)),
        "0000:83:01.0",
        "0000:83:01.1",
    ]
    assert {(one.vendor_id, one.product_id, one.type, one.cell, one.parent) for one in functions} == {
        ("8086", "15a8", VIRTUAL, 1, "0000:83:00.0")
    }


def test_a_virtual_function_is_as_its_card_unless_it_says_otherwise() -> None:
    card = SimulatedCard(vendor_id="8086", product_id="1563", vfs=1)
    assert [one.product_id for one in devices(card)] == ["1563", "1563"]


def test_more_cards_than_a_bus_number_has_room_for() -> None:
    card = SimulatedCard(vendor_id="8086", product_id="1563", count=64)
    found = devices(card, card, card)
    assert found[0xFF - 0x81].address == "0000:ff:00.0" and found[0x100 - 0x81].address == "0001:00:00.0"
    assert len({one.address for one in found}) == 192


def test_guests_may_have_only_the_cards_that_the_operator_offers() -> None:
    assert [one.vendor_id for one in devices(GPU, NIC, offer=Offer(devices=(DeviceSpec(vendor_id="10de"),)))] == [
        "10de"
    ] * 2
    assert devices(GPU, NIC, offer=Offer()) == ()
