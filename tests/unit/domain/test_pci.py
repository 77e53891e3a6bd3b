"""Which devices a guest gets: near ones first, none twice, never a card and its functions."""

from __future__ import annotations

import msgspec
import pytest

from kilonova.domain.hardware import HardwareRequest, HostClaim, conflicts, fit, lacking_devices
from kilonova.domain.numa import GuestCell
from kilonova.domain.pci import PHYSICAL, VIRTUAL, DeviceRequest, DeviceSpec, PciAlias, PciDevice, PciSpec, usable
from tests.unit.domain.machines import cell, host


def gpu(bus: int, near: int | None) -> PciDevice:
    return PciDevice(address=f"0000:{bus:02x}:00.0", vendor_id="10de", product_id="1db4", cell=near)


def card(bus: int, functions: int, near: int | None = None) -> list[PciDevice]:
    whole = PciDevice(address=f"0000:{bus:02x}:00.0", vendor_id="8086", product_id="1572", type=PHYSICAL, cell=near)
    part = msgspec.structs.replace(whole, product_id="154c", type=VIRTUAL, parent=whole.address)
    parts = [msgspec.structs.replace(part, address=f"0000:{bus:02x}:00.{n}") for n in range(1, functions + 1)]
    return [whole, *parts]


def wish(*devices: DeviceRequest, cells: int = 0) -> HardwareRequest:
    return HardwareRequest(cells=tuple(GuestCell((), (at,), 64) for at in range(cells)), devices=devices)


def gpus(count: int, affinity: str = "legacy") -> DeviceRequest:
    return DeviceRequest("gpu", count, (PciSpec("10de", "1db4"),), affinity)


WHOLE = DeviceRequest("card", 1, (PciSpec("8086", "1572", PHYSICAL),))
PART = DeviceRequest("nic", 1, (PciSpec("8086", "154c", VIRTUAL),))
BARE = DeviceRequest("any", 1, (PciSpec("8086", "1572"), PciSpec("8086", "154c")))


def given(claim: HostClaim | str) -> list[str]:
    assert isinstance(claim, HostClaim), claim
    return [address[5:] for address in claim.addresses]


def test_the_nearest_first() -> None:
    hardware = host(cell(0), cell(1), devices=[gpu(1, None), gpu(2, 0), gpu(3, 1)])
    assert given(fit(wish(gpus(2)), hardware, [])) == ["01:00.0", "02:00.0"], "no cell: all are equally near"
    claim = fit(wish(gpus(1), cells=1), hardware, [])
    assert given(claim) == ["02:00.0"]
    assert isinstance(claim, HostClaim) and claim.cells[0].cell == 0, "the cell with the device, though both are empty"


@pytest.mark.parametrize(
    ("affinity", "got"),
    [
        ("required", "needs 3 of gpu, 1 free near enough (required), 4 in all"),
        ("legacy", "needs 3 of gpu, 2 free near enough (legacy), 4 in all"),
        ("preferred", ["02:00.0", "01:00.0", "03:00.0"]),
        ("socket", "needs 3 of gpu, 2 free near enough (socket), 4 in all"),
    ],
)
def test_affinities(affinity: str, got: list[str] | str) -> None:
    """Cells 0 and 1 share a socket; only cell 0 has CPUs to give."""
    bare = msgspec.structs.replace(cell(1), dedicated=())
    far = msgspec.structs.replace(cell(2, socket=1), dedicated=())
    hardware = host(cell(0), bare, far, devices=[gpu(1, None), gpu(2, 0), gpu(3, 1), gpu(4, 2)])
    claim = fit(wish(gpus(3, affinity), cells=1), hardware, [])
    assert (claim if isinstance(claim, str) else given(claim)) == got


def test_a_card_and_its_functions_exclude_each_other() -> None:
    hardware = host(devices=[*card(1, 2), *card(2, 1)])
    both = fit(wish(WHOLE, PART), hardware, [])
    assert given(both) == ["01:00.0", "02:00.1"]
    assert isinstance(both, HostClaim)
    assert lacking_devices(wish(PART), hardware, [both]) == "needs 1 of nic, 0 free"
    assert lacking_devices(wish(WHOLE), hardware, [both]) == "needs 1 of card, 0 free"
    together = wish(WHOLE, DeviceRequest("nic", 2, PART.kinds))
    assert given(fit(together, hardware, [])) == ["02:00.0", "01:00.1", "01:00.2"], "the other card would leave one"
    small = host(devices=card(1, 2))
    assert fit(wish(WHOLE, PART), small, []) == "needs 1 of card and 1 of nic, not free together"


def test_a_whole_card_is_given_only_to_who_says_so() -> None:
    assert given(fit(wish(BARE), host(devices=card(1, 1)), [])) == ["01:00.1"]
    assert fit(wish(BARE), host(devices=card(1, 0)), []) == "needs 1 of any, 0 free"


def test_wishes_that_overlap_do_not_take_each_others_devices() -> None:
    other = PciDevice(address="0000:09:00.0", vendor_id="10de", product_id="2222")
    either = DeviceRequest("either", 1, (PciSpec("10de", "1db4"), PciSpec("10de", "2222")))
    claim = fit(wish(either, gpus(1)), host(devices=[gpu(1, None), other]), [])
    assert given(claim) == ["09:00.0", "01:00.0"]


def test_what_two_servers_hold_is_told() -> None:
    hardware = host(devices=card(1, 1))
    whole, part = fit(wish(WHOLE), hardware, []), fit(wish(PART), hardware, [])
    assert isinstance(whole, HostClaim) and isinstance(part, HostClaim)
    assert conflicts(hardware, [("a", whole), ("b", part)]) == ["device 0000:01:00.0 is given to a and to b"]
    assert conflicts(hardware, [("a", part), ("a", part)]) == [], "two copies of one server that never run together"
    assert conflicts(hardware, [("a", whole), ("a", part)]) == ["device 0000:01:00.0 is given to a and to a"]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 3),
        ({"vendor_id": "10DE"}, 1),
        ({"vendor_id": "8086", "product_id": "154c"}, 1),
        ({"address": "0000:01:00.*"}, 2),
        ({"address": "*:01:*.1"}, 1),
        ({"address": ":01:00."}, 2),
        ({"address": "02:00.0"}, 1),
        ({"address": "0001:*:*.*"}, 0),
    ],
)
def test_which_devices_the_operator_gives_away(spec: dict[str, str], count: int) -> None:
    devices = [*card(1, 1), gpu(2, 0)]
    assert len(usable(devices, [msgspec.convert(spec, DeviceSpec)])) == count


@pytest.mark.parametrize("spec", [{"vendor_id": "10d"}, {"address": "x"}, {"adress": "*"}, {"address": "1:2:3:4.0"}])
def test_a_spec_that_makes_no_sense_is_refused(spec: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(spec, DeviceSpec)


def test_an_alias_needs_a_device() -> None:
    with pytest.raises(msgspec.ValidationError, match="product_id"):
        msgspec.convert({"name": "gpu", "vendor_id": "10de"}, PciAlias)
