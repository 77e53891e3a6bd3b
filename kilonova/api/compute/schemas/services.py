"""Services and hypervisors: what changed with which microversion."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import PAGE, once, query
from kilonova.api.compute.schemas.types import BOOLEAN, NON_NEGATIVE, closed, texts
from kilonova.api.forms import Forms, Schema

HOST: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9-._]*$"}
SHORT_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 255}

_OLD: Schema = {"host": HOST, "binary": SHORT_TEXT, "disabled_reason": SHORT_TEXT}
ACT = Forms(
    {
        (2, 1): closed(_OLD, "host", "binary"),
        (2, 11): closed({**_OLD, "forced_down": BOOLEAN}, "host", "binary"),
    }
)
UPDATE = Forms(
    closed(
        {
            "status": {"type": "string", "enum": ["enabled", "disabled"]},
            "disabled_reason": SHORT_TEXT,
            "forced_down": BOOLEAN,
        }
    )
)
_FILTERS: Schema = {"host": texts(), "binary": texts()}
LIST = Forms({(2, 1): query(_FILTERS, open=True), (2, 75): query(_FILTERS, open=False)})

_SEARCH: Schema = {
    "limit": once(NON_NEGATIVE),
    "marker": once(),
    "hypervisor_hostname_pattern": once(HOST),
    "with_servers": once(BOOLEAN),
}
HYPERVISORS = Forms(
    {
        (2, 1): query({}, open=True),
        (2, 33): query(PAGE, open=True),
        (2, 53): query(_SEARCH, open=False),
    }
)
HYPERVISOR = Forms({(2, 1): query({}, open=True), (2, 53): query({"with_servers": once(BOOLEAN)}, open=False)})
