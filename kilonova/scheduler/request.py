"""Requests to the scheduler."""

from __future__ import annotations

import msgspec

from kilonova.domain.hardware import HardwareRequest
from kilonova.domain.server import Flavor
from kilonova.placement.candidates import CandidateQuery
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.needs import needs_of

NO_FLAVOR = Flavor(name="", vcpus=0, memory_mb=0, disk_gb=0)


class ImageFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The image of a server, as known when it is placed."""

    id: str = ""
    format: str = ""
    properties: dict[str, str] = {}


class ResourceRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A server's needs, and the hosts that it must or may not go to."""

    flavor: Flavor = NO_FLAVOR
    image: ImageFacts = ImageFacts()
    volume_backed: bool = False  # its root disk is a volume: the host gives none
    server: str = ""  # its id; one that moves is still counted where it was
    project: str = ""
    hints: dict[str, list[str]] = {}
    zone: str = ""
    excluded: dict[str, str] = {}  # host: why not
    wanted_host: str | None = None  # no other will do, and it must pass every filter
    preferred_host: str = ""  # taken if it fits, whatever it weighs: an earlier plan chose it
    forced_host: str | None = None  # the only host considered, and only placement is checked
    group: GroupRule | None = None  # the scheduler proposes by it, the claim keeps it
    from_cell: str = ""  # of a server that may move to another one
    home: str = ""  # the cell of a server that may not
    rescue: bool = False  # its host is dead: hosts that are reserved for that may be used

    def without(self, host: str, why: str = "it is excluded by the request") -> ResourceRequest:
        return msgspec.structs.replace(self, excluded={**self.excluded, host: why})

    @property
    def hardware(self) -> HardwareRequest | None:
        """The request for CPUs, cells, pages and devices; None: any will do."""
        return self.flavor.hardware if self.flavor.hardware is not None and self.flavor.hardware.needs_claim else None

    @property
    def only_host(self) -> str | None:
        return self.forced_host or self.wanted_host

    def needs(self) -> CandidateQuery:
        return needs_of(self.flavor, self.image.properties, volume_backed=self.volume_backed)
