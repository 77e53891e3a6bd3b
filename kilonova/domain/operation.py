"""States of operations and steps, as data: which there are, what each means, which may follow."""

from __future__ import annotations

OPERATION_STATES = {
    "accepted": "stored; no step has been taken yet",
    "running": "a step is ready or taken",
    "waiting": "needs somebody's answer or word; waiting_for says whose and how to end it",
    "undoing": "a step failed or it was cancelled; what was done is being undone in reverse order",
    "done": "ended as asked",
    "undone": "a step failed; everything was undone and the server is as it was",
    "failed": "failed past its point of no return, or what failed cannot be undone; the error says what is left",
    "cancelled": "undone because somebody asked",
    "superseded": "another operation took over and inherited what had to be undone",
}

LIVE_STATES = ("accepted", "running", "waiting", "undoing")

TRANSITIONS = {
    "accepted": {"running", "waiting", "undoing", "done", "superseded", "cancelled", "undone", "failed"},
    "running": {"running", "waiting", "undoing", "done", "undone", "failed", "cancelled", "superseded"},
    "waiting": {"running", "waiting", "undoing", "done", "undone", "failed", "cancelled", "superseded"},
    "undoing": {"undoing", "running", "waiting", "undone", "failed", "cancelled", "superseded"},
    "done": set(),
    "undone": set(),
    "failed": set(),
    "cancelled": set(),
    "superseded": set(),
}

STEP_STATES = {
    "ready": "waits for a worker",
    "taken": "a worker has it; counts as done when somebody must undo",
    "done": "finished; its result is journaled",
    "failed": "finished with an error",
    "waived": "not done, and need not be: the host was declared down, it is a debt now",
    "dropped": "no longer wanted: cancelled or superseded",
    "abandoned": "skipped by an administrator's word; what it left is a finding",
}

FORWARD, REWIND, BACK = "forward", "rewind", "back"


def may_follow(old: str, new: str) -> bool:
    return new in TRANSITIONS[old]
