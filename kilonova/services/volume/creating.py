"""A new volume: what it is made from, whether that can be, and its record. Its backend makes the file."""

from __future__ import annotations

import math

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import volume_types, volumes
from kilonova.services.image.image import ACTIVE, Image
from kilonova.services.image.inspection import QCOW2
from kilonova.services.volume.context import VolumeContext
from kilonova.services.volume.files import PLAIN_FORMATS
from kilonova.services.volume.quotas import GIGABYTES, VOLUMES
from kilonova.services.volume.records import fetch_volume, insert, visible_snapshot, visible_volume
from kilonova.services.volume.volume import (
    AVAILABLE,
    CREATE,
    IN_USE,
    ZONE,
    Snapshot,
    Volume,
    VolumeType,
    bad_input,
    bad_snapshot,
    require_status,
)
from kilonova.store.statements import Sql
from kilonova.world import Tx

GIBIBYTE = 1024**3
FORMATS = (*PLAIN_FORMATS, QCOW2)
_HOLD_TYPE = Sql(select(volume_types.c.id).where(volume_types.c.id == bindparam("id")).with_for_update(read=True))


class NewVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a new volume. At most one source."""

    size: int | None = None  # GB; None: as large as its source
    name: str | None = None
    description: str | None = None
    type: str = ""  # name or id; empty: the source's, else the default
    zone: str = ""
    metadata: dict[str, str] = {}
    snapshot_id: str = ""
    source_id: str = ""
    image: Image | None = None
    created_for: str | None = None
    created_slot: int | None = None
    goes_with_server: bool = False


class _VolumeSource(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the record of a new volume takes from its source."""

    size: int | None = None
    type_id: str = ""
    backend: str = ""  # empty: any
    snapshot_id: str | None = None
    source_id: str | None = None
    image_id: str | None = None
    marker: str = ""
    bootable: bool = False
    image_metadata: dict[str, str] = {}


async def create_volume(
    tx: Tx, context: VolumeContext, caller: Caller, new: NewVolume, volume_id: str, work_id: str
) -> Volume:
    """Insert a volume. Raise `Refused` if the request is invalid, before any write, or if it exceeds the quota, after
    which the caller's transaction is rolled back."""
    _check_sources(new)
    if new.zone and new.zone != ZONE:
        raise bad_input(f"Availability zone '{new.zone}' is invalid.")
    source = await _source(tx, caller, new)
    of_type = await _type(tx, context, caller, new.type or source.type_id)
    size = _size(new, source)
    backend = source.backend or await context.backends.choose(tx)
    await context.quotas.check_size(tx, caller.project_id, size)
    await tx.one(_HOLD_TYPE, id=of_type.id)  # it cannot be deleted before this volume counts as its user
    volume = Volume(
        id=volume_id,
        project_id=caller.project_id,
        user_id=caller.user_id,
        name=new.name,
        description=new.description,
        size=size,
        type_id=of_type.id,
        multiattach=of_type.is_multiattach,
        metadata=new.metadata,
        work=CREATE,
        work_id=work_id,
        created_for=new.created_for,
        created_slot=new.created_slot,
        goes_with_server=new.goes_with_server,
        created_at=context.clock.now(),
        backend=backend,
        snapshot_id=source.snapshot_id,
        source_id=source.source_id,
        image_id=source.image_id,
        marker=source.marker,
        bootable=source.bootable,
        image_metadata=source.image_metadata,
    )
    await insert(tx, volumes, volume)
    await context.quotas.charge(tx, caller.project_id, of_type.id, {VOLUMES: 1, GIGABYTES: size})
    return await fetch_volume(tx, volume_id)


def _check_sources(new: NewVolume) -> None:
    given = [name for name in ("snapshot_id", "source_id", "image") if getattr(new, name)]
    if len(given) > 1:
        fields = {"source_id": "source_volid", "image": "imageRef"}
        raise bad_input(
            f"A volume is created from one source; {' and '.join(fields.get(name, name) for name in given)} were given."
        )


