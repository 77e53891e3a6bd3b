"""Bodies and queries of /servers/{server}/os-volume_attachments."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import query
from kilonova.api.compute.schemas.types import BOOLEAN, NON_NEGATIVE, TAG, UUID, closed, texts, wrapped
from kilonova.api.forms import Forms, Schema

KEY = "volumeAttachment"
DEVICE: Schema = {"type": ["string", "null"], "pattern": "^/dev/x?[a-z]?d?[a-z]+[0-9]*$", "maxLength": 255}

_FIRST: Schema = {"volumeId": UUID, "device": DEVICE}
_TAGGED: Schema = {**_FIRST, "tag": TAG}
_FATED: Schema = {**_TAGGED, "delete_on_termination": BOOLEAN}
_AS_SHOWN: Schema = {**_FATED, "serverId": UUID, "id": UUID}


def _attachment(properties: Schema) -> Schema:
    return wrapped(KEY, closed(properties, "volumeId"))


ATTACH = Forms({(2, 1): _attachment(_FIRST), (2, 49): _attachment(_TAGGED), (2, 79): _attachment(_FATED)})
SWAP = Forms(_attachment({"volumeId": UUID}))
UPDATE = Forms(_attachment(_AS_SHOWN))

_PAGE: Schema = {"limit": texts(NON_NEGATIVE), "offset": texts(NON_NEGATIVE)}
LIST = Forms({(2, 1): query(_PAGE, open=True), (2, 75): query(_PAGE, open=False)})
