"""Operations in words: states, steps, children, errors."""

from __future__ import annotations

from kilonova.cli.times import duration, moment
from kilonova.domain.answers import InterventionAnswer, OperationAnswer, StepAnswer
from kilonova.domain.json import as_object, as_text

CANCELLED = "cancelled"
NAMED = ("failed", "impossible", "refused", "spared", "not_begun", "elsewhere")  # of an account: by server, why


def state_of(operation: OperationAnswer) -> str:
    """Return the state for people. `undone` in the journal is a failure: a create leaves a server in ERROR; any other
    operation leaves the server as it was before."""
    state, error = str(operation["state"]), operation["error"]
    if state != "undone" or (error is not None and error["code"] == CANCELLED):
        return state
    return "failed" if operation["operation"] == "create" else "failed, undone"


def note_of(operation: OperationAnswer) -> str:
    """Return the note beside the state: what the operation waits for, why it failed, or what became of a whole host."""
    if operation["waiting_for"]:
        return f"waiting for {operation['waiting_for']}"
    account = as_text((operation["account"] or {}).get("sentence"))
    if operation["error"]:  # a cancelled operation still reports what was moved
        why = str(operation["error"]["message"])
        return f"{why.rstrip('.')}; {account}" if account else why
    return f"superseded by {operation['superseded_by']}" if operation["superseded_by"] else account


def account_lines(operation: OperationAnswer) -> list[str]:
    """Return a line for every server that an operation about whole hosts has not moved as planned, with the reason."""
    account = operation["account"] or {}
    return [
        f"{server}: {kind.replace('_', ' ')}: {why}"
        for kind in NAMED
        for server, why in as_object(account.get(kind)).items()
    ]


def took(operation: OperationAnswer) -> float | None:
    ended = operation["ended_at"]
    return None if ended is None else ended - operation["created_at"]


def title(operation: OperationAnswer) -> str:
    server = f" of server {operation['server']}" if operation["server"] else ""
    return f"{operation['operation']}{server}: {operation['state']}"


def outcome(operation: OperationAnswer) -> str:
    """The last line about an operation that has ended."""
    seconds, note = took(operation) or 0.0, note_of(operation)
    what = operation["operation"] + (f" of server {operation['server']}" if operation["server"] else "")
    return f"{what}: {state_of(operation)} after {duration(seconds)}" + (f": {note}" if note else "")


def step_line(step: StepAnswer) -> str:
    problem = f"  {step['error']['message']}" if step["error"] else ""
    host = step["on"] or "-"  # which one is for administrators
    name = f"undo {step['name']}" if step["way"] == "undo" else step["name"]
    return f"  {step['ordinal']:>4} {name:<32} {host:<12} {step['state']}{problem}"


def step_took(step: StepAnswer) -> float | None:
    began = step["taken_at"] or step["created_at"]
    return None if step["ended_at"] is None else step["ended_at"] - began


def children_of(operation: OperationAnswer) -> str:
    """Return the progress of an operation about whole hosts; empty if it is not about whole hosts, or not planned
    yet."""
    progress = operation.get("progress")
    if not progress:
        return ""
    counts, amounts = progress["children"], progress["bytes"]
    failed = f", {counts['failed']} failed" if counts["failed"] else ""
    moved = f"{amounts['done'] / 1e9:.1f} of {amounts['planned'] / 1e9:.1f} GB"
    return f"{counts['done']} of {counts['planned']} servers done, {counts['running']} running{failed}; {moved}"


def intervention(one: InterventionAnswer) -> str:
    reason = f": {one['reason']}" if one["reason"] else ""
    return f"{one['verb']} by {one['by']} at {moment(one['created_at'])}{reason}"
