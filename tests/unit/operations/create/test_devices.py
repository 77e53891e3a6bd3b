"""The block devices of a create request: both forms become one list, and what such a list cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor
from kilonova.operations.create.devices import check_devices, devices_of, with_local_disks

IMAGE, VOLUME = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
FLAVOR = Flavor(id="1", name="f", vcpus=1, memory_mb=64, disk_gb=1)
ROOMY = Flavor(id="2", name="g", vcpus=1, memory_mb=64, disk_gb=1, ephemeral_gb=4, swap_mb=64)
ROOT = {"source_type": "image", "destination_type": "local", "uuid": IMAGE, "boot_index": 0}
DATA = {"source_type": "volume", "destination_type": "volume", "uuid": VOLUME}
LOCAL = {"source_type": "blank", "destination_type": "local"}
SWAP = {**LOCAL, "guest_format": "swap"}
Devices = list[dict[str, Any]]


def listed(devices: Devices, flavor: Flavor = FLAVOR, most: int = 3, image: str = IMAGE) -> Devices:
    found = devices_of(image, [], devices)
    check_devices(found, flavor, most)
    return found


def older(devices: Devices, image: str = IMAGE) -> Devices:
    found = devices_of(image, devices, [])
    check_devices(found, ROOMY, -1)
    return found


def test_without_devices_the_image_is_the_root_disk() -> None:
    assert devices_of(IMAGE, [], []) == [ROOT]


def test_the_newer_form_is_taken_as_it_is() -> None:
    assert listed([ROOT, {**DATA, "device_name": "vdb"}]) == [ROOT, {**DATA, "device_name": "/dev/vdb"}]
    assert listed([{"source_type": "volume", "uuid": VOLUME, "boot_index": "0"}], image="") == [
        {**DATA, "boot_index": "0"}
    ]
    assert listed([ROOT, {"no_device": True, "device_name": "/dev/vdc"}]) == [ROOT]


def test_the_older_form() -> None:
    assert older([{"volume_id": VOLUME, "device_name": "vdb"}]) == [
        ROOT,
        {**DATA, "device_name": "/dev/vdb", "boot_index": -1},
    ]
    from_it = [{**DATA, "device_name": "/dev/vda", "boot_index": 0}]
    assert older([{"volume_id": VOLUME, "device_name": "/dev/vda"}]) == from_it, "and not from the image"
    assert older([{"volume_id": VOLUME, "device_name": "vda"}], "") == from_it
    assert older([{"virtual_name": "swap"}, {"virtual_name": "ephemeral0"}, {"no_device": 1}]) == [
        ROOT,
        SWAP,
        LOCAL,
    ]


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ([{"virtual_name": "ephemeral"}], "a device needs a volume_id, a snapshot_id, or a virtual_name"),
        ([{"device_name": "vdb"}], "a device needs a volume_id"),
        ([{"volume_id": VOLUME, "device_name": "vdb"}] * 2, "same device name /dev/vdb as another"),
    ],
)
def test_what_the_older_form_cannot_be(devices: Devices, says: str) -> None:
    with pytest.raises(Refused, match=says) as why:
        older(devices)
    assert why.value.status == 400


def test_the_older_form_boots_from_the_device_that_is_named_so() -> None:
    with pytest.raises(Refused, match="Boot sequence"):
        older([{"volume_id": VOLUME, "device_name": "vdb"}], "")


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ([DATA], r"Boot sequence .* got: none"),
        ([ROOT, {**DATA, "boot_index": 2}], r"Boot sequence .* got: \[0, 2\]"),
        ([ROOT, {**DATA, "boot_index": 0}], r"Boot sequence .* got: \[0, 0\]"),
        ([{**DATA, "boot_index": 1}], r"Boot sequence .* got: \[1\]"),
        ([ROOT, {**DATA, "device_name": "vda"}], "same device name as the root device /dev/vda"),
        ([ROOT, DATA, DATA], f"volume {VOLUME} is named twice"),
        ([ROOT, {"destination_type": "volume"}], "a device needs a source_type"),
        ([ROOT, {"source_type": "volume"}], "needs the uuid of that volume"),
        ([ROOT, {**LOCAL, "uuid": VOLUME}], f"a blank device takes no uuid; to use {VOLUME}"),
        ([ROOT, {**DATA, "virtual_name": "swap"}], "virtual_name is for block_device_mapping only"),
        ([ROOT, {**DATA, "destination_type": "local"}], "a volume cannot become a local disk"),
        ([ROOT, {**ROOT, "boot_index": -1}], "an image can be a local disk only as the root disk"),
        ([{**ROOT, "uuid": VOLUME}], "an image can be a local disk only as the root disk"),
        ([ROOT, {**DATA, "volume_type": "fast"}], "volume_type is for new volumes only"),
        ([ROOT, {**LOCAL, "volume_type": "fast"}], "volume_type is for new volumes only"),
        ([ROOT, {**DATA, "disk_bus": "floppy"}], "disk bus floppy is not valid; use one of fdc, ide"),
    ],
)
def test_what_a_list_cannot_be(devices: Devices, says: str) -> None:
    with pytest.raises(Refused, match=says) as why:
        listed(devices, ROOMY)
    assert why.value.status == 400


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ([SWAP, SWAP], "More than one swap drive"),
        ([{**SWAP, "volume_size": 65}], "Swap drive requested is larger than instance type allows: 64 MB"),
        ([{**LOCAL, "volume_size": 5}], "larger than the instance type allows: 5 GB of 4 GB"),
        ([LOCAL, {**LOCAL, "volume_size": 1}], "larger than the instance type allows: 5 GB of 4 GB"),
    ],
)
def test_local_disks_are_of_the_flavor(devices: Devices, says: str) -> None:
    with pytest.raises(Refused, match=says):
        listed([ROOT, *devices], ROOMY, -1)


def test_local_disks_within_the_flavor() -> None:
    halves = [{**LOCAL, "volume_size": 2}] * 2
    assert len(listed([ROOT, *halves, {**SWAP, "volume_size": 64}], ROOMY, 4)) == 4
    with pytest.raises(Refused, match="more local devices than the limit allows: 4 of 3"):
        listed([ROOT, *halves], ROOMY)


def test_disks_of_the_flavor_count_too() -> None:
    listed([ROOT], ROOMY)
    with pytest.raises(Refused, match="3 of 2"):
        listed([ROOT], ROOMY, 2)
    listed([ROOT], ROOMY, -1)
    with pytest.raises(Refused, match="1 of 0"):
        listed([ROOT], FLAVOR, 0)
    listed([{**DATA, "boot_index": 0}], FLAVOR, 0, image="")


def local(*devices: dict[str, Any]) -> tuple[list[int], int]:
    flavor = with_local_disks(ROOMY, listed([ROOT, *devices], ROOMY, -1))
    return flavor.ephemeral_disks, flavor.swap_disk_mb


def test_local_disks_have_the_sizes_that_the_request_names() -> None:
    assert local() == ([4], 64)
    assert local({**LOCAL, "volume_size": 1}, {**LOCAL, "volume_size": 2}) == ([1, 2], 64)
    assert local(LOCAL) == ([4], 64), "all that the flavor gives"
    assert local({**SWAP, "volume_size": 32}) == ([4], 32)
    assert local(SWAP) == ([4], 64)
    assert with_local_disks(FLAVOR, [ROOT]).ephemeral_disks == []
