"""/audits: do the books agree with the servers' own records; and asking for a look right now."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.reading import decode, limit_of, read_body
from kilonova.audit.findings import Finding, Report
from kilonova.audit.holdings import asking
from kilonova.audit.run import audit, keep, read_reports


class AuditBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    repair: bool = True


async def run(call: Call) -> Response:
    """Compare the records now, and repair the differences that are safe to repair."""
    request = decode(await read_body(call.request), AuditBody)
    world = call.engine.world
    report = await audit(call.db, world.clock, mend=request.repair, ask=asking(world.bus, call.db))
    await keep(call.db, report)
    return answer({"audit": _view(report)})


async def list_(call: Call) -> Response:
    """List the audits, newest first."""
    return answer({"audits": [_view(report) for report in await read_reports(call.db, limit_of(call.request))]})


def _view(report: Report) -> dict[str, Content]:
    return {**msgspec.structs.asdict(report), "findings": [_finding(one) for one in report.findings]}


def _finding(one: Finding) -> dict[str, Content]:
    turn, fence, generation = one.proof
    return {**msgspec.structs.asdict(one), "proof": {"turn": turn, "fence": fence, "generation": generation}}
