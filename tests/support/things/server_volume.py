"""Volumes that a server has, and volumes and snapshots under the names that Compute once had for them."""

from __future__ import annotations

from tests.support.things import volume
from tests.support.things.compute import COMPUTE, SERVER
from tests.support.things.making import Maker, Where, World

ATTACHED = f"{SERVER}/os-volume_attachments/{{volume}}"


def attached(world: World, where: Where) -> str:
    server, made = where.before(SERVER), volume.new_volume(world)
    body = {"volumeAttachment": {"volumeId": made}}
    world.owner.done("POST", f"{COMPUTE}/servers/{server}/os-volume_attachments", body)
    status = lambda: world.owner.done("GET", f"{volume.V3}/volumes/{made}")["volume"]["status"]  # noqa: E731
    world.owner.cloud.until(lambda: status() == "in-use", f"volume {made} is in use")
    return made


MAKERS: dict[str, Maker] = {
    ATTACHED: attached,
    "/os-volumes/{volume}": lambda world, where: volume.new_volume(world),
    "/os-snapshots/{snapshot}": lambda world, where: volume.new_snapshot(world),
}
