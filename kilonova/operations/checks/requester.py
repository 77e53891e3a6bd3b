"""The person behind a request, with what its checks may look at. The checks know no HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kilonova.domain.caller import Caller
from kilonova.domain.cause import Cause
from kilonova.domain.pci import PciAlias
from kilonova.engine.core import Engine
from kilonova.policy.enforcer import Policy
from kilonova.quota.service import Quotas
from kilonova.services.compute.aggregate_book import AggregateBook
from kilonova.services.compute.flavors import Flavors
from kilonova.services.compute.keypairs import Keypairs
from kilonova.services.compute.server_groups import ServerGroups
from kilonova.services.image.service import Images
from kilonova.services.network.service import Networks
from kilonova.services.volume.service import Volumes
from kilonova.settings import Settings
from kilonova.world import Stores


class Services(Protocol):
    """The services that a request may name things of."""

    engine: Engine
    images: Images
    networks: Networks
    volumes: Volumes
    flavors: Flavors
    zones: AggregateBook
    keypairs: Keypairs
    server_groups: ServerGroups
    quotas: Quotas
    policy: Policy
    pci_aliases: Sequence[PciAlias]


@dataclass(slots=True, frozen=True)
class Requester:
    caller: Caller
    cause: Cause
    services: Services

    @property
    def engine(self) -> Engine:
        return self.services.engine

    @property
    def db(self) -> Stores:
        return self.engine.world.db

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    def allows(self, rule: str, *, project_id: str | None = None) -> bool:
        """Return whether the policy allows the rule; by default the target is the caller's own."""
        return self.services.policy.allows(rule, self.caller, project_id=project_id)

    def require(self, rule: str, *, project_id: str | None = None) -> None:
        self.services.policy.require(rule, self.caller, project_id=project_id)
