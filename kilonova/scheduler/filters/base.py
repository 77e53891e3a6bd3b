"""The base class of all filters. A filter judges all hosts at once and gives the reason, with the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.settings import Settings


class Filter(ABC):
    """Judge all hosts for one request. Operators' own filters inherit from this class by this path."""

    name: str  # as in [filter_scheduler] enabled_filters

    about_state = False  # judges the host's state; if several such stages reject a host, only the first is reported
    for_rebuild = False  # also judges the host of a server that is rebuilt there from another image
    needs_cell = True  # needs facts that only the host's cell has; False: request, placement and control are enough

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        """Return one truth per host; None: every host passes."""

    @abstractmethod
    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        """Say why host number `at` passes or not."""

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        """Return what would let host number `at` pass; None: it cannot be changed now."""
        return None

    def unknown(self, field: Field, request: ResourceRequest) -> Bools | None:
        """Return the hosts for which a rejection proves nothing; None: there are none."""
        return None
