"""Why a host was taken or not, and what a whole decision came to. Kept with the operation as JSON."""

from __future__ import annotations

import msgspec

from kilonova.placement.rooms import Candidate
from kilonova.scheduler.request import ResourceRequest


class Verdict(msgspec.Struct, frozen=True):
    host: str
    filter: str
    passed: bool
    sentence: str


class FilterCount(msgspec.Struct, frozen=True):
    """Filters are counted independently: a host may be rejected by several."""

    filter: str
    passed: int
    rejected: int


class Choice(msgspec.Struct, frozen=True):
    host: str
    provider: str
    weight: float


class Decision(msgspec.Struct, frozen=True):
    request: ResourceRequest
    considered: int
    fitting: int
    counts: tuple[FilterCount, ...]
    chosen: Choice | None
    alternates: tuple[Choice, ...]
    verdicts: tuple[Verdict, ...]
    complete: bool  # every host is in `verdicts`; otherwise the taken and those nearest to fitting

    def candidates(self) -> list[Candidate]:
        """What to claim, best first."""
        taken = [self.chosen, *self.alternates] if self.chosen else []
        return [Candidate(choice.provider, self.request.resources) for choice in taken]

    def sentence(self) -> str:
        """For the administrator: the counts in one line."""
        rejected = ", ".join(f"{count.filter} rejects {count.rejected}" for count in self.counts if count.rejected)
        return f"{self.fitting} of {self.considered} hosts fit" + (f"; {rejected}" if rejected else "")
