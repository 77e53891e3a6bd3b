"""Operations about whole hosts: the plan, and the order of servers: first, last or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kilonova.domain.host import HostState
from kilonova.domain.json import JsonObject

FIRST, MIDDLE, LAST = range(3)
NEVER = "never"
# In the flavor's extra specs (administrators) and in the server's metadata (owners)
EVACUATE = "kilonova:evacuate"
BY_FLAVOR = {"first": FIRST, "last": LAST}
BY_OWNER = {"last": LAST}
REFUSE, SKIP = ON_MISFIT = ("refuse", "skip")
MIGRATE, STOP = DRAIN_BY = ("migrate", "stop")
GIB, MIB = 2**30, 2**20


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The planned action for one server, and its destination."""

    do: str = "evacuate"  # the operation
    server: str
    name: str
    source: str
    to: str = ""  # "": it waits for hosts that do not answer
    why: str = ""
    disks: list[JsonObject] = []
    bytes: int = 0  # of disks that are made or copied
    after: list[str] = []  # servers that must have moved before


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    source: str
    why: str
    changes: list[str]  # the smallest that would let it fit; each alone is enough


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a host, and the reason why it counts as dead, if it does."""

    proven_by: str  # one of domain.host.PROOFS; "": it lives, or nothing proves yet that it does not
    sentence: str

    @classmethod
    def of(cls, state: HostState) -> Proof:
        return cls(proven_by=state.proven_by, sentence=state.sentence)


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of one or more hosts of a cell: the moves, in this order; those that fit nowhere; those that may not
    go now; those that shall not go."""

    operation: str
    hosts: dict[str, Proof]
    moves: list[PlannedMove] = []
    misfits: dict[str, Misfit] = {}
    refused: dict[str, str] = {}
    spared: dict[str, str] = {}
    bytes: int = 0
    seconds: float = 0.0  # an estimate


def choice_of_owners(extra_specs: Mapping[str, str], metadata: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the rank of a server, or None and the reason why it stays. The flavor's value takes precedence over the
    owner's, but `never` counts in any case."""
    by_flavor, by_owner = extra_specs.get(EVACUATE), metadata.get(EVACUATE)
    if by_flavor == NEVER:
        return None, f"its flavor has {EVACUATE}={NEVER}"
    if by_owner == NEVER:
        return None, f"its metadata has {EVACUATE}={NEVER}"
    if by_flavor in BY_FLAVOR:
        return BY_FLAVOR[by_flavor], ""
    return BY_OWNER.get(by_owner or "", MIDDLE), ""


def estimate(moves: Iterable[PlannedMove], *, at_once: int, each: float, bytes_per_second: float) -> float:
    """Seconds until the last one has moved: destinations work side by side, each on a few at a time."""
    total: dict[str, float] = {}
    longest: dict[str, float] = {}
    for move in moves:
        seconds = each + move.bytes / bytes_per_second
        total[move.to] = total.get(move.to, 0.0) + seconds
        longest[move.to] = max(longest.get(move.to, 0.0), seconds)
    return round(max((max(total[host] / at_once, longest[host]) for host in total), default=0.0), 1)
