"""Devices that an image names: believed in nothing, and what the request says of a device wins."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.operations.create.devices import is_root
from kilonova.operations.create.image_devices import devices_in, merged

IMAGE = "1a6e0000-0000-4000-8000-000000000001"
ROOT = {"source_type": "snapshot", "snapshot_id": "snap1", "boot_index": 0, "device_name": "/dev/vda", "volume_size": 1}
DATA = {"source_type": "snapshot", "snapshot_id": "snap2", "boot_index": None, "device_name": "/dev/vdb"}


def named(devices: Any, newer: str = "True") -> list[dict[str, Any]]:
    return devices_in({"block_device_mapping": json.dumps(devices), "bdm_v2": newer}, IMAGE)


def test_snapshots_become_volumes() -> None:
    root, data = named([{**ROOT, "delete_on_termination": True, "disk_bus": "virtio", "extra": 1}, DATA])
    assert is_root(root) and not is_root(data)
    assert (root["uuid"], root["destination_type"], root["volume_size"]) == ("snap1", "volume", 1)
    assert root["delete_on_termination"] is True and data["uuid"] == "snap2"


def test_the_older_form() -> None:
    (root,) = named([{"device_name": "vda", "snapshot_id": "snap1", "volume_size": 2}], newer="")
    assert is_root(root) and (root["source_type"], root["uuid"]) == ("snapshot", "snap1")


def test_an_image_without_devices() -> None:
    assert devices_in({}, IMAGE) == [] == devices_in({"block_device_mapping": "", "bdm_v2": "True"}, IMAGE)
    assert named([{**ROOT, "no_device": True}]) == []


@pytest.mark.parametrize(
    "devices",
    [
        {},
        [1],
        [{}],
        [{**ROOT, "source_type": "file"}],
        [{**ROOT, "volume_size": "huge"}],
        [{**ROOT, "volume_size": 0}],
        [{**ROOT, "snapshot_id": None}],
        [{**ROOT, "destination_type": "local"}],
        [{**ROOT, "snapshot_id": "x" * 300}],
        [ROOT] * 101,
    ],
)
def test_nonsense_is_refused_in_words(devices: Any) -> None:
    with pytest.raises(Refused) as why:
        named(devices)
    assert why.value.status == 400 and "Block Device Mapping is Invalid" in why.value.message


def test_the_request_wins() -> None:
    habit = {"source_type": "image", "destination_type": "local", "uuid": IMAGE, "boot_index": 0}
    own_root = {"source_type": "volume", "destination_type": "volume", "uuid": "mine", "boot_index": 0}
    own_data = {"source_type": "blank", "destination_type": "volume", "device_name": "/dev/vdb", "volume_size": 3}
    of_image = named([ROOT, DATA])
    assert [one["uuid"] for one in merged([habit], of_image)] == ["snap1", "snap2"]
    assert [one["uuid"] for one in merged([own_root], of_image)] == ["mine", "snap2"]
    assert [one.get("uuid") for one in merged([habit, own_data], of_image)] == [None, "snap1"]
    assert merged([habit], []) == [habit]
