"""The failures ordered from outside: which verb of which host fails next, and how."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.domain.errors import Refused

VERBS = (
    "inventory",
    "copies",
    "ensure_disk",
    "room_for_rebuild",
    "sees_disk",
    "send_disk",
    "ensure_disk_size",
    "ensure_ephemeral",
    "ensure_defined",
    "ensure_power",
    "ensure_volume",
    "ensure_no_volume",
    "ensure_absent",
    "ensure_snapshot",
    "read_snapshot",
    "ensure_no_snapshot",
    "console",
    "open_console",
    "cache_images",
)
WAYS = ("error", "refuse", "crash")  # an error that another host may not have; a refusal by every host


@dataclass(slots=True)
class Fault:
    verb: str
    times: int
    how: str


class Faults:
    def __init__(self) -> None:
        self._by_host: dict[str, list[Fault]] = {}

    def order(self, host: str, verb: str, times: int, how: str) -> None:
        if verb != "*" and verb not in VERBS:
            raise Refused("unknown_verb", f"verb {verb!r}: unknown; use one of {', '.join(VERBS)}, or *")
        if how not in WAYS:
            raise Refused("unknown_failure", f"how {how!r}: unknown; use {' or '.join(WAYS)}")
        if times < 1:
            raise Refused("bad_times", f"times={times}: must be 1 or more")
        self._by_host.setdefault(host, []).append(Fault(verb, times, how))

    def take(self, host: str, verb: str) -> str:
        """Return how this call fails (one of WAYS), or "" if it does not; the oldest order comes first."""
        orders = self._by_host.get(host)
        if not orders:
            return ""
        fault = next((order for order in orders if order.verb in (verb, "*")), None)
        if fault is None:
            return ""
        fault.times -= 1
        if fault.times == 0:
            orders.remove(fault)
        return fault.how

    def clear(self, host: str | None = None) -> None:
        if host is None:
            self._by_host.clear()
        else:
            self._by_host.pop(host, None)
