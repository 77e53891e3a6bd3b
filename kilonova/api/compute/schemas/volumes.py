"""Bodies and queries of /os-volumes and /os-snapshots."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import query
from kilonova.api.compute.schemas.types import BOOLEAN, NON_NEGATIVE, POSITIVE, closed, texts, wrapped
from kilonova.api.forms import Forms, Schema

SHORT_TEXT: Schema = {"type": "string", "maxLength": 255}
NAMES: Schema = {"display_name": SHORT_TEXT, "display_description": SHORT_TEXT}

VOLUME = Forms(
    wrapped(
        "volume",
        closed(
            {
                "size": POSITIVE,
                "volume_type": SHORT_TEXT,
                "metadata": {"type": "object", "additionalProperties": SHORT_TEXT},
                "snapshot_id": SHORT_TEXT,
                "availability_zone": SHORT_TEXT,
                **NAMES,
            },
            "size",
        ),
    )
)
SNAPSHOT = Forms(wrapped("snapshot", closed({"volume_id": SHORT_TEXT, "force": BOOLEAN, **NAMES}, "volume_id")))
LIST = Forms(query({"limit": texts(NON_NEGATIVE), "offset": texts(NON_NEGATIVE)}, open=True))
