"""Bodies and queries of /os-volumes and /os-snapshots."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import query
from kilonova.api.compute.schemas.types import BOOLEAN, NON_NEGATIVE, POSITIVE, Schema, closed, texts, wrapped
from kilonova.api.forms import Forms

WORD: Schema = {"type": "string", "maxLength": 255}
NAMES: Schema = {"display_name": WORD, "display_description": WORD}

VOLUME = Forms(
    wrapped(
        "volume",
        closed(
            {
                "size": POSITIVE,
                "volume_type": WORD,
                "metadata": {"type": "object", "additionalProperties": WORD},
                "snapshot_id": WORD,
                "availability_zone": WORD,
                **NAMES,
            },
            "size",
        ),
    )
)
SNAPSHOT = Forms(wrapped("snapshot", closed({"volume_id": WORD, "force": BOOLEAN, **NAMES}, "volume_id")))
LIST = Forms(query({"limit": texts(NON_NEGATIVE), "offset": texts(NON_NEGATIVE)}, open=True))
