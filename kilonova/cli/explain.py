"""`kilonova explain SERVER|OPERATION`: why a server got its host, or why there was none for it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from cyclopts import Parameter

from kilonova.cli.names import is_id, server_id
from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.cli.output import print_data, print_lines
from kilonova.cli.rest import Cloud, segment
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.scheduler.report import decision_lines


class StepProblem(TypedDict):
    step: str
    message: str


class ShownAttempt(TypedDict):
    decision: JsonObject | None
    problem: StepProblem | None


class _Explanation(ShownAttempt):
    operation: str
    earlier: list[ShownAttempt]


class Explanation(_Explanation, total=False):
    """The explanation of a decision; `old_disk` only if the operation left a disk."""

    old_disk: str | None


def explain(
    thing: Annotated[str, Parameter(help="Name or id of a server (its newest decision), or id of an operation.")],
    /,
    *,
    login: CloudOptions = DEFAULT_LOGIN,
    whole: Annotated[bool, Parameter(negative=(), help="Show every recorded host, however many.")] = False,
) -> None:
    """Show which hosts were considered, and why each was chosen or rejected: host, filter, number."""
    explanation = _decided(login.cloud(), thing)
    if login.form == "table":
        print_lines(lines(explanation, whole=whole))
    else:
        print_data(explanation, login.form)


def _decided(cloud: Cloud, name_or_id: str) -> Any:
    if is_id(name_or_id):
        try:
            return cloud.get(f"/operations/{segment(name_or_id)}/explain")
        except Refused as why:
            if why.code != "not_found":
                raise
    return cloud.get(f"/servers/{segment(server_id(cloud, name_or_id))}/explain")


def lines(explanation: Explanation, *, whole: bool = False) -> list[str]:
    """Return each attempt with its decision and its outcome, numbered if there are several."""
    attempts: list[ShownAttempt] = [
        *explanation["earlier"],
        {"decision": explanation["decision"], "problem": explanation["problem"]},
    ]
    said = [f"operation {explanation['operation']}"]
    for number, attempt in enumerate(attempts, 1):
        several = len(attempts) > 1
        said += [f"  attempt {number}"] if several else []
        said += [f"{'    ' if several else '  '}{line}" for line in _attempt(attempt, whole)]
    return [*said, *([f"  old disk: {explanation['old_disk']}"] if explanation.get("old_disk") else [])]


def _attempt(attempt: ShownAttempt, whole: bool) -> list[str]:
    decision, problem = attempt["decision"], attempt["problem"]
    said = decision_lines(decision, whole=whole) if decision is not None else ["it chose no host"]
    return [*said, *([f"failed at {problem['step']}: {problem['message']}"] if problem else [])]
