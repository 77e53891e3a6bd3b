"""The demands of a pre-filter: traits and aggregates that the root provider of a host must have, or must not."""

from __future__ import annotations

import msgspec

from kilonova.placement.candidates.conditions import all_of, both
from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field

Names = frozenset[str]
NONE: Names = frozenset()


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of the pre-filter
    why: str  # shown for a host that does not fulfil it
    required: Names = NONE  # all of these traits
    forbidden: Names = NONE  # hosts with any of these traits are rejected
    member_of: Names | None = None  # one of these aggregates; of none, when it is empty
    outside: Names = NONE  # hosts in any of these aggregates are rejected
    remedy: str = ""  # what would have to change; `{host}` is replaced by the host
    about_state: bool = False

    def passes(self, field: Field) -> Bools:
        if self.member_of is not None and not self.member_of:
            return field.none()
        snapshot = field.snapshot
        traits = all_of(snapshot.with_trait, [frozenset([name]) for name in self.required], self.forbidden)
        inside = all_of(snapshot.in_aggregate, [self.member_of] if self.member_of else [], self.outside)
        bits = both(traits, inside)
        return field.all() if bits is None else field.with_names(bits)
