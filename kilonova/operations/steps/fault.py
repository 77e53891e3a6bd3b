"""The fault of a server that did not fit, for its three readers: its owner, an owner who may know of capacity, and
administrators."""

from __future__ import annotations

import msgspec

from kilonova.domain.json import as_object, as_text
from kilonova.engine.course import Problem
from kilonova.engine.records import FAULT_LENGTH
from kilonova.scheduler.report import decision_lines


class FaultText(msgspec.Struct, frozen=True):
    message: str  # for the owner: only numbers of the owner's own request
    reason: str  # in one line, for administrators
    details: str  # all of it, for administrators
    would_fit: str | None = None  # behind the policy rule kilonova:servers:show:would_fit


def fault_of(problem: Problem, safe_message: str) -> FaultText:
    decision = as_object(as_object(problem.details).get("decision"))
    if not decision:
        return FaultText(safe_message, problem.message, problem.message)
    shortage, largest = as_text(decision.get("shortage")), as_text(decision.get("largest"))
    return FaultText(
        message=(f"{safe_message} {shortage[0].upper()}{shortage[1:]}." if shortage else safe_message)[:FAULT_LENGTH],
        reason=problem.message,
        details="\n".join([problem.message, *decision_lines(decision)]),
        would_fit=f"It would fit with {largest}." if largest else None,
    )
