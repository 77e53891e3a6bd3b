"""What allocation candidates and lists of providers look like in each version."""

from __future__ import annotations

import json
import random
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.api.placement import candidates
from kilonova.api.placement.summaries import summary_texts
from kilonova.placement.candidates import Options, find
from tests.placement.worlds import World, random_query, random_world, snapshot_of_world
from tests.unit.api.placement.asked import Asked, run

ONE = "/allocation_candidates?resources=VCPU:2"


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([10, 12, 17, 27, 29, 34, 39]))
def test_the_text_is_what_was_found(chance: random.Random, version: int) -> None:
    """It is written by hand, so it is read back here and compared with the records it is about."""
    world = random_world(chance)
    query = random_query(chance, world, version)
    snapshot = snapshot_of_world(world)
    found = find(snapshot, query, Options(), chance)
    requests = ",".join(candidates._requests(snapshot, found.candidates, (1, version)))
    classes = {name for group in query.groups for name in group.resources}
    summaries = b"".join(summary_texts(snapshot, found.summaries, classes, (1, version))).decode()
    uuids = snapshot.uuids
    expected = []
    for allocations, mappings in found.candidates:
        given_ = {uuids[at]: {"resources": resources} for at, resources in allocations.items()}
        listed = [{"resource_provider": {"uuid": uuid}, **each} for uuid, each in given_.items()]
        served = {suffix: [uuids[at] for at in places] for suffix, places in mappings.items()}
        expected.append(
            {"allocations": given_ if version >= 12 else listed} | ({"mappings": served} if version >= 34 else {})
        )
    assert json.loads(f"[{requests}]") == expected
    assert json.loads(f"{{{summaries}}}") == {
        uuids[at]: summary(world, uuids[at], version, classes) for at in found.summaries
    }


def summary(world: World, uuid: str, version: int, classes: set[str]) -> dict[str, Any]:
    provider = world.providers[uuid]
    shown: dict[str, Any] = {
        "resources": {
            name: {"capacity": offer.capacity, "used": offer.used}
            for name, offer in provider.offers.items()
            if version >= 27 or name in classes
        }
    }
    if version >= 17:
        shown["traits"] = sorted(provider.traits, key=lambda name: (name.startswith("CUSTOM_"), name))
    if version >= 29:
        shown |= {"parent_provider_uuid": provider.parent, "root_provider_uuid": world.root(uuid)}
    return shown


def test_what_each_version_shows() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("a", VCPU=4, MEMORY_MB=100)
        await ask.refused("GET", ONE, at="1.9", status=404)
        listed = {"resource_provider": {"uuid": uuid}, "resources": {"VCPU": 2}}
        by_uuid = {uuid: {"resources": {"VCPU": 2}}}
        vcpu, memory = {"VCPU": {"capacity": 4, "used": 0}}, {"MEMORY_MB": {"capacity": 100, "used": 0}}
        family = {"parent_provider_uuid": None, "root_provider_uuid": uuid}
        for at, request, about in (
            ("1.10", {"allocations": [listed]}, {"resources": vcpu}),
            ("1.12", {"allocations": by_uuid}, {"resources": vcpu}),
            ("1.17", {"allocations": by_uuid}, {"resources": vcpu, "traits": []}),
            ("1.27", {"allocations": by_uuid}, {"resources": vcpu | memory, "traits": []}),
            ("1.29", {"allocations": by_uuid}, {"resources": vcpu | memory, "traits": [], **family}),
            (
                "1.34",
                {"allocations": by_uuid, "mappings": {"": [uuid]}},
                {"resources": vcpu | memory, "traits": []} | family,
            ),
        ):
            answer = await ask.done("GET", ONE, at=at)
            assert answer == {"allocation_requests": [request], "provider_summaries": {uuid: about}}, at

    run(story)


@pytest.mark.parametrize("path", [ONE, "/resource_providers"])
def test_answers_are_not_to_be_kept(path: str) -> None:
    async def story(ask: Asked) -> None:
        await ask.provider("a", VCPU=4)
        old, new = await ask("GET", path, at="1.14"), await ask("GET", path, at="1.15")
        assert "last-modified" not in old.headers and "cache-control" not in old.headers
        assert new.headers["cache-control"] == "no-cache" and parsedate_to_datetime(new.headers["last-modified"])

    run(story)


def test_a_write_is_seen_by_the_next_question() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("a", VCPU=4)
        claim = {"allocations": {uuid: {"resources": {"VCPU": 3}}}, "project_id": "p", "user_id": "u"}
        claim |= {"consumer_generation": None, "consumer_type": "INSTANCE"}
        consumer = "c0000000-0000-0000-0000-000000000001"
        for _ in range(3):
            assert len((await ask.done("GET", ONE))["allocation_requests"]) == 1
            await ask.done("PUT", f"/allocations/{consumer}", claim)
            assert (await ask.done("GET", ONE))["allocation_requests"] == []
            await ask.done("DELETE", f"/allocations/{consumer}")
        await ask.done("DELETE", f"/resource_providers/{uuid}")
        assert await ask.done("GET", "/resource_providers") == {"resource_providers": []}
        assert (await ask.done("GET", ONE))["allocation_requests"] == []

    run(story)


def test_a_list_of_providers_by_everything_that_can_be_asked() -> None:
    async def story(ask: Asked) -> None:
        root = await ask.provider('with "quotes" and ☃', VCPU=4)
        child = await ask.provider("child", root, VCPU=2)
        other = await ask.provider("other", VCPU=8)
        aggregate = "a0000000-0000-0000-0000-000000000001"
        body = {"resource_provider_generation": await ask.generation(child), "aggregates": [aggregate]}
        await ask.done("PUT", f"/resource_providers/{child}/aggregates", body)
        body = {"resource_provider_generation": await ask.generation(other), "traits": ["COMPUTE_NODE"]}
        await ask.done("PUT", f"/resource_providers/{other}/traits", body)
        for query, expected in (
            ("", {root, child, other}),
            ("name=child", {child}),
            ("name=with+%22quotes%22+and+%E2%98%83", {root}),
            (f"uuid={other}", {other}),
            (f"uuid={other}&name=child", set()),
            (f"in_tree={child}", {root, child}),
            (f"in_tree={aggregate}", set()),
            (f"member_of={aggregate}", {child}),
            (f"member_of=!{aggregate}", {root, other}),
            ("required=COMPUTE_NODE", {other}),
            ("required=!COMPUTE_NODE", {root, child}),
            ("required=in:COMPUTE_NODE,HW_CPU_X86_VMX&resources=VCPU:8", {other}),
            ("resources=VCPU:3", {root, other}),
            ("resources=VCPU:99999999999999999999", set()),
        ):
            found = (await ask.done("GET", f"/resource_providers?{query}"))["resource_providers"]
            assert {each["uuid"] for each in found} == expected, query
            for each in found:
                assert each == await ask.done("GET", f"/resource_providers/{each['uuid']}")
                old = await ask.done("GET", f"/resource_providers?uuid={each['uuid']}", at="1.0")
                assert old["resource_providers"] == [
                    await ask.done("GET", f"/resource_providers/{each['uuid']}", at="1.0")
                ]

    run(story)
