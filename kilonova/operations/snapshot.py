"""Snapshot (createImage): an image of a server's root disk, as it is at one moment. The server goes on as it was.

create_image: a queued image of the server's project -> snapshot_instance: its host keeps a copy of the disk
  -> open_upload: the image is still wanted -> upload_image: the host sends the bytes, with a token of this step
A running guest is not stopped: the image is what a power cut at that moment would have left (crash-consistent).
After a failure, or if the host dies, the image is discarded, unless it is already active: then it belongs to its owner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.image_bytes import UploadOrder
from kilonova.domain.json import JsonObject, as_text
from kilonova.domain.messages import StepResult
from kilonova.domain.params import ImageParams
from kilonova.domain.server import ACTIVE, STOPPED
from kilonova.engine.accept import Accepted, Ask, params_of
from kilonova.engine.context import HostContext, Subject
from kilonova.engine.core import Engine
from kilonova.engine.course import Problem
from kilonova.engine.model import CONTROL, FAIL, UPLOAD_TOKEN, Operation, Step
from kilonova.engine.submit import submit
from kilonova.operations.facts import HERE, SnapshotFacts
from kilonova.operations.steps.images import ImageContext, create_image, discard_image, require_wanted
from kilonova.operations.steps.outlook import DiskFate, outlook, unchanged_volumes
from kilonova.operations.steps.power import its_copy

NOT_CREATED = "The image of the server could not be created; the server is as it was."
LONGEST_UPLOAD = 6 * 3600.0  # seconds


async def submit_snapshot(engine: Engine, ask: Ask) -> Accepted:
    """Accept an operation that makes an image of a server, then record the image, so that it exists when the response
    arrives. If this process dies in between, the operation records it."""
    accepted = await submit(engine, ask)
    if engine.world.image is not None and not accepted.joined:
        await engine.world.image.create(params_of(engine.operation(ask.kind), ask.params).image)
    return accepted


async def take_snapshot(host: HostContext) -> StepResult:
    taken = await host.driver.ensure_snapshot(host.server, host.copy, host.facts.snapshot_image)
    return StepResult(size=taken.size, disk_format=taken.disk_format)


async def drop_snapshot(host: HostContext) -> StepResult:
    await host.driver.ensure_no_snapshot(host.server, host.copy, host.facts.snapshot_image)
    return StepResult()


def snapshot_taken(ctx: ImageContext, result: StepResult) -> None:
    """Record the size and format that the host reports: they are needed again when the bytes are sent."""
    ctx.facts.size, ctx.facts.disk_format = result.size, result.disk_format


async def open_upload(ctx: ImageContext) -> None:
    await require_wanted(ctx)


async def send_image(host: HostContext) -> StepResult:
    """Send the snapshot's bytes to the image service. Afterwards the host needs its copy no more."""
    facts, image = host.facts, host.facts.snapshot_image
    if host.uploads is None:
        raise Failed("no_image_service", f"host {host.host}: it has no way to upload images", final=True)
    order = UploadOrder(image=image, token=host.secrets[UPLOAD_TOKEN], size=facts.size, disk_format=facts.disk_format)

    def content() -> AsyncIterator[bytes]:
        return host.driver.read_snapshot(host.server, host.copy, image)

    await host.uploads.send(order, content)
    return await drop_snapshot(host)


def image_message(problem: Problem) -> str:
    if problem.code == "image_gone":
        return "The image of the server was deleted while it was being created; the server is as it was."
    if problem.code == "image_over_quota":
        return "The image of the server exceeds the image quota of the project; the server is as it was."
    return NOT_CREATED


class CreateImage(Operation[SnapshotFacts, ImageParams]):
    facts_type = SnapshotFacts
    params_type = ImageParams
    name = "snapshot"
    action = "createImage"
    task_state = "image_snapshot_pending"
    from_states = frozenset({ACTIVE, STOPPED})
    safe_message = NOT_CREATED

    def check(self, subject: Subject[ImageParams]) -> SnapshotFacts:
        server = subject.server
        assert server is not None
        if server.details.volume_backed:
            raise Refused("volume_backed", f"Instance {server.id} boots from a volume: use snapshot_volumes")
        here = msgspec.structs.asdict(its_copy(subject))
        return SnapshotFacts(**here, snapshot_image=as_text(subject.params.image["id"]))

    def message_for(self, problem: Problem) -> str:
        return image_message(problem)

    def outlook(self, subject: Subject[ImageParams], facts: SnapshotFacts) -> JsonObject:
        server, image = subject.server, subject.params.image
        assert server is not None
        root: DiskFate = {
            "disk": "root",
            "fate": "kept",
            "uploaded_to_image": image["id"],
            "most_bytes": _most_bytes(subject),
        }
        return {**outlook(facts.host, server.vm_state, [root, *unchanged_volumes(server)]), "image": image}

    steps = [
        Step("create_image", create_image, on=CONTROL, undo=discard_image, only_rows=True),
        Step(
            "snapshot_instance",
            take_snapshot,
            on=HERE,
            undo=drop_snapshot,
            record=snapshot_taken,
            when_silent=FAIL,
            deadline=LONGEST_UPLOAD,
            task_state="image_snapshot",
            event="compute_snapshot_instance",
        ),
        Step(
            "open_upload",
            open_upload,
            on=CONTROL,
            task_state="image_pending_upload",
            event="compute_snapshot_instance",
        ),
        Step(
            "upload_image",
            send_image,
            on=HERE,
            when_silent=FAIL,
            retry=3,
            deadline=LONGEST_UPLOAD,
            tokens=(UPLOAD_TOKEN,),
            task_state="image_uploading",
            event="compute_snapshot_instance",
        ),
    ]


def _most_bytes(subject: Subject[ImageParams]) -> int:
    assert subject.server is not None
    return subject.server.flavor.disk_gb * 1024**3
