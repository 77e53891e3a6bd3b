"""Key pairs: what changed with which microversion."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import PAGE, query
from kilonova.api.compute.schemas.types import closed, texts, wrapped
from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version

USER: Schema = {"user_id": texts()}


def _name(version: Version) -> Schema:
    signs = r"[_\-@. a-zA-Z0-9]" if version >= (2, 92) else r"[_\- a-zA-Z0-9]"
    return {"type": "string", "minLength": 1, "maxLength": 255, "pattern": f"^(?! ){signs}+(?<! )$"}


def _create(version: Version) -> Schema:
    properties: Schema = {"name": _name(version), "public_key": {"type": "string"}}
    if version >= (2, 2):
        properties["type"] = {"type": "string", "enum": ["ssh", "x509"]}
    if version >= (2, 10):
        properties["user_id"] = {"type": "string"}
    required = ["name", "public_key"] if version >= (2, 92) else ["name"]
    return wrapped("keypair", closed(properties, *required))


CREATE = Forms({version: _create(version) for version in [(2, 1), (2, 2), (2, 10), (2, 92)]})
LIST = Forms(
    {
        (2, 1): query({}, open=True),
        (2, 10): query(USER, open=True),
        (2, 35): query({**USER, **PAGE}, open=True),
        (2, 75): query({**USER, **PAGE}, open=False),
    }
)
ONE = Forms({(2, 1): query({}, open=True), (2, 10): query(USER, open=True), (2, 75): query(USER, open=False)})
