"""The block devices of a create request: both request forms become one list, which is checked.

The resulting list names every disk of the server, the root disk too; the flavor's disks are only counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Required, TypedDict, cast

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor

BOTH = ("device_name", "delete_on_termination", "volume_size", "no_device")
BUSES = ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")
ROOT = Details().root_device_name
SentDevice = dict[str, Any]  # as a client sent it, in either form; its schema has checked the types


class Device(TypedDict, total=False):
    """A block device in the newer form, completed."""

    source_type: Required[str]
    destination_type: Required[str]
    uuid: str  # of the volume, snapshot or image
    boot_index: int | str | None
    device_name: str | None
    volume_size: int | str | None
    volume_type: str | None
    guest_format: str | None
    disk_bus: str | None
    delete_on_termination: bool | str
    tag: str | None


def devices_of(image: str, old: Sequence[SentDevice], new: Sequence[SentDevice]) -> list[Device]:
    """Return the devices in the newer form, whichever was sent. Without a device for it, the image becomes the root
    disk; the newer form names that one too."""
    if old and new:
        raise Refused(400, "Using different block_device_mapping syntaxes is not allowed in the same request.")
    if new:
        return [completed(dict(device), image) for device in new if not device.get("no_device")]
    devices = [newer(device) for device in old if not device.get("no_device")]
    root: Device = {"source_type": "image", "destination_type": "local", "uuid": image, "boot_index": 0}
    return devices if not image or any(is_root(device) for device in devices) else [root, *devices]


def is_root(device: Device) -> bool:
    return _index(device) == 0


def is_local(device: Device) -> bool:
    return bool(device["destination_type"] == "local")


def check_devices(devices: list[Device], flavor: Flavor, most_local: int) -> None:
    _check_order(devices)
    _check_names(devices)
    _check_volumes(devices)
    local = [device for device in devices if is_local(device)]
    swaps = [device for device in local if _is_swap(device)]
    if len(swaps) > 1:
        raise wrong("More than one swap drive requested.")
    if swaps and int(swaps[0].get("volume_size") or 0) > flavor.swap_mb:
        raise wrong(f"Swap drive requested is larger than instance type allows: {flavor.swap_mb} MB.")
    ephemerals = [device for device in local if _is_ephemeral(device)]
    wanted = sum(_gigabytes(device, flavor) for device in ephemerals)
    if wanted > flavor.ephemeral_gb:
        text = f"{wanted} GB of {flavor.ephemeral_gb} GB. A disk without a size has all of them."
        raise wrong(f"Ephemeral disks requested are larger than the instance type allows: {text}")
    from_flavor = int(flavor.ephemeral_gb > 0 and not ephemerals) + int(flavor.swap_mb > 0 and not swaps)
    if 0 <= most_local < len(local) + from_flavor:
        text = f"{len(local) + from_flavor} of {most_local}"
        raise wrong(f"You specified more local devices than the limit allows: {text}")


def with_local_disks(flavor: Flavor, devices: list[Device]) -> Flavor:
    """Return the flavor with the sizes that the request names for its ephemeral disks and swap."""
    blank = [device for device in devices if is_local(device) and device["source_type"] == "blank"]
    swap = next((device for device in blank if _is_swap(device)), None)
    sizes = [size for device in blank if _is_ephemeral(device) and (size := _gigabytes(device, flavor))]
    swap_size = None if swap is None else swap.get("volume_size")
    requested = int(swap_size) if swap_size else None
    whole: Flavor = msgspec.structs.replace(flavor, ephemerals=sizes, requested_swap_mb=requested)
    return whole


def disk_tags(devices: list[Device], flavor: Flavor) -> dict[str, str]:
    """Return the tags of the local disks that have one, by the names that drivers give the disks."""
    local = [device for device in devices if is_local(device)]
    sized = [device for device in local if _is_ephemeral(device) and _gigabytes(device, flavor)]
    named = [("root", device) for device in local if is_root(device)]
    named += [(f"ephemeral{number}", device) for number, device in enumerate(sized)]
    named += [("swap", device) for device in local if _is_swap(device)]
    return {name: str(device["tag"]) for name, device in named if device.get("tag")}


def _gigabytes(ephemeral: Device, flavor: Flavor) -> int:
    """Return the size of a disk; without one it has the flavor's whole size."""
    return int(ephemeral.get("volume_size") or flavor.ephemeral_gb)


def wrong(why: str) -> Refused:
    return Refused(400, f"Block Device Mapping is Invalid: {why}")


