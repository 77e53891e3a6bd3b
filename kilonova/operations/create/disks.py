"""The sources of a new server's disks: the image of its root disk, and the requested volumes.

All of them must belong to the caller and fit, before the request is accepted: otherwise a volume that is too small, or
has no source, would show only as a server in ERROR.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.server import Flavor
from kilonova.domain.volume import VolumeState, WantedVolume
from kilonova.operations.attach_volume import free_device
from kilonova.operations.checks.images import GIB, check_fit, check_memory, find_image
from kilonova.operations.checks.requester import Requester
from kilonova.operations.create.devices import ROOT, Device, is_local, is_root, wrong, wrong_source
from kilonova.services.image.image import Image
from kilonova.services.volume.volume import AVAILABLE

ATTACH = "os_compute_api:servers:create:attach_volume"


class RequestedDisks(msgspec.Struct, frozen=True, kw_only=True):
    volumes: list[WantedVolume]
    zones: list[str]  # of the volumes
    image: Image | None  # the image on the root disk, as far as that is known
    volume_backed: bool


async def disks_for(
    requester: Requester, devices: list[Device], image: Image | None, flavor: Flavor, most: int, *, multiattach: bool
) -> RequestedDisks:
    """`multiattach`: the request may name volumes that several servers share."""
    remote = [device for device in devices if not is_local(device)]
    if remote:
        requester.require(ATTACH)
    if most > 1 and any(device["source_type"] == "volume" for device in remote):
        raise Refused(400, "Cannot attach one or more volumes to multiple instances")
    sources = [await _source(requester, device, multiattach=multiattach) for device in remote]
    root = next((one for device, one in zip(remote, sources, strict=True) if is_root(device)), None)
    if root is None:
        check_fit(requester, flavor, image)
    else:
        image = root.image
        check_memory(flavor, image)
    taken = {ROOT, *(name for device in remote if (name := device.get("device_name")))}
    return RequestedDisks(
        volumes=[_wanted(device, taken) for device in remote],
        zones=[one.zone for one in sources],
        image=image,
        volume_backed=root is not None,
    )


class _DiskSource(msgspec.Struct, frozen=True, kw_only=True):
    zone: str
    image: Image | None = None


async def _source(requester: Requester, device: Device, *, multiattach: bool) -> _DiskSource:
    """Return the source of a new volume, or the existing volume."""
    source, named, zone = device["source_type"], device.get("uuid", ""), requester.services.volumes.zone
    try:
        if source == "volume":
            state = await _free_volume(requester, named, root=is_root(device), multiattach=multiattach)
            return _DiskSource(zone=state.zone, image=_image_in(state))
        await _check_type(requester, device.get("volume_type") or "")
        if source == "snapshot":
            return _DiskSource(zone=zone, image=await _image_of_snapshot(requester, device))
        if source == "image":
            return _DiskSource(zone=zone, image=await _image_with_room(requester, device))
    except Refused as why:
        raise wrong_source(why) from None
    if _size(device) is None or is_root(device):
        raise wrong("a blank volume needs a volume_size and cannot be the boot disk.")
    return _DiskSource(zone=zone)


async def _free_volume(requester: Requester, volume_id: str, *, root: bool, multiattach: bool) -> VolumeState:
    state = await requester.services.volumes.servers.check(requester.caller, volume_id)
    if root:
        _check_bootable(state)
    if state.multiattach and not multiattach:
        raise Refused(400, f"Volume {volume_id} is multiattach; attaching it needs microversion 2.60.")
    return state


async def _image_of_snapshot(requester: Requester, device: Device) -> Image | None:
    """Return the image of a snapshot: that of the volume that it was taken of."""
    snapshot = await requester.services.volumes.snapshots.find(requester.caller, device["uuid"])
    if snapshot.status != AVAILABLE:
        raise wrong(f"snapshot {snapshot.id} is {snapshot.status}, not {AVAILABLE}.")
    size = _size(device)
    if size is not None and size < snapshot.size:
        raise wrong(f"a volume from snapshot {snapshot.id} has at least {snapshot.size} GB, not {size}.")
    origin = await requester.services.volumes.servers.state(snapshot.volume_id)
    if is_root(device):
        _check_bootable(origin)
    return _image_in(origin)


async def _image_with_room(requester: Requester, device: Device) -> Image:
    image, size = await find_image(requester, device["uuid"]), _size(device)
    least = max(image.min_disk, -(-image.disk_bytes // GIB), 1)
    if size is None or size < least:
        raise wrong(f"a volume from image {image.id} needs a volume_size of at least {least} GB, not {size or 'none'}.")
    return image


def _check_bootable(state: VolumeState) -> None:
    if not state.bootable:
        raise Refused(400, f"Block Device {state.id} is not bootable.")


def _image_in(state: VolumeState) -> Image | None:
    """Return the image that the volume was made of, by the volume's metadata."""
    about = state.image_metadata
    if not about:
        return None
    return Image(
        id=about.get("image_id", ""),
        min_ram=_number(about.get("min_ram")),
        disk_format=about.get("disk_format"),
        properties=about,
    )


def _number(text: str | None) -> int:
    """Return the number; 0 if an owner has overwritten it (os-set_image_metadata)."""
    return int(text) if text is not None and text.isdecimal() else 0


async def _check_type(requester: Requester, name: str) -> None:
    try:
        if name:
            await requester.services.volumes.types.find(requester.caller, name)
    except Refused as why:
        raise Refused(400, why.message) from None


def _wanted(device: Device, taken: set[str]) -> WantedVolume:
    source = device["source_type"]
    name = ROOT if is_root(device) else device.get("device_name") or free_device(taken, ROOT)
    taken.add(name)
    named: dict[str, str] = {} if source == "blank" else {f"{source}_id": device["uuid"]}
    return WantedVolume(
        **named,
        size=_size(device) if source != "volume" else None,
        type=device.get("volume_type") or "",
        is_root=is_root(device),
        device=name,
        tag=device.get("tag"),
        delete_on_termination=is_true(device.get("delete_on_termination", False)),
    )


def _size(device: Device) -> int | None:
    size = device.get("volume_size")
    return int(size) if size else None
