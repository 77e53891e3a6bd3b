"""Which filters run: by name, in the operator's order, his own among them."""

from __future__ import annotations

import pytest

from kilonova.domain.errors import Refused
from kilonova.scheduler.filters import KNOWN, enabled
from kilonova.scheduler.filters.hosts import AllHostsFilter, ComputeFilter
from kilonova.settings import FilterOptions, Settings
from tests.unit.scheduler.worlds import settings


class OwnFilter(AllHostsFilter):
    name = "OwnFilter"


def test_the_order_is_the_operators() -> None:
    chosen = enabled(settings("AllHostsFilter", "ComputeFilter"))
    assert [filter_.name for filter_ in chosen] == ["AllHostsFilter", "ComputeFilter"]
    assert len({filter_.name for filter_ in KNOWN}) == len(KNOWN)


def test_one_of_his_own() -> None:
    options = FilterOptions(available_filters=(f"{__name__}.OwnFilter",), enabled_filters=("OwnFilter",))
    assert [filter_.name for filter_ in enabled(Settings(filter_scheduler=options))] == ["OwnFilter"]


@pytest.mark.parametrize(
    "path", ["nova.scheduler.filters.compute_filter.ComputeFilter", "kilonova.scheduler.filters.ComputeFilter"]
)
def test_a_known_one_is_found_by_its_name_behind_any_path(path: str) -> None:
    options = FilterOptions(available_filters=(path,), enabled_filters=("ComputeFilter",))
    assert [type(filter_) for filter_ in enabled(Settings(filter_scheduler=options))] == [ComputeFilter]


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(Refused, match="there is no filter RamFilter; there are ComputeFilter"):
        enabled(settings("RamFilter"))
    with pytest.raises(Refused, match=r"nova\.Gone is neither"):
        enabled(Settings(filter_scheduler=FilterOptions(available_filters=("nova.Gone",))))
