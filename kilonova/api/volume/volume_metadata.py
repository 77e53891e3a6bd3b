"""/volumes/{volume}/metadata and /snapshots/{snapshot}/metadata: the owner's keys and values."""

from __future__ import annotations

import hashlib
from typing import Generic

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.collection import EditValues, KeyValues
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.body_members import no_such_key
from kilonova.api.volume.collection import OwnedCollection
from kilonova.api.volume.snapshots import SNAPSHOTS
from kilonova.api.volume.volumes import VOLUMES
from kilonova.domain.errors import Refused
from kilonova.services.volume.records import R


class OwnersMetadata(KeyValues, Generic[R]):
    """The metadata of one noun. Of a volume the answer has an ETag from 3.15 on, so that two who change it do not
    overwrite each other."""

    removed = 200
    mismatch = "Request body and URI mismatch: the body must have the key of the URL and no other."

    def __init__(self, of: OwnedCollection[R]) -> None:
        self._of: OwnedCollection[R] = of

    def _has_tags(self, call: Call) -> bool:
        return self._of.body_key == "volume" and call.at(3, 15)

    async def read(self, call: Call) -> dict[str, str]:
        return (await self._of.find(call)).metadata

    async def list_(self, call: Call) -> Response:
        """List the keys with their values."""
        metadata = await self.read(call)
        return answer({self.whole: metadata}, headers={"ETag": _tag(metadata)} if self._has_tags(call) else None)

    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        record = await self._of.find(call)
        if self._has_tags(call) and call.route.method == "PUT":
            _check_tag(call, record.metadata)
        return await self._of.records(call).edit_metadata(call.caller, record.id, edit)

    def missing(self, call: Call) -> Refused:
        return no_such_key(call.path[self._of.body_key], call.path["key"])


def _tag(metadata: dict[str, str]) -> str:
    return hashlib.md5(msgspec.json.encode(metadata, order="sorted"), usedforsecurity=False).hexdigest()


def _check_tag(call: Call, metadata: dict[str, str]) -> None:
    wanted = [tag.strip().strip('"') for tag in call.request.headers.get("if-match", "").split(",") if tag.strip()]
    if wanted and "*" not in wanted and _tag(metadata) not in wanted:
        raise Refused(412, "The metadata was modified concurrently; read it again and retry.")


def _routes(of: OwnedCollection[R], add: str) -> list[Route]:
    verbs = {"list": "get", "show": "get", "merge": add, "replace": "update", "put": "update", "remove": "delete"}
    rules = {name: f"volume:{verb}_{of.body_key}_metadata" for name, verb in verbs.items()}
    path = f"/{of.body_key}s/{{{of.body_key}}}/metadata"
    return OwnersMetadata(of).routes(path, rules, forms.SET_METADATA, forms.SET_ITEM)


# Cinder has no separate policy rule for adding metadata to a snapshot.
ROUTES = [*_routes(VOLUMES, "create"), *_routes(SNAPSHOTS, "update")]
