"""What a filter is: it judges all hosts at once and can say of each why, with the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.settings import Settings


class Filter(ABC):
    name: str  # as operators write it in [filter_scheduler] enabled_filters

    about_state = False  # it speaks of the host's state; what one such stage has said, the others do not repeat
    for_rebuild = False  # it also judges the host of a server that is rebuilt there from another image
    needs_cell = True  # it judges by what only the host's cell knows; False: by the request, placement or control

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        """One truth per host; None: all of them pass."""

    @abstractmethod
    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        """Why host number `at` passes or not."""

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        """What would have to change for host number `at` to pass; None: nothing that anybody could do now."""
        return None

    def unknown(self, field: Field, request: ResourceRequest) -> Bools | None:
        """Hosts about which it proves nothing that they do not pass; None: there are none."""
        return None
