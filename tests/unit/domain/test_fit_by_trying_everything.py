"""Fitting finds a place exactly where trying everything finds one, and what it gives is free and as asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware, conflicts, fit
from kilonova.domain.numa import CellRules, GuestCell, HostCell, Pages
from kilonova.domain.pci import AFFINITIES, PHYSICAL, STANDARD, VIRTUAL, DeviceRequest, PciDevice, PciSpec
from tests.unit.domain.machines import can_fit


@st.composite
def host_cells(draw: st.DrawFn) -> tuple[HostCell, ...]:
    cells, first = [], 0
    for number in range(draw(st.integers(1, 3))):
        sizes = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
        cores = []
        for size in sizes:
            cores.append(tuple(range(first, first + size)))
            first += size
        cpus = [cpu for core in cores for cpu in core]
        kind = draw(st.lists(st.sampled_from("sd-"), min_size=len(cpus), max_size=len(cpus)))
        huge = draw(st.integers(0, 3))
        cells.append(
            HostCell(
                id=number,
                shared=tuple(cpu for cpu, k in zip(cpus, kind, strict=True) if k == "s"),
                dedicated=tuple(cpu for cpu, k in zip(cpus, kind, strict=True) if k == "d"),
                cores=tuple(cores),
                memory_mb=8 + 2 * huge,
                pages=(Pages(4, 8 * 256), *((Pages(2048, huge),) if huge else ())),
                socket=draw(st.integers(0, 1)),
            )
        )
    return tuple(cells)


@st.composite
def devices(draw: st.DrawFn) -> tuple[PciDevice, ...]:
    found: list[PciDevice] = []
    for slot in range(draw(st.integers(0, 2))):
        near = draw(st.sampled_from([0, 1, 2, None]))
        address = f"0000:0{slot}:00.0"
        functions = draw(st.integers(0, 2))
        kind = PHYSICAL if functions else STANDARD
        found.append(PciDevice(address=address, vendor_id="8086", product_id="1000", type=kind, cell=near))
        for n in range(functions):
            virtual = f"0000:0{slot}:00.{n + 1}"
            found.append(
                PciDevice(address=virtual, vendor_id="8086", product_id="1001", type=VIRTUAL, cell=near, parent=address)
            )
    return tuple(found)


@st.composite
def wishes(draw: st.DrawFn) -> HardwareRequest:
    cells, cpu = [], 0
    for _ in range(draw(st.integers(0, 2))):
        shared, dedicated = draw(st.integers(0, 2)), draw(st.integers(0, 3))
        numbers = list(range(cpu, cpu + shared + dedicated))
        cpu += shared + dedicated
        memory = draw(st.sampled_from([1, 2, 4, 6]))
        cells.append(GuestCell(tuple(numbers[:shared]), tuple(numbers[shared:]), memory))
    pinned = any(one.dedicated for one in cells)
    rules = CellRules(
        draw(st.sampled_from(["", "prefer", "require", "isolate"])) if pinned else "",
        draw(st.sampled_from(["", "small", "large", "any", "2048", "4"])),
    )
    emulator = draw(st.sampled_from(["", "isolate"])) if pinned else ""
    kinds = [PciSpec("8086", "1000", PHYSICAL), PciSpec("8086", "1000", None), PciSpec("8086", "1001", VIRTUAL)]
    asked = draw(
        st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 2), st.sampled_from(AFFINITIES)), max_size=2)
    )
    wanted = tuple(DeviceRequest(f"a{n}", count, (kind,), near) for n, (kind, count, near) in enumerate(asked))
    return HardwareRequest(cells=tuple(cells), rules=rules, emulator_threads=emulator, devices=wanted)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(host_cells(), devices(), st.lists(wishes(), min_size=1, max_size=4))
def test_it_fits_where_trying_everything_finds_a_place(
    cells: tuple[HostCell, ...], pci: tuple[PciDevice, ...], asked: list[HardwareRequest]
) -> None:
    hardware, claims = HostHardware(cells, pci), list[HostClaim]()
    for wish in asked:
        claim = fit(wish, hardware, claims)
        assert isinstance(claim, HostClaim) == can_fit(wish, hardware, claims), claim
        if isinstance(claim, HostClaim):
            check_given(wish, hardware, claim)
            claims.append(claim)
            assert conflicts(hardware, [(str(n), claim) for n, claim in enumerate(claims)]) == []


def check_given(wish: HardwareRequest, hardware: HostHardware, claim: HostClaim) -> None:
    by_id = {one.id: one for one in hardware.cells}
    assert len({got.cell for got in claim.cells}) == len(wish.cells)
    for asked, got in zip(wish.cells, claim.cells, strict=True):
        assert tuple(vcpu for vcpu, _ in got.pinning) == asked.dedicated
        assert (got.shared, got.memory_mb) == (asked.shared, asked.memory_mb)
        assert set(got.host_cpus) <= set(by_id[got.cell].dedicated)
    assert sum(len(got.emulator) for got in claim.cells) == wish.emulator_cpus
    wanted = sorted(one.alias for one in wish.devices for _ in range(one.count))
    assert sorted(device.alias for device in claim.devices) == wanted
