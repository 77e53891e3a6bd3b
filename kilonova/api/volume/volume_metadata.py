"""/volumes/{volume}/metadata and /snapshots/{snapshot}/metadata: the owner's keys and values."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.snapshots import snapshot_of
from kilonova.api.volume.volumes import volume_of
from kilonova.api.volume.wishes import no_such_key, without
from kilonova.domain.errors import Refused
from kilonova.services.volume.volume import USER, Snapshot, Volume

Edit = Callable[[dict[str, str]], dict[str, str]]


class Metadata:
    """The routes of one noun. Of a volume the answer has an ETag from 3.15 on, so that two who change it do not
    overwrite each other."""

    def __init__(self, noun: str, find: Callable[[Call], Awaitable[Volume | Snapshot]]) -> None:
        self._noun, self._find = noun, find
        self._has_tags = noun == "volume"

    async def list_(self, call: Call) -> Response:
        told = {"metadata": (await self._find(call)).metadata}
        headers = {"ETag": _tag(told["metadata"])} if self._has_tags and call.at(3, 15) else None
        return answer(told, headers=headers)

    async def show(self, call: Call) -> Response:
        thing, key = await self._find(call), call.path["key"]
        if key not in thing.metadata:
            raise no_such_key(thing.id, key)
        return answer({"meta": {key: thing.metadata[key]}})

    async def merge(self, call: Call) -> Response:
        given = call.body["metadata"]
        return answer({"metadata": await self._edit(call, lambda old: {**old, **given})})

    async def replace(self, call: Call) -> Response:
        given = call.body["metadata"]
        return answer({"metadata": await self._edit(call, lambda old: dict(given))})

    async def put(self, call: Call) -> Response:
        meta, key = call.body["meta"], call.path["key"]
        if key not in meta or len(meta) > 1:
            raise Refused(400, "Request body and URI mismatch: the body must have the key of the URL and no other.")
        await self._edit(call, lambda old: {**old, **meta})
        return answer({"meta": meta})

    async def remove(self, call: Call) -> Response:
        await self._edit(call, without(call.path["key"], call.path[self._noun]))
        return nothing(200)

    async def _edit(self, call: Call, edit: Edit) -> dict[str, str]:
        thing = await self._find(call)
        if self._has_tags and call.at(3, 15) and call.route.method == "PUT":
            _check_tag(call, thing.metadata)
        if isinstance(thing, Volume):
            return await call.service.volumes.volumes.edit_metadata(call.caller, thing.id, USER, edit)
        return await call.service.volumes.snapshots.edit_metadata(call.caller, thing.id, edit)

    def routes(self) -> list[Route]:
        every = f"/{self._noun}s/{{{self._noun}}}/metadata"
        one, suffix = f"{every}/{{key}}", f"_{self._noun}_metadata"
        # Cinder has no rule of its own for adding to a snapshot's.
        add = "create" if self._noun == "volume" else "update"
        return [
            Route(method="GET", path=every, handler=self.list_, rule=f"volume:get{suffix}"),
            _write("POST", every, self.merge, f"volume:{add}{suffix}", forms.SET_METADATA),
            _write("PUT", every, self.replace, f"volume:update{suffix}", forms.SET_METADATA),
            Route(method="GET", path=one, handler=self.show, rule=f"volume:get{suffix}"),
            _write("PUT", one, self.put, f"volume:update{suffix}", forms.SET_ITEM),
            Route(method="DELETE", path=one, handler=self.remove, rule=f"volume:delete{suffix}"),
        ]


def _write(method: str, path: str, handler: Any, rule: str, body: Any) -> Route:
    return Route(method=method, path=path, handler=handler, rule=rule, body=body)


def _tag(metadata: dict[str, str]) -> str:
    return hashlib.md5(msgspec.json.encode(metadata, order="sorted"), usedforsecurity=False).hexdigest()


def _check_tag(call: Call, metadata: dict[str, str]) -> None:
    wanted = [tag.strip().strip('"') for tag in call.request.headers.get("if-match", "").split(",") if tag.strip()]
    if wanted and "*" not in wanted and _tag(metadata) not in wanted:
        raise Refused(412, "The metadata was modified concurrently; read it again and retry.")


ROUTES = [*Metadata("volume", volume_of).routes(), *Metadata("snapshot", snapshot_of).routes()]
