"""Pre-filters: one small file each. They turn options and what is asked for into demands on a host's root provider,
before any host is looked at; also a forced host has to fulfil them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.prefilters.compute_status import ComputeStatus
from kilonova.scheduler.prefilters.features import FEATURES
from kilonova.scheduler.prefilters.image_metadata import ImageMetadata
from kilonova.scheduler.prefilters.image_type import ImageType
from kilonova.scheduler.prefilters.isolated_aggregates import IsolatedAggregates
from kilonova.scheduler.prefilters.tenant_aggregate import TenantAggregate
from kilonova.scheduler.prefilters.zone import Zone
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings


class PreFilter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def option(self) -> str:
        """Of [scheduler]: it turns the pre-filter on. Empty: it always is."""

    @property
    def for_rebuild(self) -> bool:
        """It reads the image, so it also judges the host of a server that is rebuilt there from another one."""

    def demand(
        self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings
    ) -> Demand | None: ...


PREFILTERS: tuple[PreFilter, ...] = (
    TenantAggregate(),
    Zone(),
    ImageType(),
    ComputeStatus(),
    IsolatedAggregates(),
    ImageMetadata(),
    *FEATURES,
)


def demands(
    request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings, *, rebuilding: bool = False
) -> list[Demand]:
    """`rebuilding`: only what another image can change."""
    known = list(aggregates)
    asked = (
        prefilter.demand(request, known, settings)
        for prefilter in PREFILTERS
        if (not prefilter.option or getattr(settings.scheduler, prefilter.option))
        and (prefilter.for_rebuild or not rebuilding)
    )
    return [demand for demand in asked if demand is not None]