def wrong_source(why: Refused) -> Refused:
    """Report what a service refuses as a fault of the mapping. Errors with Compute's own sentence stay as they are."""
    return wrong(why.message) if why.status is None else why


def newer(old: SentDevice) -> Device:
    """Return the device in the newer form. A volume is the root disk only if it has the root disk's name."""
    common = {name: value for name, value in old.items() if name in BOTH}
    if "device_name" in common:
        common["device_name"] = _path(common["device_name"])
    name = old.get("virtual_name", "")
    if re.fullmatch(r"swap|ephemeral[0-9]{1,9}", name):
        swap = {"guest_format": "swap"} if name == "swap" else {}
        return cast(Device, {**common, **swap, "source_type": "blank", "destination_type": "local"})
    for source_type in ("snapshot", "volume"):
        if old.get(f"{source_type}_id"):
            index = 0 if common.get("device_name") == ROOT else -1
            source = {"source_type": source_type, "uuid": old[f"{source_type}_id"], "boot_index": index}
            return cast(Device, {**common, **source, "destination_type": "volume"})
    raise wrong("a device needs a volume_id, a snapshot_id, or a virtual_name (swap or ephemeral0).")


def completed(sent: SentDevice, image: str) -> Device:
    """Return the device in the newer form, with the optional keys filled in. Raise `Refused`."""
    source, named = sent.get("source_type"), sent.get("uuid")
    if source is None:
        raise wrong("a device needs a source_type: volume, snapshot, image or blank.")
    if sent.get("virtual_name"):
        raise wrong("virtual_name is for block_device_mapping only; use source_type blank and guest_format.")
    if source != "blank" and not named:
        raise wrong(f"a device whose source_type is {source} needs the uuid of that {source}.")
    if source == "blank" and named:
        raise wrong(f"a blank device takes no uuid; to use {named}, set source_type to volume, snapshot or image.")
    if sent.get("device_name"):
        sent["device_name"] = _path(sent["device_name"])
    sent.setdefault("destination_type", "local" if source in ("image", "blank") else "volume")
    device = cast(Device, sent)
    _check_kind(device, image)
    return device


def _check_kind(device: Device, image: str) -> None:
    source, local = device["source_type"], is_local(device)
    if source in ("volume", "snapshot") and local:
        raise wrong(f"a {source} cannot become a local disk; set destination_type to volume.")
    if source == "image" and local and not (is_root(device) and image and device["uuid"] == image):
        raise wrong("an image can be a local disk only as the root disk; name it as imageRef, too.")
    if device.get("volume_type") and (local or source == "volume"):
        raise wrong("volume_type is for new volumes only, not for local disks or existing volumes.")
    if (bus := device.get("disk_bus")) and bus not in BUSES:
        raise wrong(f"The provided disk bus {bus} is not valid; use one of {', '.join(BUSES)}.")


def _check_order(devices: list[Device]) -> None:
    """Check the boot order: counted from 0 without a gap, and with one device to boot from."""
    order = sorted(index for device in devices if (index := _index(device)) >= 0)
    if not order or order != list(range(len(order))):
        text = "Boot sequence for the instance and image/block device mapping combination is not valid."
        raise wrong(f"{text} boot_index must count from 0, the root disk; got: {order or 'none'}.")


def _check_names(devices: list[Device]) -> None:
    """Refuse names that are used twice. The root disk always has its own name, so no other device may have it."""
    names = [
        ROOT,
        *(str(device["device_name"]) for device in devices if device.get("device_name") and not is_root(device)),
    ]
    for name in names:
        if names.count(name) > 1:
            of_root = f" as the root device {ROOT}" if name == ROOT else f" {name} as another"
            raise wrong(f"The volume cannot be assigned the same device name{of_root}.")


def _check_volumes(devices: list[Device]) -> None:
    named = [device["uuid"] for device in devices if device["source_type"] == "volume"]
    for volume_id in named:
        if named.count(volume_id) > 1:
            raise wrong(f"volume {volume_id} is named twice.")


def _index(device: Device) -> int:
    """Return the boot index. None, or below 0: nothing boots from it."""
    index = device.get("boot_index")
    return -1 if index is None else int(index)


def _is_ephemeral(device: Device) -> bool:
    return device["source_type"] == "blank" and not _is_swap(device)


def _is_swap(device: Device) -> bool:
    return device["source_type"] == "blank" and device.get("guest_format") == "swap"


def _path(name: str) -> str:
    return name if name.startswith("/dev/") else f"/dev/{name}"
