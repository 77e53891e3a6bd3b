"""The rows of volumes, snapshots and attachments: read with what belongs to them, written in one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Table, bindparam, func, or_, select

from kilonova.domain.caller import Caller
from kilonova.domain.json import json_object
from kilonova.records.kinds import Kind
from kilonova.records.structs import struct_of
from kilonova.schema.tables.volume import (
    attachments,
    snapshots,
    volume_files_to_remove,
    volume_metadata,
    volume_types,
    volumes,
)
from kilonova.services.volume.listing import SNAPSHOT, VOLUME
from kilonova.services.volume.volume import (
    CREATE,
    IMAGE,
    USER,
    Attachment,
    Snapshot,
    Volume,
    file_of,
    no_such_attachment,
)
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Row, Tx

R = TypeVar("R", Volume, Snapshot)
_FLAGS = frozenset({"bootable", "multiattach", "readonly", "goes_with_server"})
_VOLUMES = Sql(select(volumes).where(in_list(volumes.c.id, "ids")))
_METADATA = Sql(select(volume_metadata).where(in_list(volume_metadata.c.record_id, "things")))
_ATTACHMENTS = Sql(
    select(attachments).where(in_list(attachments.c.volume_id, "volumes")).order_by(attachments.c.created_at)
)
_TYPES = Sql(select(volume_types.c.id, volume_types.c.name).where(in_list(volume_types.c.id, "types")))
_ADD_METADATA = Sql(insert_row(volume_metadata))
_SOURCE: Any = bindparam("source")
_COPIES = Sql(
    select(func.count().label("copies")).where(
        volumes.c.work == CREATE, or_(volumes.c.snapshot_id == _SOURCE, volumes.c.source_id == _SOURCE)
    )
)


async def fetch_volumes(tx: Tx, ids: Iterable[str]) -> dict[str, Volume]:
    """Return the volumes that exist, by id."""
    volume_rows = await tx.all(_VOLUMES, ids=sorted(set(ids)))
    return {volume.id: volume for volume in await whole_volumes(tx, volume_rows)}


async def whole_volumes(tx: Tx, volume_rows: Sequence[Row]) -> list[Volume]:
    """Return volumes with metadata, attachments and type names: three statements for any number of volumes."""
    if not volume_rows:
        return []
    ids = [row["id"] for row in volume_rows]
    metadata = await _metadata(tx, ids)
    attached: dict[str, list[Attachment]] = {}
    for row in await tx.all(_ATTACHMENTS, volumes=ids):
        attached.setdefault(row["volume_id"], []).append(attachment_of(row))
    types = await tx.all(_TYPES, types=sorted({row["type_id"] for row in volume_rows}))
    names = {row["id"]: row["name"] for row in types}
    return [
        struct_of(
            Volume,
            row,
            row.keys(),
            _FLAGS,
            metadata=metadata.get((row["id"], USER), {}),
            image_metadata=metadata.get((row["id"], IMAGE), {}),
            type_name=names.get(row["type_id"], ""),
            attachments=tuple(attached.get(row["id"], ())),
        )
        for row in volume_rows
    ]


async def whole_snapshots(tx: Tx, snapshot_rows: Sequence[Row]) -> list[Snapshot]:
    if not snapshot_rows:
        return []
    metadata = await _metadata(tx, [row["id"] for row in snapshot_rows])
    return [
        struct_of(Snapshot, row, row.keys(), _FLAGS, metadata=metadata.get((row["id"], USER), {}))
        for row in snapshot_rows
    ]


class OwnedRows(Generic[R]):
    """The rows of volumes, or of snapshots, with what belongs to them."""

    whole: Callable[[Tx, Sequence[Row]], Awaitable[list[R]]]

    def __init__(self, kind: Kind, whole: Callable[[Tx, Sequence[Row]], Awaitable[list[R]]]) -> None:
        self.kind = kind
        self.whole = whole

    async def fetch(self, tx: Tx, record_id: str, *, lock: bool = False) -> R:
        """Return the whole record. Raise `Refused` if it does not exist."""
        row = await rows.fetch(tx, self.kind.table, lock=lock, id=record_id)
        if row is None:
            raise self.kind.missing(record_id)
        return (await self.whole(tx, [row]))[0]

    async def visible(self, tx: Tx, caller: Caller, record_id: str, *, lock: bool = False) -> R:
        """Return the record; those of others do not exist for the caller."""
        record = await self.fetch(tx, record_id, lock=lock)
        if not record.is_visible_to(caller):
            raise self.kind.missing(record_id)
        return record

    async def change(self, tx: Tx, record: R, values: Mapping[str, object]) -> R:
        await rows.change(tx, self.kind.table, values, id=record.id)
        return await self.fetch(tx, record.id)


VOLUME_ROWS = OwnedRows[Volume](VOLUME, whole_volumes)
SNAPSHOT_ROWS = OwnedRows[Snapshot](SNAPSHOT, whole_snapshots)
fetch_volume, visible_volume, change_volume = VOLUME_ROWS.fetch, VOLUME_ROWS.visible, VOLUME_ROWS.change
fetch_snapshot, visible_snapshot, change_snapshot = SNAPSHOT_ROWS.fetch, SNAPSHOT_ROWS.visible, SNAPSHOT_ROWS.change


async def snapshots_of(tx: Tx, volume_id: str) -> list[Snapshot]:
    return await whole_snapshots(tx, await rows.fetch_all(tx, snapshots, volume_id=volume_id))


async def fetch_attachment(tx: Tx, attachment_id: str) -> Attachment:
    row = await rows.fetch(tx, attachments, id=attachment_id)
    if row is None:
        raise no_such_attachment(attachment_id)
    return attachment_of(row)


def attachment_of(row: Row) -> Attachment:
    return struct_of(Attachment, row, row.keys(), _FLAGS, connector=json_object(row["connector"]))


async def is_being_copied(tx: Tx, record_id: str) -> bool:
    """Return whether a volume is being made from this volume or snapshot."""
    row = await tx.one(_COPIES, source=record_id)
    return row is not None and row["copies"] > 0


async def insert(tx: Tx, table: Table, record: Volume | Snapshot | Attachment) -> None:
    """Insert the record with its metadata."""
    await rows.put_row(tx, table, _columns(table, record))
    for kind, given in _described(record):
        await _add(tx, record.id, kind, given)


async def set_metadata(tx: Tx, record_id: str, kind: str, given: Mapping[str, str]) -> None:
    """Replace all metadata of that kind."""
    await rows.remove(tx, volume_metadata, record_id=record_id, kind=kind)
    await _add(tx, record_id, kind, given)


async def remove_volume(tx: Tx, volume: Volume) -> None:
    """Remove the record; its file must still be removed."""
    await rows.put(tx, volume_files_to_remove, unless_there=True, backend=volume.backend, file=file_of(volume))
    await rows.remove(tx, attachments, volume_id=volume.id)
    await rows.remove(tx, volume_metadata, record_id=volume.id)
    await rows.remove(tx, volumes, id=volume.id)


async def remove_snapshot(tx: Tx, snapshot: Snapshot) -> None:
    """Remove the record; its file must still be removed."""
    await rows.put(tx, volume_files_to_remove, unless_there=True, backend=snapshot.backend, file=file_of(snapshot))
    await rows.remove(tx, volume_metadata, record_id=snapshot.id)
    await rows.remove(tx, snapshots, id=snapshot.id)


async def _metadata(tx: Tx, ids: Iterable[str]) -> dict[tuple[str, str], dict[str, str]]:
    metadata: dict[tuple[str, str], dict[str, str]] = {}
    for row in await tx.all(_METADATA, things=list(ids)):
        metadata.setdefault((row["record_id"], row["kind"]), {})[row["name"]] = row["value"]
    return metadata


async def _add(tx: Tx, record_id: str, kind: str, given: Mapping[str, str]) -> None:
    if given:
        named = [{"record_id": record_id, "kind": kind, "name": name, "value": value} for name, value in given.items()]
        await tx.many(_ADD_METADATA, named)


def _described(record: Volume | Snapshot | Attachment) -> list[tuple[str, Mapping[str, str]]]:
    if isinstance(record, Attachment):
        return []
    return [(USER, record.metadata), *([(IMAGE, record.image_metadata)] if isinstance(record, Volume) else [])]


def _columns(table: Table, record: Volume | Snapshot | Attachment) -> dict[str, object]:
    values = {column.name: getattr(record, column.name) for column in table.columns}
    if isinstance(record, Attachment):
        values["connector"] = msgspec.json.encode(record.connector).decode()
    return {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
