"""The images of a new cloud: small, public, and made once; one that was deleted does not come back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from kilonova.schema.tables.image import image_seeds, images
from kilonova.services.image.files import BATCH, Facts, ImageFiles
from kilonova.services.image.image import ACTIVE, HASH_ALGORITHM, PUBLIC, Image
from kilonova.services.image.inspection import QCOW2, inspect
from kilonova.services.image.records import insert_image
from kilonova.store import rows
from kilonova.threads import FILES
from kilonova.world import Clock, Store, Tx

NAMES = ("cirros-sim", "cirros-sim-alt")
SECTOR, SECTORS = 512, 8
LARGEST = 1024**4  # bytes, of a disk
_SPACE = uuid.UUID("6b696c6f-6e6f-5661-a000-696d61676573")


def id_of(name: str) -> str:
    return str(uuid.uuid5(_SPACE, name))


IDS = frozenset(id_of(name) for name in NAMES)


async def plant(control: Store, clock: Clock, files: ImageFiles, owner: str) -> None:
    """Create the seed images, at every start. Their bytes follow from their names, so each API host of a fleet has the
    files."""
    for name in NAMES:
        if await _is_needed(control, files, name):
            facts = await _write(files, id_of(name), [disk_of(name)])
            await _record(control, clock, owner, name, facts, "raw", facts.size)


async def plant_file(control: Store, clock: Clock, files: ImageFiles, owner: str, path: Path) -> None:
    """Create an image that real guests boot from, if its file exists; it has the file's name."""
    name = path.stem
    if not await FILES.run(path.is_file) or not await _is_needed(control, files, name):
        return
    size = await FILES.run(inspect, path, QCOW2, LARGEST)
    assert size is not None
    facts = await _write(files, id_of(name), await FILES.run(_pieces, path))
    await _record(control, clock, owner, name, facts, QCOW2, size)


def _pieces(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return list(iter(lambda: file.read(BATCH), b""))


async def _is_needed(control: Store, files: ImageFiles, name: str) -> bool:
    """Return True if the image was never planted, or if it was and its record exists but its file does not."""
    image_id = id_of(name)

    async def look(tx: Tx) -> tuple[bool, bool]:
        planted = await rows.fetch(tx, image_seeds, name=name) is not None
        return planted, await rows.fetch(tx, images, id=image_id, file=image_id) is not None

    was_planted, is_there = await control.read(look)
    return not was_planted or (is_there and image_id not in await files.names())


async def _record(
    control: Store, clock: Clock, owner: str, name: str, facts: Facts, disk_format: str, virtual_size: int
) -> None:
    image_id, now = id_of(name), clock.now()
    image = Image(
        id=image_id,
        name=name,
        status=ACTIVE,
        visibility=PUBLIC,
        owner=owner,
        min_disk=1,
        min_ram=64,
        container_format="bare",
        disk_format=disk_format,
        size=facts.size,
        virtual_size=virtual_size,
        checksum=facts.md5,
        hash_algorithm=HASH_ALGORITHM,
        hash_value=facts.sha512,
        file=image_id,
        created_at=now,
        updated_at=now,
    )

    async def record(tx: Tx) -> None:
        if await rows.put(tx, image_seeds, unless_there=True, name=name, created_at=now):
            await insert_image(tx, image)

    await control.write(record)


async def _write(files: ImageFiles, name: str, content: Iterable[bytes]) -> Facts:
    draft = await files.begin(name, tiny=True)  # a cloud starts on a full disk, too
    try:
        for piece in content:
            await draft.add(piece)
        facts = await draft.finish()
        draft.close()
        return facts
    except BaseException:
        await draft.abandon()
        raise


def disk_of(name: str) -> bytes:
    """Return a raw disk that says what it is: a boot sector with a sentence and its signature, then empty sectors."""
    sentence = f"{name}: a disk of Kilonova's simulated guests\n".encode()
    return sentence.ljust(SECTOR - 2, b"\0") + b"\x55\xaa" + bytes(SECTOR * (SECTORS - 1))
