"""The stock of a simulated cloud: volumes, a snapshot to boot from, server groups."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.schema.tables.server_groups import server_groups
from kilonova.services.image.image import ACTIVE, PUBLIC, Image
from kilonova.services.image.records import insert_image
from kilonova.services.volume.creating import NewVolume
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.service import Volumes
from kilonova.services.volume.volume import VolumeType
from kilonova.sim.lab.network import PROJECT
from kilonova.store import rows
from kilonova.world import Store, Tx

OWNER = Caller(user=IdentityRef("demo", "demo"), project=IdentityRef(PROJECT, PROJECT))
BACKEND = "sim"
IMAGES = ("another", "third")  # that a volume can be re-imaged with
SHARED = VolumeType(id="", name="shared", extra_specs={"multiattach": "<is> True"})


class Stock(msgspec.Struct, frozen=True):
    """Ids; volume1 is the first."""

    volumes: list[str] = []
    shared: str = ""  # a volume that several servers may have at once
    snapshot: str = ""  # to boot from


async def lay_volumes(volumes: Volumes, files: NoBytes, count: int) -> Stock:
    await volumes.prepare()
    worker = volumes.worker(files, None)
    await worker.settle()  # it says that it is there
    named = [NewVolume(size=1, name=f"volume{number}") for number in range(1, count + 1)]
    volume_ids = [(await volumes.volumes.create(OWNER, new)).id for new in named]
    await worker.settle()
    if count:
        await volumes.context.control.write(_put_images)
    return Stock(volume_ids)


async def lay_rare_volumes(volumes: Volumes, files: NoBytes, stock: Stock) -> Stock:
    """Create a volume that can be shared, and a snapshot to boot from."""
    worker = volumes.worker(files, None)
    await volumes.types.create(SHARED)
    shared = await volumes.volumes.create(OWNER, NewVolume(size=1, name="shared", type=SHARED.name))
    system = await volumes.volumes.create(OWNER, NewVolume(size=1, name="system"))
    await worker.settle()
    snapshot = await volumes.snapshots.create(OWNER, system.id, metadata={}, name="snapshot")
    await worker.settle()
    return msgspec.structs.replace(stock, shared=shared.id, snapshot=snapshot.id)


async def _put_images(tx: Tx) -> None:
    for name in IMAGES:
        image = Image(
            id=name, name=name, status=ACTIVE, visibility=PUBLIC, owner=PROJECT, disk_format="raw", size=1, file=name
        )
        await insert_image(tx, image)


async def lay_groups(control: Store, policies: Sequence[str]) -> None:
    """Create a group per policy; its id is the policy's name."""
    for policy in policies:
        await put_group(control, policy, policy)


async def put_group(control: Store, name: str, policy: str, most: int | None = None) -> None:
    """Insert a group whose id is its name."""

    async def body(tx: Tx) -> None:
        await rows.put(
            tx,
            server_groups,
            id=name,
            name=name,
            policy=policy,
            max_server_per_host=most,
            created_at=0.0,
            project_id=PROJECT,
            user_id=OWNER.user_id,
        )

    await control.write(body)
