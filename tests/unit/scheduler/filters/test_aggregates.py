"""Filters by metadata of aggregates."""

from __future__ import annotations

import pytest

from kilonova.scheduler.filters.aggregates import (
    AggregateImagePropertiesIsolation,
    AggregateInstanceExtraSpecsFilter,
    AggregateMultiTenancyIsolation,
    AggregateTypeAffinityFilter,
    Reserved,
)
from kilonova.scheduler.request import ImageFacts
from tests.unit.scheduler.worlds import REQUEST, aggregate, asked, big, passing, said, settings, with_specs

HOSTS = {name: big() for name in ("a", "b", "c")}
WITH_SPECS = [aggregate(1, "a", "b", ssd="yes", cores="8"), aggregate(2, "b", ssd="fast,faster")]


def test_hosts_that_are_reserved_for_evacuations() -> None:
    reserved = [aggregate(1, "a", **{"kilonova:reserved_for": "evacuation"}), aggregate(2, "b", ssd="yes")]
    assert passing(Reserved, HOSTS, asked(), aggregates=reserved) == ["b", "c"]
    assert passing(Reserved, HOSTS, asked(rescue=True), aggregates=reserved) == ["a", "b", "c"]
    assert said(Reserved, HOSTS, asked(), "a", aggregates=reserved) == "it is reserved for evacuations"


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"ssd": "yes"}, ["a", "b"]),
        ({"ssd": "faster"}, ["b"]),
        ({"aggregate_instance_extra_specs__cores": ">= 8"}, ["a", "b"]),
        ({"aggregate_instance_extra_specs__cores": ">= 9"}, []),
        ({"ssd": "!"}, ["c"]),
        ({"hw__cpu_policy": "dedicated"}, ["a", "b", "c"]),
    ],
)
def test_flavors_and_aggregates(specs: dict[str, str], expected: list[str]) -> None:
    assert passing(AggregateInstanceExtraSpecsFilter, HOSTS, with_specs(**specs), aggregates=WITH_SPECS) == expected


def test_the_sentence_has_both() -> None:
    words = said(AggregateInstanceExtraSpecsFilter, HOSTS, with_specs(ssd="slow"), "b", aggregates=WITH_SPECS)
    assert words == "the flavor asks for ssd 'slow', its aggregates say fast, faster, yes"


WITH_IMAGES = [aggregate(1, "a", os_distro="windows"), aggregate(2, "b", os_distro="linux,bsd")]
LINUX = asked(image=ImageFacts("i", "", {"os_distro": "linux", "other": "x"}))


def test_where_both_say_something_they_agree() -> None:
    assert passing(AggregateImagePropertiesIsolation, HOSTS, LINUX, aggregates=WITH_IMAGES) == ["b", "c"]
    assert passing(AggregateImagePropertiesIsolation, HOSTS, asked(), aggregates=WITH_IMAGES) == ["a", "b", "c"]
    words = said(AggregateImagePropertiesIsolation, HOSTS, LINUX, "a", aggregates=WITH_IMAGES)
    assert words == "the image has os_distro=linux, its aggregates say windows"


def test_only_what_is_in_the_namespace_counts() -> None:
    by = settings(aggregate_image_properties_isolation_namespace="os")
    assert passing(AggregateImagePropertiesIsolation, HOSTS, LINUX, aggregates=WITH_IMAGES, by=by) == ["a", "b", "c"]
    by = settings(
        aggregate_image_properties_isolation_namespace="os", aggregate_image_properties_isolation_separator="_"
    )
    assert passing(AggregateImagePropertiesIsolation, HOSTS, LINUX, aggregates=WITH_IMAGES, by=by) == ["b", "c"]


WITH_PROJECTS = [aggregate(1, "a", filter_tenant_id="p1,p2"), aggregate(2, "b", filter_tenant_id3="p3")]


def test_hosts_of_a_project() -> None:
    for project, expected in (("p1", ["a", "c"]), ("p3", ["b", "c"]), ("p9", ["c"])):
        request = asked(project=project)
        assert passing(AggregateMultiTenancyIsolation, HOSTS, request, aggregates=WITH_PROJECTS) == expected
    words = said(AggregateMultiTenancyIsolation, HOSTS, asked(project="p9"), "a", aggregates=WITH_PROJECTS)
    assert words == "its aggregates take 2 projects; p9 is not among them"


WITH_FLAVORS = [aggregate(1, "a", instance_type="m1, m2"), aggregate(2, "b", instance_type="m3")]


def test_hosts_of_a_flavor() -> None:
    assert REQUEST.flavor.name == "m1"
    assert passing(AggregateTypeAffinityFilter, HOSTS, REQUEST, aggregates=WITH_FLAVORS) == ["a", "c"]
    words = said(AggregateTypeAffinityFilter, HOSTS, REQUEST, "b", aggregates=WITH_FLAVORS)
    assert words == "its aggregates take m3; the flavor is m1"
