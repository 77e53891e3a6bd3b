"""Providers, inventories, aggregates, traits and classes over REST, where a version or a refusal makes a difference."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.unit.api.placement.asked import Asked, run

LINKS = {"1.0": 3, "1.1": 4, "1.6": 5, "1.11": 6}


def test_a_provider_is_shown_with_what_its_version_knows() -> None:
    async def story(ask: Asked) -> None:
        root = await ask.provider("root")
        child = await ask.provider("child", root)
        for at, links in LINKS.items():
            shown = await ask.done("GET", f"/resource_providers/{child}", at=at)
            assert len(shown["links"]) == links and "root_provider_uuid" not in shown
        shown = await ask.done("GET", f"/resource_providers/{child}")
        assert (shown["parent_provider_uuid"], shown["root_provider_uuid"]) == (root, root)
        dashless = uuid4().hex
        await ask.done("POST", "/resource_providers", {"name": "plain", "uuid": dashless}, at="1.19", status=201)
        made = await ask.done("GET", "/resource_providers?name=plain")
        assert made["resource_providers"][0]["uuid"].replace("-", "") == dashless

    run(story)


def test_names_and_uuids_are_taken_once() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one")
        other = await ask.provider("two")
        for body in ({"name": "one"}, {"name": "three", "uuid": uuid}):
            error = await ask.refused("POST", "/resource_providers", body, status=409)
            assert error["code"] == "placement.duplicate_name"
        error = await ask.refused("PUT", f"/resource_providers/{other}", {"name": "one"}, status=409)
        assert error["code"] == "placement.duplicate_name"
        renamed = await ask.done("PUT", f"/resource_providers/{other}", {"name": "two again"})
        assert (renamed["name"], renamed["generation"]) == ("two again", 0)

    run(story)


def test_a_provider_with_children_or_claims_stays() -> None:
    async def story(ask: Asked) -> None:
        root = await ask.provider("root")
        child = await ask.provider("child", root, VCPU=4)
        body = {"allocations": {child: {"resources": {"VCPU": 1}}}, "project_id": "p", "user_id": "u"}
        one = f"/allocations/{uuid4()}"
        await ask.done("PUT", one, body, at="1.27")
        error = await ask.refused("DELETE", f"/resource_providers/{root}", status=409)
        assert error["code"] == "placement.resource_provider.cannot_delete_parent"
        error = await ask.refused("DELETE", f"/resource_providers/{child}", status=409)
        assert error["code"] == "placement.resource_provider.inuse"
        await ask.done("DELETE", one)
        for uuid in (child, root):
            await ask.done("DELETE", f"/resource_providers/{uuid}", status=204)
        await ask.refused("DELETE", f"/resource_providers/{root}", status=404)

    run(story)


@pytest.mark.parametrize(("at", "reserved", "status"), [("1.25", 8, 400), ("1.26", 8, 200), ("1.26", 9, 400)])
def test_how_much_may_be_reserved(at: str, reserved: int, status: int) -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one", VCPU=8)
        body = {"resource_provider_generation": 1, "total": 8, "reserved": reserved}
        answer = await ask("PUT", f"/resource_providers/{uuid}/inventories/VCPU", body, at=at)
        assert answer.status_code == status, answer.text

    run(story)


def test_inventories_are_guarded_by_the_providers_generation() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one", VCPU=8)
        path = f"/resource_providers/{uuid}/inventories"
        both = {"VCPU": {"total": 4, "allocation_ratio": 16}, "DISK_GB": {"total": 10}}
        error = await ask.refused("PUT", path, {"resource_provider_generation": 0, "inventories": both}, status=409)
        assert error["code"] == "placement.concurrent_update" and "actual: 1, given: 0" in error["detail"]
        put = await ask.done("PUT", path, {"resource_provider_generation": 1, "inventories": both})
        assert put == await ask.done("GET", path)
        assert put["resource_provider_generation"] == 2 and put["inventories"]["VCPU"]["allocation_ratio"] == 16.0
        twice = {"resource_class": "VCPU", "total": 1}
        assert (await ask.refused("POST", path, twice, status=409))["code"] == "placement.concurrent_update"
        await ask.refused("POST", path, twice | {"resource_class": "CUSTOM_NOTHING"}, status=400)
        for name, status in (("MEMORY_MB", 400), ("CUSTOM_NOTHING", 404)):
            body = {"resource_provider_generation": 2, "total": 1}
            await ask.refused("PUT", f"{path}/{name}", body, status=status)
            await ask.refused("GET", f"{path}/{name}", status=404)
            await ask.refused("DELETE", f"{path}/{name}", status=404)
        await ask.done("DELETE", f"{path}/VCPU", status=204)
        await ask.done("DELETE", path, status=204)
        assert await ask.done("GET", path) == {"inventories": {}, "resource_provider_generation": 4}

    run(story)


def test_what_is_held_cannot_be_taken_from_under_it() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one", VCPU=8, DISK_GB=10)
        path = f"/resource_providers/{uuid}/inventories"
        body = {"allocations": {uuid: {"resources": {"VCPU": 6}}}, "project_id": "p", "user_id": "u"}
        await ask.done("PUT", f"/allocations/{uuid4()}", body, at="1.27")
        for method, at, content in (
            ("PUT", path, {"resource_provider_generation": 3, "inventories": {}}),
            ("DELETE", path, None),
        ):
            error = await ask.refused(method, at, content, status=409)
            assert error["code"] == "placement.inventory.inuse" and "'VCPU'" in error["detail"]
        assert (await ask.refused("DELETE", f"{path}/VCPU", status=409))["code"] == "placement.concurrent_update"
        await ask.done("DELETE", f"{path}/DISK_GB", status=204)
        shrunk = await ask.done("PUT", f"{path}/VCPU", {"resource_provider_generation": 4, "total": 2})
        assert shrunk["total"] == 2  # less than is used: an operator may know better
        assert (await ask.done("GET", f"/resource_providers/{uuid}/usages"))["usages"] == {"VCPU": 6}

    run(story)


def test_aggregates_have_a_generation_from_1_19_on() -> None:
    async def story(ask: Asked) -> None:
        uuid, one = await ask.provider("one"), str(uuid4())
        path = f"/resource_providers/{uuid}/aggregates"
        assert await ask.done("PUT", path, [one], at="1.1") == {"aggregates": [one]}
        assert await ask.generation(uuid) == 0
        body = {"aggregates": [], "resource_provider_generation": 1}
        await ask.refused("PUT", path, body, status=409)
        assert await ask.done("PUT", path, body | {"resource_provider_generation": 0}) == body
        await ask.refused("PUT", path, [one, one], at="1.1", status=400)

    run(story)


def test_traits_standard_and_custom() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one")
        path = f"/resource_providers/{uuid}/traits"
        await ask.done("GET", "/traits/HW_CPU_X86_AVX", status=204)  # nobody has ever written it
        for name, status in (("CUSTOM_A", 201), ("CUSTOM_A", 204), ("HW_CPU_X86_AVX", 400), ("CUSTOM_", 400)):
            answer = await ask("PUT", f"/traits/{name}")
            assert answer.status_code == status, name
        body = {"traits": ["CUSTOM_A", "HW_CPU_X86_AVX"], "resource_provider_generation": 0}
        put = await ask.done("PUT", path, body)
        assert put == body | {"resource_provider_generation": 1}
        assert (await ask.done("PUT", path, put)) == put  # the same again changes nothing
        await ask.refused("PUT", path, put | {"traits": ["CUSTOM_B"]}, status=400)
        await ask.refused("PUT", path, body, status=409)
        await ask.refused("DELETE", "/traits/CUSTOM_A", status=409)
        await ask.refused("DELETE", "/traits/HW_CPU_X86_AVX", status=400)
        held = (await ask.done("GET", "/traits?associated=true"))["traits"]
        assert held == body["traits"]
        free = (await ask.done("GET", "/traits?associated=false"))["traits"]
        assert len(free) > 300 and not set(free) & set(held)
        assert (await ask.done("GET", "/traits?name=startswith:CUSTOM_"))["traits"] == ["CUSTOM_A"]
        assert (await ask.done("GET", "/traits?name=in:CUSTOM_A,CUSTOM_Z"))["traits"] == ["CUSTOM_A"]
        await ask.done("DELETE", path, status=204)
        await ask.done("DELETE", "/traits/CUSTOM_A", status=204)
        await ask.refused("GET", "/traits/CUSTOM_A", status=404)

    run(story)


def test_classes_standard_and_custom() -> None:
    async def story(ask: Asked) -> None:
        listed = [each["name"] for each in (await ask.done("GET", "/resource_classes"))["resource_classes"]]
        assert listed[:3] == ["VCPU", "MEMORY_MB", "DISK_GB"] and len(listed) > 15
        await ask.done("POST", "/resource_classes", {"name": "CUSTOM_A"}, status=201)
        await ask.refused("POST", "/resource_classes", {"name": "CUSTOM_A"}, status=409)
        await ask.refused("POST", "/resource_classes", {"name": "IRON"}, status=400)
        uuid = await ask.provider("one", CUSTOM_A=5)
        await ask.refused("DELETE", "/resource_classes/CUSTOM_A", status=409)
        await ask.done("PUT", "/resource_classes/CUSTOM_A", {"name": "CUSTOM_B"}, at="1.6", status=200)
        inventories = (await ask.done("GET", f"/resource_providers/{uuid}/inventories"))["inventories"]
        assert list(inventories) == ["CUSTOM_B"]
        await ask.refused("PUT", "/resource_classes/CUSTOM_B", {"name": "CUSTOM_B"}, at="1.1", status=404)
        await ask.refused("PUT", "/resource_classes/VCPU", {"name": "CUSTOM_C"}, at="1.6", status=400)
        for name, status in (("CUSTOM_C", 201), ("CUSTOM_C", 204), ("VCPU", 400)):
            assert (await ask("PUT", f"/resource_classes/{name}")).status_code == status
        await ask.done("DELETE", "/resource_classes/CUSTOM_C", status=204)
        await ask.refused("DELETE", "/resource_classes/CUSTOM_C", status=404)
        await ask.refused("DELETE", "/resource_classes/VCPU", status=400)

    run(story)
