"""Server groups: what changed with which microversion."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import query
from kilonova.api.compute.schemas.types import NAME, NON_NEGATIVE, POSITIVE, closed, texts, wrapped
from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version

HARD = ["anti-affinity", "affinity"]
SOFT = ["soft-anti-affinity", "soft-affinity"]
PAGE: Schema = {"limit": texts(NON_NEGATIVE), "offset": texts(NON_NEGATIVE), "all_projects": {}}


def _create(version: Version) -> Schema:
    policy: Schema = {"type": "string", "enum": HARD + (SOFT if version >= (2, 15) else [])}
    if version >= (2, 64):
        rules = closed({"max_server_per_host": POSITIVE})
        return wrapped("server_group", closed({"name": NAME, "policy": policy, "rules": rules}, "name", "policy"))
    policies: Schema = {"type": "array", "items": policy, "minItems": 1, "maxItems": 1}
    return wrapped("server_group", closed({"name": NAME, "policies": policies}, "name", "policies"))


CREATE = Forms({version: _create(version) for version in [(2, 1), (2, 15), (2, 64)]})
LIST = Forms({(2, 1): query(PAGE, open=True), (2, 75): query(PAGE, open=False)})
