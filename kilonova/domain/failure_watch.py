"""The decision whether a silent host may be fenced and evacuated automatically: pure rules, each with its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kilonova.domain.host import HostState

WAIT_FACTOR = 2  # times service_down_time that a host must be silent, and others heard
FIRST_PAUSE = 60.0  # seconds until a fence command that failed is tried again; doubled each time
LONGEST_PAUSE = 600.0
EVACUATED_AGAIN = 300.0  # seconds until servers that fitted nowhere are tried again

FAILURE_STATES = {
    "fencing": "the fence command runs",
    "fence_failed": "the fence command failed; it is tried again",
    "fenced": "the host is off; its servers are evacuated in a moment",
    "evacuating": "its servers are being evacuated",
    "incomplete": "some servers are still there; they are tried again",
    "done": "all servers are elsewhere",
    "returned": "the host answered again",
    "lied": "the host answered again and had never been off, though the fence command said so",
    "gone": "the host is no longer recorded",
}
OPEN_STATES = ("fencing", "fence_failed", "fenced", "evacuating", "incomplete", "done")
ASKS, WAITS, HELD, ACTS, KNOWN = "asks", "waits", "held", "acts", "known"


class WatchRules(Protocol):
    """The options of [ha] that a decision depends on."""

    @property
    def automatic(self) -> bool: ...

    @property
    def storm_percent(self) -> float: ...

    @property
    def storm_hosts(self) -> int: ...


class Disarmed(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's decision that nothing automatic shall happen."""

    until: float | None  # by the control database's clock; None: until it is armed
    reason: str
    user_id: str
    said_at: float


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """The watch's knowledge of the whole cloud."""

    hosts: int  # that count: neither drained, fenced nor declared down; plus those that it fenced and that are away
    silent: int  # silent hosts among them, plus hosts that the watch fenced within storm_window and that are still away
    came_back: int = 0  # hosts that it fenced within storm_window and that answered since
    blind: Sequence[str] = ()  # cells whose databases do not answer
    listened: float = 0.0  # seconds that this watcher itself has heard hosts without a gap; inf: no watcher runs
    disarmed: Disarmed | None = None


class Use(msgspec.Struct, frozen=True):
    """The use of a silent host."""

    servers: int
    is_draining: bool = False


class WatchDecision(msgspec.Struct, frozen=True):
    outcome: str  # asks | waits | held | acts | known
    sentence: str


def decide(host: HostState, use: Use, sight: Sight, rules: WatchRules, down_after: float) -> WatchDecision:
    """Decide about a silent host for which no record is open yet."""
    needed = WAIT_FACTOR * down_after
    if host.status != "down":
        return WatchDecision(HELD, host.sentence)
    if use.is_draining:  # its firmware may be being written
        return WatchDecision(HELD, "it was drained for maintenance")
    if not use.servers:
        return WatchDecision(HELD, "no server is there, so nothing is gained by switching it off")
    if not rules.automatic:
        return WatchDecision(ASKS, "automatic evacuation is off; fence or check the host, then evacuate it")
    if sight.disarmed is not None:
        return WatchDecision(HELD, f"the watch is disarmed: {sight.disarmed.reason}")
    if host.silent <= needed:
        return WatchDecision(WAITS, f"silent for {host.silent:.0f} s of the {needed:.0f} s after which it is fenced")
    if sight.listened < needed:
        return WatchDecision(
            WAITS, f"this watcher has heard hosts for {sight.listened:.0f} s of the {needed:.0f} s needed"
        )
    storm = storm_sentence(sight, rules)
    return WatchDecision(HELD, storm) if storm else WatchDecision(ACTS, "it is fenced and evacuated now")


def storm_sentence(sight: Sight, rules: WatchRules) -> str:
    """Return why the number of silent hosts forbids fencing them; "" if they are few. One host is not a storm."""
    silent, hosts, back = sight.silent, sight.hosts, sight.came_back
    advice = "it is not the hosts then; look at the network, and evacuate those that are dead"
    if sight.blind:
        return f"the database of {', '.join(sight.blind)} does not answer, so not all hosts can be seen"
    if silent + back > rules.storm_hosts:
        fenced = f", and {back} came back after they were fenced" if back else ""
        return f"{silent} of {hosts} hosts are silent{fenced}, more than storm_hosts = {rules.storm_hosts}; {advice}"
    if silent > 1 and silent * 100 > rules.storm_percent * hosts:
        return f"{silent} of {hosts} hosts are silent, more than storm_percent = {rules.storm_percent:g}; {advice}"
    if 2 * silent >= hosts:
        return f"{silent} of {hosts} hosts are silent; most of them must be heard before one is fenced"
    return ""


def pause_after(attempts: int) -> float:
    """Return the seconds until a fence command is tried again after this number of failures."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * float(2 ** min(max(attempts - 1, 0), 10)))
