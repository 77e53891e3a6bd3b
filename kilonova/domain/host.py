"""The state of a host, derived from its record by one function, with a sentence that says why."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

LONGEST_NAME = 200  # of a host: it is also the name of its provider in placement
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")

HOST_STATES = {
    "up": "answers and may be a destination",
    "disabled": "answers; an administrator keeps new servers away",
    "draining": "answers; its servers are moved away, and it takes no others until it is returned",
    "returning": "answers again; pays its debts before anything else and is not a destination until then",
    "unknown": "silent, but the observer did not hear other hosts either: it may be alive",
    "down": "silent while others were heard, or declared down",
}


def host_name_error(name: str) -> str:
    """Return the error in a host name; empty if it is valid."""
    if len(name) > LONGEST_NAME:
        return f"host name {name[:40]!r}…: {len(name)} characters; at most {LONGEST_NAME} are allowed"
    if not _NAME.fullmatch(name):
        form = "use letters, digits, '.', '-' and '_', with a letter or digit first and last"
        return f"host name {name!r}: not a valid name; {form}"
    return ""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a host, all by the database's clock."""

    name: str
    last_seen: float
    forced_down: bool = False
    fenced: bool = False
    disabled: bool = False
    draining: bool = False
    returning: bool = False


class Observation(msgspec.Struct, frozen=True):
    """The time in which heartbeats were received without a gap (law 9); `since` > `until` means not at all."""

    since: float
    until: float


FENCE, FORCED_DOWN, SILENCE = PROOFS = ("fence", "forced_down", "silence")


class HostState(msgspec.Struct, frozen=True):
    name: str
    status: str  # one of HOST_STATES
    sentence: str
    declared: bool = False  # declared by an operator or proven by a fence, not silence alone
    silent: float = 0.0  # seconds since it was heard, unless declared; within service_down_time they prove nothing
    proven_by: str = ""  # of one that is down: the proof that it is dead, one of PROOFS

    @property
    def is_up(self) -> bool:
        return self.status not in ("down", "unknown")

    @property
    def may_receive(self) -> bool:
        return self.status == "up"


def longest(seen: Iterable[Observation], now: float, down_after: float) -> Observation | None:
    """Return the observer that has received for the longest time, of those that receive up to now."""
    living = [one for one in seen if _is_receiving(one, now, down_after)]
    return max(living, key=lambda one: (one.until - one.since, one.until), default=None)


def _is_receiving(seen: Observation, now: float, down_after: float) -> bool:
    return abs(now - seen.until) <= down_after / 2  # ahead of now: the clock was set back, it may be dead (law 16)


def judge(host: HostFacts, seen: Observation | None, now: float, down_after: float) -> HostState:
    """Judge a host. Its silence counts only while the observer itself was receiving (law 9)."""
    silent = max(0.0, now - host.last_seen)
    if host.fenced:
        return HostState(host.name, "down", f"{host.name} is fenced", True, proven_by=FENCE)
    if host.forced_down:
        return HostState(host.name, "down", f"{host.name} was declared down", True, proven_by=FORCED_DOWN)
    if silent > down_after:
        return _silent(host, seen, now, silent, down_after)
    for state, flag in (("returning", host.returning), ("draining", host.draining), ("disabled", host.disabled)):
        if flag:
            return HostState(host.name, state, f"{host.name} {HOST_STATES[state]}", silent=silent)
    return HostState(host.name, "up", f"{host.name} answered {silent:.0f} s ago", silent=silent)


def _silent(host: HostFacts, seen: Observation | None, now: float, silent: float, down_after: float) -> HostState:
    receiving = seen is not None and _is_receiving(seen, now, down_after)
    listening = seen.until - seen.since if seen is not None and receiving else 0.0
    if listening >= down_after:
        text = f"{host.name} has been silent for {silent:.0f} s while others were heard"
        return HostState(host.name, "down", text, silent=silent, proven_by=SILENCE)
    text = (
        f"{host.name} has been silent for {silent:.0f} s, but heartbeats were received for only {listening:.0f} s "
        f"of the {down_after:.0f} s needed, so it may be alive. Declare it down if you know that it is not"
    )
    return HostState(host.name, "unknown", text, silent=silent)
