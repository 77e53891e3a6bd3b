"""Another image on the host where a server is: only what the image asks for counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.scheduler.in_place import image_needs
from kilonova.scheduler.request import ImageFacts
from kilonova.scheduler.select import Selector
from kilonova.scheduler.verdict import Decision
from kilonova.settings import SchedulerOptions, Settings
from tests.unit.scheduler.worlds import (
    FLAVOR,
    Host,
    Shelf,
    aggregate,
    asked,
    big,
    hosts_of,
    settings,
    sized,
    snapshot_of,
)

HELD = {"p-a": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}}


def judge(
    hosts: dict[str, Host], properties: dict[str, str], *, by: Settings | None = None, held: Any = None, **more: Any
) -> Decision:
    aggregates = more.pop("aggregates", ())
    image = ImageFacts(id="new", format=more.pop("format", "raw"), properties=properties)
    request = asked(image=image, wanted_host="a", server="s", **more)
    parts = (snapshot_of(hosts, aggregates), hosts_of(hosts, aggregates))
    return Selector(by or Settings()).judge_in_place(
        *parts, request, image_needs(request), HELD if held is None else held
    )


def against(decision: Decision) -> dict[str, str]:
    assert decision.chosen is None and decision.changes
    return {verdict.filter: verdict.sentence for verdict in decision.verdicts}


def test_the_host_is_chosen_with_all_verdicts_and_no_claim() -> None:
    decision = judge({"a": big(), "b": big()}, {"hw_architecture": "x86_64"})
    assert decision.chosen is not None and decision.chosen.host == "a" and decision.chosen.allocations == {}
    assert (decision.considered, decision.fitting, decision.complete) == (1, 1, True)
    assert [one.filter for one in decision.verdicts] == ["ImagePropertiesFilter", "image_traits", "image_resources"]
    assert {one.host for one in decision.verdicts} == {"a"}
    assert decision.rule == "the server stays on its host; nothing is claimed"


@pytest.mark.parametrize("state", ["disabled", "draining", "unknown", "returning"])
def test_room_and_state_of_the_host_do_not_matter(state: str) -> None:
    full = sized(vcpus=0, memory_mb=0, disk_gb=0, state=state, accepting=False, traits=("COMPUTE_STATUS_DISABLED",))
    assert judge({"a": full}, {}).chosen is not None


def test_an_architecture_that_the_host_does_not_run() -> None:
    decision = judge({"a": big()}, {"hw_architecture": "aarch64"})
    assert against(decision) == {
        "ImagePropertiesFilter": "does not run what the image asks for: hw_architecture=aarch64"
    }
    assert decision.changes == ("an image without hw_architecture=aarch64",)


def test_only_enabled_filters_judge() -> None:
    assert judge({"a": big()}, {"hw_architecture": "aarch64"}, by=settings("ComputeFilter")).chosen is not None


def test_aggregates_that_say_something_else_of_the_image() -> None:
    windows = aggregate(1, "a", os_distro="windows")
    by = settings("AggregateImagePropertiesIsolation")
    decision = judge({"a": big()}, {"os_distro": "debian"}, by=by, aggregates=[windows])
    assert against(decision) == {
        "AggregateImagePropertiesIsolation": "the image has os_distro=debian, its aggregates say windows"
    }
    assert judge({"a": big()}, {"os_distro": "windows"}, by=by, aggregates=[windows]).chosen is not None


def test_isolated_hosts_take_isolated_images_only() -> None:
    by = settings("IsolatedHostsFilter", isolated_hosts=("a",), isolated_images=("secret",))
    assert "IsolatedHostsFilter" in against(judge({"a": big()}, {}, by=by))


def test_traits_of_the_image_are_those_of_the_providers_that_serve_the_server() -> None:
    gold = {"trait:CUSTOM_GOLD": "required"}
    assert against(judge({"a": big()}, gold)) == {"image_traits": "lacks CUSTOM_GOLD"}
    assert judge({"a": big(traits=("CUSTOM_GOLD",))}, gold).chosen is not None
    # the trait of another host is not its own, and what holds nothing is judged by its host
    both = {"a": big(), "b": big(traits=("CUSTOM_GOLD",))}
    assert against(judge(both, gold)) == against(judge(both, gold, held={})) == {"image_traits": "lacks CUSTOM_GOLD"}
    assert judge({"a": big(traits=("CUSTOM_GOLD",))}, gold, held={}).chosen is not None


def test_a_trait_that_the_flavor_forbids() -> None:
    flavor = msgspec.structs.replace(FLAVOR, extra_specs={"trait:CUSTOM_GOLD": "forbidden"})
    decision = judge({"a": big(traits=("CUSTOM_GOLD",))}, {"trait:CUSTOM_GOLD": "required"}, flavor=flavor)
    assert against(decision) == {"image_traits": "the image requires CUSTOM_GOLD, which the flavor forbids"}


def test_a_trait_of_the_flavor_is_not_asked_again() -> None:
    flavor = msgspec.structs.replace(FLAVOR, extra_specs={"trait:CUSTOM_GOLD": "required"})
    assert judge({"a": big()}, {}, flavor=flavor).chosen is not None


def test_resources_that_the_server_does_not_hold() -> None:
    hosts = {"a": big(shelves={"VCPU": Shelf(64), "MEM_ENCRYPTION_CONTEXT": Shelf(8)})}
    encrypted = {"hw_mem_encryption": "true"}
    assert against(judge(hosts, encrypted)) == {
        "image_resources": "the image needs 1 MEM_ENCRYPTION_CONTEXT, the server holds 0"
    }
    assert judge(hosts, encrypted, held={"p-a": {"MEM_ENCRYPTION_CONTEXT": 1}}).chosen is not None


def test_pre_filters_that_read_the_image() -> None:
    options = SchedulerOptions(query_placement_for_image_type_support=True, enable_isolated_aggregate_filtering=True)
    by = Settings(scheduler=options)
    hosts = {"a": big(traits=("COMPUTE_IMAGE_TYPE_QCOW2", "CUSTOM_GOLD"))}
    assert against(judge(hosts, {}, by=by)) == {"require_image_type_support": "boots no raw images"}
    golden = aggregate(1, "a", **{"trait:CUSTOM_GOLD": "required"})
    asks = {"trait:CUSTOM_GOLD": "required"}
    assert judge(hosts, asks, by=by, aggregates=[golden], format="qcow2").chosen is not None
    assert "isolate_aggregates" in against(judge(hosts, {}, by=by, aggregates=[golden], format="qcow2"))
    assert "packed_virtqueue_filter" in against(judge(hosts, {"hw_virtio_packed_ring": "true"}))


def test_a_host_that_is_in_no_record_is_not_chosen() -> None:
    decision = judge({"b": big()}, {})
    assert (decision.chosen, decision.considered, decision.verdicts) == (None, 0, ())
