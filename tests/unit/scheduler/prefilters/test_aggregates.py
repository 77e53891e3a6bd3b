"""Pre-filters that demand aggregates: what turns each on, and which hosts it leaves."""

from __future__ import annotations

from tests.unit.scheduler.worlds import aggregate, asked, big, fitting, with_specs

HOSTS = {"a": big(), "b": big(), "c": big()}


def test_a_zone_is_its_aggregates() -> None:
    zones = [aggregate(1, "a", availability_zone="east"), aggregate(2, "b", availability_zone="west")]
    assert fitting(HOSTS, asked(zone="east"), aggregates=zones) == ["a"]
    assert fitting(HOSTS, asked(zone="nova"), aggregates=zones) == ["a", "b", "c"], "no aggregate carries it"
    assert fitting(HOSTS, asked(), aggregates=zones) == ["a", "b", "c"]


def test_projects_with_aggregates_of_their_own() -> None:
    own = [aggregate(1, "a", filter_tenant_id="p1"), aggregate(2, "b", filter_tenant_id_2="p1")]
    on = {"limit_tenants_to_placement_aggregate": True}
    assert fitting(HOSTS, asked(project="p1"), aggregates=own) == ["a", "b", "c"]
    assert fitting(HOSTS, asked(project="p1"), aggregates=own, **on) == ["a", "b"]
    assert fitting(HOSTS, asked(project="p2"), aggregates=own, **on) == ["a", "b", "c"]
    on["placement_aggregate_required_for_tenants"] = True
    assert fitting(HOSTS, asked(project="p2"), aggregates=own, **on) == []


def test_aggregates_that_require_traits() -> None:
    gold = [aggregate(1, "a", **{"trait:CUSTOM_GOLD": "required"})]
    hosts = {"a": big(traits=("CUSTOM_GOLD",)), "b": big()}
    on = {"enable_isolated_aggregate_filtering": True}
    assert fitting(hosts, asked(), gold) == ["a", "b"]
    assert fitting(hosts, asked(), gold, **on) == ["b"]
    assert fitting(hosts, with_specs(trait__CUSTOM_GOLD="required"), gold, **on) == ["a"]