async def _type(tx: Tx, context: VolumeContext, caller: Caller, name_or_id: str) -> VolumeType:
    if name_or_id:
        return await context.types.visible(tx, caller, name_or_id)
    return await context.types.default_of(tx, caller)


async def _source(tx: Tx, caller: Caller, new: NewVolume) -> _VolumeSource:
    """Return the source, locked so that it stays until this volume's record refers to it."""
    if new.snapshot_id:
        return await _from_snapshot(tx, await visible_snapshot(tx, caller, new.snapshot_id, lock=True))
    if new.source_id:
        return _from_volume(await visible_volume(tx, caller, new.source_id, lock=True))
    return _from_image(new.image) if new.image is not None else _VolumeSource()


async def _from_snapshot(tx: Tx, snapshot: Snapshot) -> _VolumeSource:
    if snapshot.status != AVAILABLE:
        raise bad_snapshot(f"Originating snapshot status must be one of {AVAILABLE} values, not {snapshot.status}.")
    origin = await fetch_volume(tx, snapshot.volume_id)
    return _VolumeSource(
        size=snapshot.size,
        type_id=snapshot.type_id,
        backend=snapshot.backend,
        snapshot_id=snapshot.id,
        marker=snapshot.marker,
        bootable=origin.bootable,
        image_metadata=origin.image_metadata,
    )


def _from_volume(volume: Volume) -> _VolumeSource:
    require_status(volume, (AVAILABLE, IN_USE), "be copied")
    return _VolumeSource(
        size=volume.size,
        type_id=volume.type_id,
        backend=volume.backend,
        source_id=volume.id,
        marker=volume.marker,
        bootable=volume.bootable,
        image_metadata=volume.image_metadata,
    )


def check_image(image: Image, size: int) -> None:
    """Raise `Refused` unless a volume of that size can hold the image."""
    _from_image(image)
    _check_room(image, size)


def _from_image(image: Image) -> _VolumeSource:
    if image.status != ACTIVE:
        raise bad_input(f"Image {image.id} is not active.")
    if image.disk_format not in FORMATS:
        text = f"Image {image.id} is a {image.disk_format}; volumes are made from {', '.join(FORMATS)}: convert it."
        raise bad_input(text)
    image.require_data()
    return _VolumeSource(image_id=image.id, marker=image.content, bootable=True, image_metadata=image_facts(image))


def image_facts(image: Image) -> dict[str, str]:
    """Return the image's attributes that a volume made from it keeps."""
    attributes = {
        "image_id": image.id,
        "image_name": image.name,
        "checksum": image.checksum,
        "container_format": image.container_format,
        "disk_format": image.disk_format,
        "min_disk": image.min_disk,
        "min_ram": image.min_ram,
        "size": image.size,
    }
    return {**image.properties, **{name: str(value) for name, value in attributes.items() if value is not None}}


def _size(new: NewVolume, source: _VolumeSource) -> int:
    size = new.size if new.size is not None else source.size
    if size is None:
        raise bad_input(f"Volume size '{size}' must be an integer and greater than 0")
    if source.size is not None and size < source.size:
        noun = "snapshot" if new.snapshot_id else "source volume"
        raise bad_input(f"Volume size '{size}'GB cannot be smaller than the {noun} size {source.size}GB.")
    if new.image is not None:
        _check_room(new.image, size)
    return size


def _check_room(image: Image, size: int) -> None:
    needed = math.ceil(image.disk_bytes / GIBIBYTE)
    if size < needed:
        raise bad_input(f"Size of specified image {needed}GB is larger than volume size {size}GB.")
    if size < image.min_disk:
        text = f"Volume size {size}GB cannot be smaller than the image minDisk size {image.min_disk}GB."
        raise bad_input(text)


def no_image(image_id: str) -> Refused:
    return Refused("bad_request", f"Invalid image identifier or unable to access requested image: {image_id[:80]}")
