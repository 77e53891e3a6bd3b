"""Steps about images that are made of servers. They are records of control; the id that the operation gave its image
fences every write (services/image/servers.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kilonova.domain.errors import Failed
from kilonova.engine.context import Context
from kilonova.engine.model import Facts, StepTargets, Target
from kilonova.operations.steps.volumes import fence_of
from kilonova.operations.steps.volumes import service_of as volumes_of
from kilonova.world import SnapshotImages

WITH_IMAGES = StepTargets("control", lambda facts: [Target("")] if facts.get("images") else [])


async def create_image(ctx: Context) -> Facts:
    """The API has made it already, unless it died after it accepted the request."""
    await service_of(ctx).create(ctx.params["image"])
    return {}


async def discard_image(ctx: Context) -> Facts:
    return {"image_stays": not await service_of(ctx).discard(ctx.facts["snapshot_image"])}


async def discard_images(ctx: Context) -> Facts:
    """Discard the unfinished images of a deleted server; active ones stay."""
    for image, snapshots in ctx.facts["images"]:
        await drop_snapshots_of(ctx, image, snapshots)
    return {}


async def drop_snapshots_of(ctx: Context, image: str, snapshots: Sequence[str]) -> None:
    """The image first: one that is active by now needs them, and one that is discarded never becomes active."""
    if await service_of(ctx).discard(image):
        for snapshot in snapshots:
            await volumes_of(ctx).drop_snapshot(fence_of(ctx), snapshot_id=snapshot)


def images_begun(facts: Iterable[Facts]) -> list[list[Any]]:
    """The images that operations with these facts have begun, each with the snapshots of volumes that it names."""
    begun = [one for one in facts if "snapshot_image" in one]
    return [[one["snapshot_image"], [snap["snapshot"] for snap in one.get("snapshots", ())]] for one in begun]


async def require_wanted(ctx: Context) -> None:
    if await service_of(ctx).status(ctx.facts["snapshot_image"]) is None:
        raise image_gone(ctx)


def image_gone(ctx: Context) -> Failed:
    text = f"image {ctx.facts['snapshot_image']}: it was deleted while it was being created"
    return Failed("image_gone", text, final=True)


def service_of(ctx: Context) -> SnapshotImages:
    if ctx.world.image is None:
        raise RuntimeError("this role has no image service")
    return ctx.world.image
