"""The images of a new cloud: small, public, and made once; one that was deleted does not come back."""

from __future__ import annotations

import uuid

from kilonova.services.image.files import Facts, Files
from kilonova.services.image.image import ACTIVE, HASH_ALGORITHM, PUBLIC, Image
from kilonova.services.image.records import insert_image
from kilonova.store import rows
from kilonova.store.tables.image import image_seeds, images
from kilonova.world import Clock, Store, Tx

NAMES = ("cirros-sim", "cirros-sim-alt")
SECTOR, SECTORS = 512, 8
_SPACE = uuid.UUID("6b696c6f-6e6f-5661-a000-696d61676573")


def id_of(name: str) -> str:
    return str(uuid.uuid5(_SPACE, name))


IDS = frozenset(id_of(name) for name in NAMES)


async def plant(control: Store, clock: Clock, files: Files, owner: str) -> None:
    """At every start. Their bytes follow from their names, so each API host of a fleet has the files."""
    for name in NAMES:
        await _plant(control, clock, files, owner, name)


async def _plant(control: Store, clock: Clock, files: Files, owner: str, name: str) -> None:
    image_id, now = id_of(name), clock.now()

    async def look(tx: Tx) -> tuple[bool, bool]:
        planted = await rows.fetch(tx, image_seeds, name=name) is not None
        return planted, await rows.fetch(tx, images, id=image_id, file=image_id) is not None

    was_planted, is_there = await control.read(look)
    if was_planted and (not is_there or image_id in await files.names()):
        return
    facts = await _write(files, image_id, disk_of(name))
    image = Image(
        id=image_id,
        name=name,
        status=ACTIVE,
        visibility=PUBLIC,
        owner=owner,
        min_disk=1,
        min_ram=64,
        container_format="bare",
        disk_format="raw",
        size=facts.size,
        virtual_size=facts.size,
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


async def _write(files: Files, name: str, content: bytes) -> Facts:
    draft = await files.begin(name, tiny=True)  # a cloud starts on a full disk, too
    try:
        await draft.add(content)
        facts = await draft.finish()
        draft.close()
        return facts
    except BaseException:
        await draft.abandon()
        raise


def disk_of(name: str) -> bytes:
    """A raw disk that says what it is: a boot sector with a sentence and its signature, then empty sectors."""
    sentence = f"{name}: a disk of Kilonova's simulated guests\n".encode()
    return sentence.ljust(SECTOR - 2, b"\0") + b"\x55\xaa" + bytes(SECTOR * (SECTORS - 1))
