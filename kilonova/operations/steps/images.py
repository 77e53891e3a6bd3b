"""Steps about images that are made of servers. They are records of control; the id that the operation gave its image
fences every write (services/image/servers.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kilonova.domain.errors import Failed
from kilonova.domain.params import ImageParams, Params
from kilonova.engine.context import AnyContext, Context
from kilonova.operations.facts import DeleteFacts, SnapshotFacts
from kilonova.operations.steps.fenced import fence_of
from kilonova.operations.steps.volumes import service_of as volumes_of
from kilonova.world import SnapshotImages

ImageContext = Context[SnapshotFacts, ImageParams]


async def create_image(ctx: ImageContext) -> None:
    """Create the image's record. The API has created it already, unless it died after accepting the request."""
    await service_of(ctx).create(ctx.params.image)


async def discard_image(ctx: ImageContext) -> None:
    ctx.facts.image_stays = not await service_of(ctx).discard(ctx.facts.snapshot_image)


async def discard_images(ctx: Context[DeleteFacts, Params]) -> None:
    """Discard the unfinished images of a deleted server; active ones stay."""
    for image, snapshots in ctx.facts.images:
        await drop_snapshots_of(ctx, image, snapshots)


async def drop_snapshots_of(ctx: AnyContext, image: str, snapshots: Sequence[str]) -> None:
    """Discard the image, then its snapshots: an image that is active by now needs them, a discarded one never becomes
    active."""
    if await service_of(ctx).discard(image):
        for snapshot in snapshots:
            await volumes_of(ctx).drop_snapshot(fence_of(ctx), snapshot_id=snapshot)


def images_begun(facts: Iterable[SnapshotFacts]) -> list[tuple[str, list[str]]]:
    """The images that operations with these facts have begun, each with the snapshots of volumes that it names."""
    begun = [one for one in facts if one.snapshot_image]
    return [(one.snapshot_image, [snap.snapshot for snap in one.snapshots]) for one in begun]


async def require_wanted(ctx: ImageContext) -> None:
    if await service_of(ctx).status(ctx.facts.snapshot_image) is None:
        raise image_gone(ctx)


def image_gone(ctx: ImageContext) -> Failed:
    text = f"image {ctx.facts.snapshot_image}: it was deleted while it was being created"
    return Failed("image_gone", text, final=True)


def service_of(ctx: AnyContext) -> SnapshotImages:
    if ctx.world.image is None:
        raise RuntimeError("this role has no image service")
    return ctx.world.image
