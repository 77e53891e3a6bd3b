"""The block devices that an image names for the servers made from it: snapshots of volumes, as createImage records them
for a server that boots from a volume. They are image properties, which an owner can edit, so all of them are
checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kilonova.domain.flags import is_true
from kilonova.operations.create.devices import Device, SentDevice, completed, is_root, newer, wrong

MAPPING, NEWER = "block_device_mapping", "bdm_v2"
MOST = 100  # devices
ShortText = Annotated[str, Meta(max_length=255)]


class ImageDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device of an image, in the newer form. Fields for hypervisors of other clouds are ignored."""

    source_type: Literal["volume", "image", "snapshot", "blank"]
    destination_type: Literal["local", "volume"] | None = None
    snapshot_id: ShortText | None = None
    volume_id: ShortText | None = None
    image_id: ShortText | None = None
    volume_size: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    volume_type: ShortText | None = None
    device_name: ShortText | None = None
    boot_index: Annotated[int, Meta(ge=-1, le=1000)] | None = None
    delete_on_termination: bool = False
    guest_format: ShortText | None = None
    no_device: bool | None = None
    tag: ShortText | None = None

    def device(self) -> SentDevice:
        named = {"snapshot": self.snapshot_id, "volume": self.volume_id, "image": self.image_id}.get(self.source_type)
        fields = msgspec.to_builtins(self)
        set_fields = {name: value for name, value in fields.items() if value is not None and not name.endswith("_id")}
        return {**set_fields, **({"uuid": named} if named else {})}


class OldImageDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    virtual_name: ShortText = ""
    snapshot_id: ShortText | None = None
    volume_id: ShortText | None = None
    volume_size: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    device_name: ShortText | None = None
    delete_on_termination: bool = False
    no_device: bool | None = None


def devices_in(properties: Mapping[str, str], image: str) -> list[Device]:
    """Return the devices of the image. Raise `Refused` for any that cannot be understood."""
    if not properties.get(MAPPING):
        return []
    is_newer = is_true(properties.get(NEWER, ""))
    form: Any = ImageDevice if is_newer else OldImageDevice
    try:
        devices = msgspec.json.decode(properties[MAPPING], type=Annotated[list[form], Meta(max_length=MOST)])
    except msgspec.MsgspecError as why:
        raise wrong(f"property {MAPPING} of image {image}: {why}") from None
    present = [one for one in devices if not one.no_device]
    if is_newer:
        return [completed(one.device(), image) for one in present]
    return [newer({key: value for key, value in msgspec.to_builtins(one).items() if value}) for one in present]


def merged(own: Sequence[Device], of_image: Sequence[Device]) -> list[Device]:
    """Merge the devices; those of the request win. Clients name the image as the root disk by habit, also where the
    image names another."""
    if any(is_root(device) for device in of_image):
        own = [device for device in own if not (is_root(device) and device["source_type"] == "image")]
    names = {device["device_name"] for device in own if device.get("device_name")}
    has_root = any(is_root(device) for device in own)
    remaining = [one for one in of_image if one.get("device_name") not in names and not (has_root and is_root(one))]
    return [*own, *remaining]
