"""/volumes/{volume}/metadata and /snapshots/{snapshot}/metadata: the owner's keys and values."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.collection import EditValues, KeyValues
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.snapshots import snapshot_of
from kilonova.api.volume.volumes import volume_of
from kilonova.api.volume.wishes import no_such_key
from kilonova.domain.errors import Refused
from kilonova.services.volume.volume import Snapshot, Volume


class OwnersMetadata(KeyValues):
    """The metadata of one noun. Of a volume the answer has an ETag from 3.15 on, so that two who change it do not
    overwrite each other."""

    removed = 200
    mismatch = "Request body and URI mismatch: the body must have the key of the URL and no other."

    def __init__(self, noun: str, find: Callable[[Call], Awaitable[Volume | Snapshot]]) -> None:
        self._noun, self._find = noun, find

    def _has_tags(self, call: Call) -> bool:
        return self._noun == "volume" and call.at(3, 15)

    async def read(self, call: Call) -> dict[str, str]:
        return (await self._find(call)).metadata

    async def list_(self, call: Call) -> Response:
        """List the keys with their values."""
        metadata = await self.read(call)
        return answer({self.whole: metadata}, headers={"ETag": _tag(metadata)} if self._has_tags(call) else None)

    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        thing = await self._find(call)
        if self._has_tags(call) and call.route.method == "PUT":
            _check_tag(call, thing.metadata)
        if isinstance(thing, Volume):
            return await call.service.volumes.volumes.edit_metadata(call.caller, thing.id, edit)
        return await call.service.volumes.snapshots.edit_metadata(call.caller, thing.id, edit)

    def missing(self, call: Call) -> Refused:
        return no_such_key(call.path[self._noun], call.path["key"])


def _tag(metadata: dict[str, str]) -> str:
    return hashlib.md5(msgspec.json.encode(metadata, order="sorted"), usedforsecurity=False).hexdigest()


def _check_tag(call: Call, metadata: dict[str, str]) -> None:
    wanted = [tag.strip().strip('"') for tag in call.request.headers.get("if-match", "").split(",") if tag.strip()]
    if wanted and "*" not in wanted and _tag(metadata) not in wanted:
        raise Refused(412, "The metadata was modified concurrently; read it again and retry.")


def _routes(noun: str, find: Callable[[Call], Awaitable[Volume | Snapshot]], add: str) -> list[Route]:
    verbs = {"list": "get", "show": "get", "merge": add, "replace": "update", "put": "update", "remove": "delete"}
    rules = {name: f"volume:{verb}_{noun}_metadata" for name, verb in verbs.items()}
    path = f"/{noun}s/{{{noun}}}/metadata"
    return OwnersMetadata(noun, find).routes(path, rules, forms.SET_METADATA, forms.SET_ITEM)


# Cinder has no separate policy rule for adding metadata to a snapshot.
ROUTES = [*_routes("volume", volume_of, "create"), *_routes("snapshot", snapshot_of, "update")]
