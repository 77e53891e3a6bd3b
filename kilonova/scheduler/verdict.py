"""The verdicts on hosts and the result of a decision. Stored with the operation as JSON."""

from __future__ import annotations

import msgspec

from kilonova.placement.capacity import HostCandidate
from kilonova.scheduler.request import ResourceRequest


class FilterResult(msgspec.Struct, frozen=True):
    host: str
    filter: str
    passed: bool | None  # None: unknown (law 18)
    sentence: str


class FilterCount(msgspec.Struct, frozen=True):
    """Filters are counted independently: a host may be rejected by several."""

    filter: str
    passed: int
    rejected: int
    unknown: int = 0


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    host: str
    provider: str
    weight: float
    cell: str = ""
    allocations: dict[str, dict[str, int]] = {}  # by provider: the proposed claim
    names: dict[str, str] = {}  # of those providers that are not the host's own
    mappings: dict[str, list[str]] = {}  # which providers serve which group of the request
    weights: dict[str, float] = {}  # by weigher: the parts of `weight`; those that are equal for all hosts are left out

    def candidate(self) -> HostCandidate:
        others = {provider: given for provider, given in self.allocations.items() if provider != self.provider}
        return HostCandidate(self.provider, self.allocations.get(self.provider, {}), others)


class Decision(msgspec.Struct, frozen=True):
    request: ResourceRequest
    considered: int
    fitting: int
    counts: tuple[FilterCount, ...]
    chosen: Choice | None
    alternates: tuple[Choice, ...]
    verdicts: tuple[FilterResult, ...]  # of chosen hosts all; of the others the rejections
    complete: bool  # every host is in `verdicts`; otherwise the taken and those nearest to fitting
    changes: tuple[str, ...] = ()  # for a refusal: the smallest changes that would let it fit; each alone is enough
    unclaimed: dict[str, int] = {}  # by host named here: servers that were counted there and had not claimed yet
    rule: str = ""  # why the chosen host and not another that fits
    missed: str = ""  # why not the host that was preferred
    shortage: str = ""  # for a refusal, as its owner may read it: only the request's own numbers
    largest: str = ""  # for a refusal: the largest flavor that would fit
    unknown: int = 0  # hosts that may fit: no known fact rejects them
    unheard: tuple[str, ...] = ()  # the first of them whose cell answers
    away: tuple[str, ...] = ()  # the cells of the others

    def candidates(self) -> list[HostCandidate]:
        """Return the candidates to claim, best first."""
        return [choice.candidate() for choice in self.taken]

    @property
    def taken(self) -> tuple[Choice, ...]:
        return (self.chosen, *self.alternates) if self.chosen else ()

    def sentence(self) -> str:
        """Return the counts in one line, for the administrator."""
        rejected = ", ".join(f"{count.filter} rejects {count.rejected}" for count in self.counts if count.rejected)
        unknown = f", {self.unknown} may fit" if self.unknown else ""
        return f"{self.fitting} of {self.considered} hosts fit{unknown}" + (f"; {rejected}" if rejected else "")

    def awaited(self) -> str:
        """Return whose answer would settle whether the unknown hosts fit."""
        hosts = [f"{', '.join(self.unheard)} to be heard"] if self.unheard else []
        cells = [f"the database of {', '.join(self.away)} to answer"] if self.away else []
        return " or ".join(hosts + cells)
