"""Outcomes of a claim's verbs. Kept with the fence as JSON and returned unchanged if the step is repeated."""

from __future__ import annotations

import msgspec


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why one candidate was not taken. The numbers are of the first class that did not fit."""

    provider: str
    reason: str  # no_such_provider | not_accepting | group | no_inventory | over_capacity | wrong_unit
    sentence: str
    resource_class: str = ""
    wanted: int = 0
    used: int = 0
    capacity: int = 0


class Claimed(msgspec.Struct, frozen=True, tag="claimed", omit_defaults=True):
    provider: str
    on_behalf_of: str = ""  # the migration or evacuation this claim is for
    refused: tuple[Refusal, ...] = ()  # candidates that were tried before


class NotClaimed(msgspec.Struct, frozen=True, tag="not_claimed"):
    """No candidate fits; nothing was changed."""

    refused: tuple[Refusal, ...]

    def sentence(self) -> str:
        return "; ".join(refusal.sentence for refusal in self.refused) or "there was no candidate to claim"


class ClaimReturned(msgspec.Struct, frozen=True, tag="returned"):
    """The source's share is the server's own again; `dropped` rows on the destination are gone."""

    returned: int
    dropped: int


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """Rows deleted; 0 when there was nothing to drop."""

    rows: int


class Released(msgspec.Struct, frozen=True, tag="released"):
    """The consumers' allocations were released; zeros if there were none."""

    consumers: int
    rows: int
