"""Tasks on files that old records still ask for are ended, never done (law 15).

A restored record may say that a volume is being made or an image uploaded, although that ended long ago and the owner
has written to the file since: to make it again would overwrite it, to clean up would remove it. So each such volume and
snapshot is set to `error` with the reason, and its file stays. Only extending a volume goes on: a file is never made
shorter, and none of its bytes change. Images are `queued` again, and the next start moves their files to `lost+found`.
"""

from __future__ import annotations

from sqlalchemy import delete, select

from kilonova.schema.tables.image import image_files_to_remove, images
from kilonova.schema.tables.volume import snapshots, volume_files_to_remove, volumes
from kilonova.services.image.image import QUEUED, SAVING
from kilonova.services.volume.volume import (
    AVAILABLE,
    CREATE,
    DELETE,
    ERROR,
    EXTEND,
    NO_WORK,
    REIMAGE,
    RESTORING,
    REVERT,
    UNDER_WAY,
    UPLOAD,
)
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_CHECK = "its file was left as it is; check it, then reset the state, or delete the"
_ADVICE = {
    CREATE: _CHECK,
    REVERT: _CHECK,
    REIMAGE: _CHECK,
    DELETE: "its file was left as it is; if it is still unwanted, delete the",
}
_VOLUMES = Sql(select(volumes).where(volumes.c.work != "", volumes.c.work != EXTEND).order_by(volumes.c.id))
_SNAPSHOTS = Sql(select(snapshots).where(snapshots.c.work != "").order_by(snapshots.c.id))
_UPLOADS = Sql(select(images.c.id, images.c.file).where(images.c.status == SAVING).order_by(images.c.id))
# Their files are in no record then, and go to lost+found.
_NOTES = (Sql(delete(volume_files_to_remove)), Sql(delete(image_files_to_remove)))


async def end_file_work(tx: Tx, now: float) -> list[str]:
    """Return a sentence for each volume, snapshot and image in control whose work was ended. Repeating it is
    harmless."""
    ended = [await _end_volume(tx, row, now) for row in await tx.all(_VOLUMES)]
    ended += [await _end_snapshot(tx, row, now) for row in await tx.all(_SNAPSHOTS)]
    ended += [await _end_upload(tx, row, now) for row in await tx.all(_UPLOADS)]
    for forget in _NOTES:
        await tx.run(forget)
    return ended


async def _end_volume(tx: Tx, row: Row, now: float) -> str:
    work, status = row["work"], row["status"]
    if work == UPLOAD:  # it was only read
        new = row["previous_status"] or AVAILABLE
        reason = f"Its upload to image {row['work_value']} was ended: the records were restored"
    else:
        new, reason = ERROR, _reason("volume", work)
    if status != UNDER_WAY[work]:  # an administrator's later change stays
        new = status
    if work == REVERT:  # the snapshot itself was only read
        await rows.change(tx, snapshots, {"status": AVAILABLE}, id=row["work_value"], status=RESTORING)
    values: dict[str, object] = {"status": new, "reason": reason, "previous_status": "", "updated_at": now}
    await rows.change(tx, volumes, values | NO_WORK, id=row["id"])
    return f"volume {row['id']}: {work} was under way; ended, the volume is {new}"


async def _end_snapshot(tx: Tx, row: Row, now: float) -> str:
    work = row["work"]
    values = {"status": ERROR, "reason": _reason("snapshot", work), "work": "", "work_id": "", "updated_at": now}
    await rows.change(tx, snapshots, values, id=row["id"])
    return f"snapshot {row['id']}: {work} was under way; ended, the snapshot is {ERROR}"


def _reason(record: str, work: str) -> str:
    return f"Its {work} was under way when the records were restored from a backup; {_ADVICE[work]} {record}"


async def _end_upload(tx: Tx, row: Row, now: float) -> str:
    await rows.change(tx, images, {"status": QUEUED, "file": None, "updated_at": now}, id=row["id"])
    text = f"image {row['id']}: an upload was under way; ended, the image is {QUEUED}"
    return f"{text}; if its file {row['file']} is complete, the next start moves it to lost+found"
