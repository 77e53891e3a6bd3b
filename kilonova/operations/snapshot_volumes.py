"""Snapshot of a server that boots from a volume (createImage): its volumes are snapshotted, and the image names them.

create_image: a queued image of the server's project -> snapshot_volumes: of each attached volume
  -> await_snapshots -> name_snapshots: the image is active, without bytes. A server that is made from it gets volumes
  that are made from these snapshots.
Each volume is snapshotted as it is, one after the other, while the guest runs. A failure deletes snapshots and image.
"""

from __future__ import annotations

import uuid

from kilonova.domain.errors import Failed, NotYet, Refused
from kilonova.domain.json import JsonObject, as_text
from kilonova.domain.params import ImageParams
from kilonova.domain.server import ACTIVE, STOPPED, to_json
from kilonova.domain.volume import ServerVolume, SnapshotState
from kilonova.engine.context import Subject
from kilonova.engine.course import Problem
from kilonova.engine.model import CONTROL, Operation, Step
from kilonova.operations.facts import SnapshotFacts, VolumeSnapshot
from kilonova.operations.snapshot import NOT_CREATED, image_message
from kilonova.operations.steps.fenced import fence_of
from kilonova.operations.steps.images import (
    ImageContext,
    create_image,
    discard_image,
    drop_snapshots_of,
    image_gone,
    require_wanted,
    service_of,
)
from kilonova.operations.steps.outlook import DiskFate, outlook
from kilonova.operations.steps.volumes import service_of as volumes_of

LOOKED_AT_AGAIN = 0.5  # seconds


async def snapshot_volumes(ctx: ImageContext) -> None:
    name = f"snapshot for {as_text(ctx.params.image['name'])}"
    for one in ctx.facts.snapshots:
        await volumes_of(ctx).snapshot(
            fence_of(ctx),
            snapshot_id=one.snapshot,
            attachment_id=one.attachment,
            name=name[:255],
            user_id=ctx.cause.user_id,
        )


async def drop_snapshots(ctx: ImageContext) -> None:
    await drop_snapshots_of(ctx, ctx.facts.snapshot_image, [one.snapshot for one in ctx.facts.snapshots])


async def await_snapshots(ctx: ImageContext) -> None:
    """Note how large each is."""
    await require_wanted(ctx)
    states = [await _state(ctx, one.snapshot) for one in ctx.facts.snapshots]
    ctx.facts.sizes = [state.size for state in states]


async def _state(ctx: ImageContext, snapshot_id: str) -> SnapshotState:
    state = await volumes_of(ctx).snapshot_state(snapshot_id)
    if state is None:
        raise Failed("volume_failed", f"snapshot {snapshot_id}: it was deleted while it was being made", final=True)
    if state.is_broken:
        raise Failed("volume_failed", f"snapshot {snapshot_id}: {state.reason}", final=True)
    if not state.is_settled:
        raise NotYet(f"snapshot {snapshot_id}, which is {state.status}", LOOKED_AT_AGAIN)
    return state


async def name_snapshots(ctx: ImageContext) -> None:
    facts = ctx.facts
    mapping = [_device(one, size) for one, size in zip(facts.snapshots, facts.sizes, strict=True)]
    properties = {
        "block_device_mapping": to_json(mapping),
        "bdm_v2": "True",
        "root_device_name": next(one.device for one in facts.snapshots if one.is_root),
    }
    if not await service_of(ctx).activate_empty(facts.snapshot_image, properties):
        raise image_gone(ctx)


def _device(one: VolumeSnapshot, size: int) -> JsonObject:
    """Return the snapshot in the API's form for a device of a new server."""
    return {
        "source_type": "snapshot",
        "destination_type": "volume",
        "snapshot_id": one.snapshot,
        "volume_size": size,
        "device_name": one.device,
        "boot_index": 0 if one.is_root else None,
        "delete_on_termination": one.goes,
        "device_type": "disk",
        "disk_bus": "virtio",
        "guest_format": None,
        "image_id": None,
        "volume_id": None,
        "volume_type": None,
        "no_device": None,
        "tag": one.tag,
    }


class SnapshotVolumes(Operation[SnapshotFacts, ImageParams]):
    facts_type = SnapshotFacts
    params_type = ImageParams
    name = "snapshot_volumes"
    action = "createImage"
    task_state = "image_snapshot"
    from_states = frozenset({ACTIVE, STOPPED})
    safe_message = NOT_CREATED

    def message_for(self, problem: Problem) -> str:
        return image_message(problem)

    def check(self, subject: Subject[ImageParams]) -> SnapshotFacts:
        server, image = subject.server, as_text(subject.params.image["id"])
        assert server is not None
        volumes = [one for one in server.volumes if one.attachment_id]
        if not any(one.is_root for one in volumes):
            raise Refused("not_volume_backed", f"Instance {server.id} does not boot from a volume")
        return SnapshotFacts(snapshot_image=image, snapshots=[_planned(image, one) for one in volumes])

    def outlook(self, subject: Subject[ImageParams], facts: SnapshotFacts) -> JsonObject:
        disks: list[DiskFate] = [
            {"disk": one.device, "fate": "kept", "volume": one.volume, "snapshot": one.snapshot}
            for one in facts.snapshots
        ]
        server = subject.server
        assert server is not None
        return {**outlook(server.host, server.vm_state, disks), "image": subject.params.image}

    steps = [
        Step("create_image", create_image, on=CONTROL, undo=discard_image, only_rows=True),
        Step("snapshot_volumes", snapshot_volumes, on=CONTROL, undo=drop_snapshots, event="api_snapshot_instance"),
        Step("await_snapshots", await_snapshots, on=CONTROL, event="api_snapshot_instance"),
        Step("name_snapshots", name_snapshots, on=CONTROL, event="api_snapshot_instance"),
    ]


def _planned(image: str, one: ServerVolume) -> VolumeSnapshot:
    """Plan a snapshot. Its id is derived from image and volume, so that another worker finds what was begun."""
    return VolumeSnapshot(
        snapshot=str(uuid.uuid5(uuid.UUID(image), one.volume_id)),
        attachment=one.attachment_id,
        volume=one.volume_id,
        device=one.device,
        is_root=one.is_root,
        goes=one.delete_on_termination,
        tag=one.tag,
    )
