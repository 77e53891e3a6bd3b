"""AggregateImagePropertiesIsolation."""

from __future__ import annotations

from kilonova.scheduler.filters.aggregate_image_properties import AggregateImagePropertiesIsolation
from kilonova.scheduler.request import Image
from tests.unit.scheduler.worlds import aggregate, asked, big, passing, said, settings

HOSTS = {name: big() for name in ("a", "b", "c")}
AGGREGATES = [aggregate(1, "a", os_distro="windows"), aggregate(2, "b", os_distro="linux,bsd")]
LINUX = asked(image=Image("i", "", {"os_distro": "linux", "other": "x"}))


def test_where_both_say_something_they_agree() -> None:
    assert passing(AggregateImagePropertiesIsolation, HOSTS, LINUX, aggregates=AGGREGATES) == ["b", "c"]
    assert passing(AggregateImagePropertiesIsolation, HOSTS, asked(), aggregates=AGGREGATES) == ["a", "b", "c"]
    words = said(AggregateImagePropertiesIsolation, HOSTS, LINUX, "a", aggregates=AGGREGATES)
    assert words == "the image has os_distro=linux, its aggregates say windows"


def test_only_what_is_in_the_namespace_counts() -> None:
    by = settings(aggregate_image_properties_isolation_namespace="os")
    assert passing(AggregateImagePropertiesIsolation, HOSTS, LINUX, aggregates=AGGREGATES, by=by) == ["a", "b", "c"]
    by = settings(
        aggregate_image_properties_isolation_namespace="os", aggregate_image_properties_isolation_separator="_"
    )
    assert passing(AggregateImagePropertiesIsolation, HOSTS, LINUX, aggregates=AGGREGATES, by=by) == ["b", "c"]
