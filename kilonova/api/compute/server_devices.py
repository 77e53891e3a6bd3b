"""The block devices of a create request, in either form: what is asked for and whether that can be."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Call
from kilonova.api.compute.schemas.types import is_true
from kilonova.api.rejected import Rejected
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor
from kilonova.domain.volume import VolumeState, WantedVolume
from kilonova.operations.attach_volume import free_device
from kilonova.services.image.image import Image

ATTACH = "os_compute_api:servers:create:attach_volume"
OLD, NEW = "block_device_mapping", "block_device_mapping_v2"
BOTH = ("device_name", "delete_on_termination", "volume_size", "no_device")
MOST_LOCAL = 3
GIB = 1024**3
ROOT = Details().root_device_name
Device = dict[str, Any]


def devices_of(wish: dict[str, Any]) -> list[Device]:
    """In the newer form, whichever was sent."""
    if wish.get(OLD) and wish.get(NEW):
        raise Rejected(400, "Using different block_device_mapping syntaxes is not allowed in the same request.")
    asked = wish.get(NEW) or [_newer(device) for device in wish.get(OLD, [])]
    found = [device for device in asked if not device.get("no_device")]
    if wish.get(OLD) and not wish.get("imageRef") and found:
        found[0]["boot_index"] = 0
    return found


def _newer(old: Device) -> Device:
    kept = {name: value for name, value in old.items() if name in BOTH}
    for word in ("volume", "snapshot"):
        if old.get(f"{word}_id"):
            return {**kept, "source_type": word, "destination_type": "volume", "uuid": old[f"{word}_id"]}
    swap = {"guest_format": "swap"} if old.get("virtual_name") == "swap" else {}
    if not old.get("virtual_name") and not old.get("no_device"):
        raise _wrong("a device names a volume_id, a snapshot_id or a virtual_name")
    return {**kept, **swap, "source_type": "blank", "destination_type": "local"}


async def volumes_for(
    call: Call, devices: list[Device], image: Image | None, flavor: Flavor, most: int
) -> list[WantedVolume]:
    """Those that are volumes; local ones are part of the flavor and only checked."""
    for device in devices:
        _complete(device)
    local = [device for device in devices if device["destination_type"] == "local"]
    _check_local(local, image, flavor)
    _check_order(devices, image)
    remote = [device for device in devices if device["destination_type"] == "volume"]
    if remote:
        call.require(ATTACH)
    if most > 1 and any(device["source_type"] == "volume" for device in remote):
        raise Rejected(400, "Cannot attach one or more volumes to multiple instances")
    taken = {ROOT, *(device["device_name"] for device in remote if device.get("device_name"))}
    return [await _wanted(call, device, taken) for device in remote]


def is_root(device: Device) -> bool:
    index = device.get("boot_index")
    return index is not None and int(index) == 0


def _complete(device: Device) -> None:
    source = device.get("source_type")
    if source is None:
        raise _wrong("a device needs a source_type: volume, snapshot, image or blank")
    device.setdefault("destination_type", "local" if source in ("image", "blank") else "volume")
    if source in ("volume", "snapshot") and device["destination_type"] != "volume":
        raise _wrong(f"a {source} cannot become a local disk; its destination_type is volume")
    if source != "blank" and not (device.get("uuid") or device.get("image_id")):
        raise _wrong(f"a device whose source_type is {source} needs the uuid of that {source}")


def _check_local(local: list[Device], image: Image | None, flavor: Flavor) -> None:
    if len(local) > MOST_LOCAL:
        raise _wrong(f"You specified more local devices than the limit allows: {len(local)} of {MOST_LOCAL}")
    swaps = [device for device in local if device.get("guest_format") == "swap"]
    if len(swaps) > 1:
        raise _wrong("More than one swap drive requested.")
    if swaps and int(swaps[0].get("volume_size") or 0) > flavor.swap_mb:
        raise _wrong(f"Swap drive requested is larger than instance type allows: {flavor.swap_mb} MB.")
    blank = [device for device in local if device["source_type"] == "blank" and device not in swaps]
    if sum(int(device.get("volume_size") or 0) for device in blank) > flavor.ephemeral_gb:
        raise _wrong(f"Ephemeral disks requested are larger than the instance type allows: {flavor.ephemeral_gb} GB.")
    for device in local:
        named = device.get("uuid") or device.get("image_id")
        if device["source_type"] == "image" and (not is_root(device) or image is None or named != image.id):
            raise _wrong("an image becomes a local disk only as the root disk, and is the imageRef then")


def _check_order(devices: list[Device], image: Image | None) -> None:
    given = [int(device["boot_index"]) for device in devices if device.get("boot_index") is not None]
    order = sorted(index for index in given if index >= 0)
    if order != list(range(len(order))) or (not order and image is None):
        text = "Boot sequence for the instance and image/block device mapping combination is not valid."
        raise Rejected(400, f"Block Device Mapping is Invalid: {text}")


async def _wanted(call: Call, device: Device, taken: set[str]) -> WantedVolume:
    source, named = device["source_type"], device.get("uuid") or device.get("image_id") or ""
    size = int(device["volume_size"]) if device.get("volume_size") else None
    state = await _source(call, source, named, size, root=is_root(device))
    await _check_type(call, device.get("volume_type") or "")
    name = ROOT if is_root(device) else device.get("device_name") or free_device(taken, ROOT)
    taken.add(name)
    return WantedVolume(
        **({f"{source}_id": named} if source != "blank" else {}),
        size=size if source != "volume" else None,
        type=device.get("volume_type") or "",
        is_root=is_root(device),
        device=name,
        tag=device.get("tag"),
        delete_on_termination=is_true(device.get("delete_on_termination", False)),
        properties=state.image_metadata if state is not None else {},
    )


async def _source(call: Call, source: str, named: str, size: int | None, *, root: bool) -> VolumeState | None:
    """What it is made of, or is: of the caller, and fit."""
    try:
        if source == "volume":
            state = await call.service.volumes.servers.check(call.caller, named)
            if root and not state.bootable:
                raise Rejected(400, f"Block Device {named} is not bootable.")
            if state.multiattach and not call.at(2, 60):
                raise Rejected(400, f"Volume {named} is for several servers; attaching it needs microversion 2.60.")
            return state
        if source == "snapshot":
            await call.service.volumes.snapshots.find(call.caller, named)
        if source == "image":
            image = await call.service.images.find(call.caller, named)
            if image.status != "active":
                raise Rejected(400, f"Image {named} is not active.")
            if size is None or size * GIB < (image.size or 0) or size < image.min_disk:
                raise _wrong(f"a volume of image {named} needs a volume_size that holds the image")
    except Refused as why:
        raise _wrong(why.message) from None
    if source == "blank" and (size is None or root):
        raise _wrong("a blank volume needs a volume_size, and nothing boots from it")
    return None


async def _check_type(call: Call, name: str) -> None:
    try:
        if name:
            await call.service.volumes.types.find(call.caller, name)
    except Refused as why:
        raise Rejected(400, why.message) from None


def _wrong(why: str) -> Rejected:
    return Rejected(400, f"Block Device Mapping is Invalid: {why}")
