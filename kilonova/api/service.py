"""The interface of the services that every handler works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kilonova.api.consoles.meeting import ConsoleMeeting
from kilonova.domain.caller import Caller
from kilonova.domain.pci import PciAlias
from kilonova.engine.core import Engine
from kilonova.policy.enforcer import Policy
from kilonova.quota.service import Quotas
from kilonova.services.compute.aggregate_book import AggregateBook
from kilonova.services.compute.aggregates import Aggregates
from kilonova.services.compute.cells import Cells
from kilonova.services.compute.flavors import Flavors
from kilonova.services.compute.keypairs import Keypairs
from kilonova.services.compute.server_groups import ServerGroups
from kilonova.services.identity.service import Identity
from kilonova.services.image.service import Images
from kilonova.services.network.service import Networks
from kilonova.services.volume.service import Volumes
from kilonova.store.reserve import DiskReserve
from kilonova.world import World

if TYPE_CHECKING:
    from kilonova.api.service_app import ServiceApp


class Checks(Protocol):
    async def check(self, token: str) -> Caller | None:
        """Return the caller that this token belongs to."""


class Serving(Protocol):
    """The needs of a ServiceApp itself. Placement on its own port has no more than this."""

    @property
    def world(self) -> World: ...

    @property
    def identity(self) -> Checks: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def public_url(self) -> str: ...


@dataclass
class Service:
    engine: Engine
    identity: Identity
    images: Images
    networks: Networks
    volumes: Volumes
    flavors: Flavors
    aggregates: Aggregates
    zones: AggregateBook  # hosts by zone, kept
    keypairs: Keypairs
    server_groups: ServerGroups
    cells: Cells
    quotas: Quotas
    policy: Policy
    public_url: str  # "http://127.0.0.1:8774", without a slash at its end
    unready: Callable[[], Awaitable[str]]  # why it is not ready yet; "" when it is
    consoles: ConsoleMeeting
    pci_aliases: Sequence[PciAlias] = ()
    reserve: DiskReserve = field(default_factory=lambda: DiskReserve(0))
    apps: dict[str, ServiceApp] = field(default_factory=dict, init=False)  # by name: the services on this port

    @property
    def world(self) -> World:
        return self.engine.world
