"""Pre-filters: one file per subject. They turn options and the request into demands on a host's root provider, before
any host is judged. A forced host must fulfil them too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.prefilters.aggregates import IsolatedAggregates, TenantAggregate, Zone
from kilonova.scheduler.prefilters.traits import FEATURES, ComputeStatus, ImageMetadata, ImageType
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings


class PreFilter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def option(self) -> str:
        """The option of [scheduler] that enables the pre-filter. Empty: it always runs."""

    @property
    def for_rebuild(self) -> bool:
        """Return True if the pre-filter reads the image: it then also judges the host of a rebuild from another
        image."""

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
    """Return the demands of all enabled pre-filters. `rebuilding`: only those that depend on the image."""
    known = list(aggregates)
    candidates = (
        prefilter.demand(request, known, settings)
        for prefilter in PREFILTERS
        if (not prefilter.option or getattr(settings.scheduler, prefilter.option))
        and (prefilter.for_rebuild or not rebuilding)
    )
    return [demand for demand in candidates if demand is not None]
