"""Images, with bytes or still without."""

from __future__ import annotations

from typing import Any

from tests.support.people import Person
from tests.support.things.making import Maker, Where, World

IMAGES = "/image/v2/images"
FORMATS = {"disk_format": "raw", "container_format": "bare"}
BYTES = {"content-type": "application/octet-stream"}


def new_image(world: World, who: Person, *, empty: bool = False, **more: Any) -> str:
    made: str = who.done("POST", IMAGES, {"name": world.name("image"), **FORMATS, **more})["id"]
    if not empty:
        who.done("PUT", f"{IMAGES}/{made}/file", b"0123456789", BYTES)
    return made


def image(world: World, where: Where) -> str:
    """For an upload one that has no bytes yet."""
    is_upload = where.entry.route.method == "PUT" and where.entry.route.path.endswith("/file")
    return new_image(world, world.owner, empty=is_upload, tags=["blue"])


def member(world: World, where: Where) -> str:
    with_ = world.admin.project_id
    world.owner.done("POST", f"{IMAGES}/{where.before('/v2/images/{image}')}/members", {"member": with_})
    return with_


MAKERS: dict[str, Maker] = {
    "/v2/images/{image}": image,
    "/v2/images/{image}/tags/{tag}": lambda world, where: "blue",
    "/v2/images/{image}/members/{member}": member,
    "/v2/schemas/{schema}": lambda world, where: "image",
}
