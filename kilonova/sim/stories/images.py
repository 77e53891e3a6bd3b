"""The requests of a script about images of servers, and the pending response of every request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.operations.snapshot import submit_snapshot
from kilonova.services.image.image import ACTIVE
from kilonova.services.image.quotas import ImageQuotas
from kilonova.services.image.records import fetch_image
from kilonova.services.image.service import Images
from kilonova.sim.lab.network import PROJECT
from kilonova.sim.lab.stock import OWNER
from kilonova.sim.lab.uploads import image_params

if TYPE_CHECKING:
    from kilonova.sim.stories.player import StoryPlayer
    from kilonova.sim.stories.trouble import StoryCloud


@dataclass
class PendingResponse:
    """A pending response of the API. `judge` gets the result or the error and returns what is wrong with it."""

    coming: asyncio.Future[Any]
    judge: Callable[[Any, Exception | None], str | None]


def must_work(result: Any, error: Exception | None) -> str | None:
    return f"it was refused: {error}" if error is not None else None


class ImageRequests:
    """Public methods are verbs."""

    player: StoryPlayer
    cloud: StoryCloud

    def _rebuild_from(self, server: str, image_id: str, requested: JsonObject) -> PendingResponse:
        server_id, cause = self.player.names.server_id(server), self.cloud.cause()

        async def ask(engine: Engine) -> Accepted:
            image = await engine.world.db.control.read(lambda tx: fetch_image(tx, image_id))
            if image is None or image.status != ACTIVE:
                raise Refused("image_not_active", f"image {image_id} is not active")
            about: JsonObject = {
                "image": image.id,
                "image_properties": image.properties,
                "image_marker": image.marker or "",
            }
            given = {key: value for key, value in {**requested, **about}.items() if value is not None}
            return await submit(engine, Ask(kind="rebuild", server_id=server_id, cause=cause, params=given))

        return self._ask(ask)

    def snapshot(self, server: str, name: str, volumes: str = "false") -> PendingResponse:
        """createImage; `volumes`: of a server that boots from one."""
        kind = "snapshot_volumes" if either(volumes, "true", "false") else "snapshot"
        image_id, server_id = self.player.names.server_id(f"image {name}"), self.player.names.server_id(server)
        self.player.names.rename(image_id, name)
        self.player.snapshots[name] = image_id
        params = image_params(image_id, name, server_id)
        ask = Ask(kind=kind, server_id=server_id, cause=self.cloud.cause(), params=params)
        return self._ask(lambda engine: submit_snapshot(engine, ask))

    def delete_image(self, name: str) -> PendingResponse:
        """Delete an image as its owner, in any state."""
        image_id = self.player.snapshots[name]

        async def ask(engine: Engine) -> None:
            await Images(engine.world.db.control, engine.world.clock, engine.world.ids, self.cloud.directory).delete(
                OWNER, image_id, lambda image: None
            )

        return self._ask(ask)

    def image_quota(self, bytes: int) -> PendingResponse:
        """Set the number of bytes of images that the project may have."""
        return self._ask(lambda engine: ImageQuotas(engine.world.db.control).set(PROJECT, bytes))

    def _ask(
        self,
        work: Callable[[Engine], Awaitable[Any]],
        judge: Callable[[Any, Exception | None], str | None] = must_work,
    ) -> PendingResponse:
        return PendingResponse(self.cloud.ask(work), judge)


def either(text: str, yes: str, no: str) -> bool:
    if text not in (yes, no):
        raise ValueError(f"expected {yes} or {no}, not {text!r}")
    return text == yes
