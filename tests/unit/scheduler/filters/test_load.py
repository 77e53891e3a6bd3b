"""Filters by the load of hosts."""

from __future__ import annotations

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.filters.load import (
    AggregateIoOpsFilter,
    AggregateNumInstancesFilter,
    IoOpsFilter,
    MetricsFilter,
    NumInstancesFilter,
)
from kilonova.settings import MetricsOptions, Settings
from tests.unit.scheduler.worlds import REQUEST, aggregate, big, passing, said, settings

BUSY = {"a": big(busy=7), "b": big(busy=8)}


def test_fewer_busy_servers_than_allowed() -> None:
    assert passing(IoOpsFilter, BUSY, REQUEST) == ["a"]
    assert passing(IoOpsFilter, BUSY, REQUEST, by=settings(max_io_ops_per_host=9)) == ["a", "b"]
    assert said(IoOpsFilter, BUSY, REQUEST, "b") == "8 servers are being built, moved or saved there, 8 may be"


ALL_BUSY = {name: big(busy=3) for name in ("a", "b", "c")}
BUSY_LIMITS = [
    aggregate(1, "a", max_io_ops_per_host="5"),
    aggregate(2, "a", max_io_ops_per_host="2"),
    aggregate(3, "b", max_io_ops_per_host="many"),
]


def test_the_least_limit_of_busy_servers_counts() -> None:
    assert passing(AggregateIoOpsFilter, ALL_BUSY, REQUEST, aggregates=BUSY_LIMITS) == ["b", "c"]
    by = settings(max_io_ops_per_host=3)
    assert passing(AggregateIoOpsFilter, ALL_BUSY, REQUEST, aggregates=BUSY_LIMITS, by=by) == [], (
        "else the configuration's"
    )
    assert said(AggregateIoOpsFilter, ALL_BUSY, REQUEST, "a", aggregates=BUSY_LIMITS) == (
        "3 servers are being built, moved or saved there, 2 may be by its aggregates"
    )


FULL = {"a": big(servers=49), "b": big(servers=50)}


def test_fewer_servers_than_allowed() -> None:
    assert passing(NumInstancesFilter, FULL, REQUEST) == ["a"]
    assert passing(NumInstancesFilter, FULL, REQUEST, by=settings(max_instances_per_host=10)) == []
    assert said(NumInstancesFilter, FULL, REQUEST, "b") == "has 50 servers, 50 may be there"


ALL_FULL = {name: big(servers=3) for name in ("a", "b", "c")}
LIMITS = [
    aggregate(1, "a", max_instances_per_host="5"),
    aggregate(2, "a", max_instances_per_host="2"),
    aggregate(3, "b", max_instances_per_host="many"),
]


def test_the_least_limit_of_servers_counts() -> None:
    assert passing(AggregateNumInstancesFilter, ALL_FULL, REQUEST, aggregates=LIMITS) == ["b", "c"]
    by = settings(max_instances_per_host=3)
    assert passing(AggregateNumInstancesFilter, ALL_FULL, REQUEST, aggregates=LIMITS, by=by) == [], (
        "else the configuration's"
    )
    assert said(AggregateNumInstancesFilter, ALL_FULL, REQUEST, "a", aggregates=LIMITS) == (
        "3 servers are there, 2 may be by its aggregates"
    )


MEASURED = {"a": big(hypervisor=Hypervisor(metrics={"cpu.percent": 10.0})), "b": big()}


def test_hosts_that_measure() -> None:
    by = Settings(metrics=MetricsOptions(weight_setting=("cpu.percent=-1",)))
    assert passing(MetricsFilter, MEASURED, REQUEST, by=by) == ["a"]
    assert passing(MetricsFilter, MEASURED, REQUEST) == ["a", "b"]
    assert said(MetricsFilter, MEASURED, REQUEST, "b", by=by) == "it reports no cpu.percent"
