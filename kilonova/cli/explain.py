"""`kilonova explain SERVER|OPERATION`: why it went where it went, or why there was no place for it."""

from __future__ import annotations

import json
from typing import Annotated, Any

from cyclopts import Parameter

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login
from kilonova.domain.errors import Refused
from kilonova.scheduler.report import decision_lines


def explain(
    thing: str,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
    whole: Annotated[bool, Parameter(negative=(), help="Show every recorded host, however many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which hosts were considered, and why each was chosen or rejected: host, filter, number.

    Parameters
    ----------
    thing
        Id of an operation, or of a server (its newest decision).
    """
    cloud = cloud_of(login)
    try:
        found = cloud.get(f"/operations/{word(thing)}/explain")
    except Refused as why:
        if why.code != "not_found":
            raise
        found = cloud.get(f"/servers/{word(thing)}/explain")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print("\n".join(lines(found, whole=whole)))


def lines(found: dict[str, Any], *, whole: bool = False) -> list[str]:
    """Each attempt with its decision and what became of it; the number is left out when there is one only."""
    attempts = [*found["earlier"], {"decision": found["decision"], "problem": found["problem"]}]
    said = [f"operation {found['operation']}"]
    for number, attempt in enumerate(attempts, 1):
        several = len(attempts) > 1
        said += [f"  attempt {number}"] if several else []
        said += [f"{'    ' if several else '  '}{line}" for line in _attempt(attempt, whole)]
    return said


def _attempt(attempt: dict[str, Any], whole: bool) -> list[str]:
    decision, problem = attempt["decision"], attempt["problem"]
    said = decision_lines(decision, whole=whole) if decision is not None else ["it chose no host"]
    return [*said, *([f"failed at {problem['step']}: {problem['message']}"] if problem else [])]
