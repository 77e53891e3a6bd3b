"""Filters: one small file each. A filter judges all hosts at once and can say of each why, with the numbers."""

from typing import Protocol

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.filters.capacity import Capacity
from kilonova.scheduler.filters.excluded import Excluded
from kilonova.scheduler.filters.host_state import HostState
from kilonova.scheduler.filters.wanted_host import WantedHost
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest


class Filter(Protocol):
    name: str

    def passes(self, field: Field, request: ResourceRequest) -> Bools:
        """One truth per host."""

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        """Why host number `at` passes or not."""


FILTERS: tuple[Filter, ...] = (WantedHost(), Excluded(), HostState(), Capacity())
