"""Accepting: whether a host's provider takes new claims at all. The claim would refuse it; also when it is forced."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.compute import NOT_KNOWN
from kilonova.scheduler.request import ResourceRequest


class Accepting(Filter):
    name = "accepting"
    about_state = True

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        passed = field.gathered(field.snapshot.accepting[: field.snapshot.rows])
        return None if passed.all() else passed

    def unknown(self, field: Field, request: ResourceRequest) -> Bools | None:
        """All but those that are closed for good: a host is up before its provider accepts."""
        closed = [at for at, odd in field.hosts.odd.items() if odd.state not in NOT_KNOWN]
        return ~field.places(closed) & field.known

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not field.known[at]:
            return "placement does not know this host"
        takes = field.snapshot.accepting[field.rows[at]]
        return "it accepts claims" if takes else "it accepts no new claims"
