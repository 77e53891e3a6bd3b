"""/findings: what abandoned steps left, and settling it."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.extra import view
from kilonova.api.extra.operations import ReasonBody
from kilonova.api.reading import decode, read_body
from kilonova.domain.errors import Refused
from kilonova.engine.findings import settle
from kilonova.store.findings import all_findings, journal_of


async def list_(call: Call) -> Response:
    """List the findings that are not settled; with `?settled=true`, all findings."""
    if unknown := set(call.query) - {"settled"}:
        raise Refused("bad_request", f"unknown query parameter {', '.join(sorted(unknown))}")
    settled = call.query.get("settled", "false")
    if settled not in ("true", "false"):
        raise Refused("bad_request", f"settled={settled[:80]!r}: must be true or false")
    findings = await all_findings(call.db, settled=settled == "true")
    return answer({"findings": [view.finding(row) for row in findings]})


async def settle_(call: Call) -> Response:
    """Settle a finding. The next audit frees its leftovers, and its host checks its guests again."""
    request, finding_id = decode(await read_body(call.request), ReasonBody), call.path["id"]
    journal = await journal_of(call.db, finding_id)
    if journal is None:
        raise Refused("not_found", f"finding {finding_id[:80]}: not found")
    await settle(journal, finding_id, call.cause, request.reason, call.now)
    return answer({"finding": finding_id})
