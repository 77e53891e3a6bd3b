"""Allocations over REST: the forms of each version, generations, all or nothing; and reshaping."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.unit.api.placement.asked import Asked, run

OWNER = {"project_id": "p", "user_id": "u"}


def claim(at: str, generation: int | None = None, kind: str = "SERVER", **resources: int) -> dict[str, Any]:
    wanted = {at: {"resources": resources}} if resources else {}
    return {"allocations": wanted, **OWNER, "consumer_generation": generation, "consumer_type": kind}


def test_each_version_has_its_form() -> None:
    async def story(ask: Asked) -> None:
        at = await ask.provider("one", VCPU=16)
        one = uuid4()
        listed = {"allocations": [{"resource_provider": {"uuid": at}, "resources": {"VCPU": 1}}]}
        for version, body in (
            ("1.0", listed),
            ("1.8", listed | OWNER),
            ("1.12", {"allocations": {at: {"resources": {"VCPU": 2}}}, **OWNER}),
            ("1.28", {"allocations": {at: {"resources": {"VCPU": 3}}}, **OWNER, "consumer_generation": 3}),
            ("1.38", claim(at, 4, VCPU=4) | {"mappings": {"group": [at]}}),
        ):
            await ask.done("PUT", f"/allocations/{one}", body, at=version, status=204)
        await ask.refused("PUT", f"/allocations/{one}", listed, at="1.8", status=400)
        await ask.refused("PUT", f"/allocations/{one}", listed | OWNER, at="1.12", status=400)
        shown = await ask.done("GET", f"/allocations/{one}")
        assert shown == {
            "allocations": {at: {"generation": 6, "resources": {"VCPU": 4}}},
            **OWNER,
            "consumer_generation": 5,
            "consumer_type": "SERVER",
        }
        assert set(await ask.done("GET", f"/allocations/{one}", at="1.11")) == {"allocations"}

    run(story)


def test_what_nobody_said_is_unknown() -> None:
    async def story(ask: Asked) -> None:
        at, one = await ask.provider("one", VCPU=16), uuid4()
        body = claim(at, VCPU=1)
        del body["consumer_type"]
        await ask.done("PUT", f"/allocations/{one}", body, at="1.37")
        assert (await ask.done("GET", f"/allocations/{one}"))["consumer_type"] == "unknown"
        await ask.done("PUT", f"/allocations/{uuid4()}", claim(at, None, "DISK", VCPU=2))
        used = (await ask.done("GET", "/usages?project_id=p"))["usages"]
        assert used == {"unknown": {"VCPU": 1, "consumer_count": 1}, "DISK": {"VCPU": 2, "consumer_count": 1}}
        everything = (await ask.done("GET", "/usages?project_id=p&consumer_type=all"))["usages"]
        assert everything == {"all": {"VCPU": 3, "consumer_count": 2}}
        assert (await ask.done("GET", "/usages?project_id=p&user_id=other"))["usages"] == {}
        assert (await ask.done("GET", "/usages?project_id=p", at="1.9"))["usages"] == {"VCPU": 3}

    run(story)


def test_a_consumers_generation_is_compared() -> None:
    async def story(ask: Asked) -> None:
        at, one = await ask.provider("one", VCPU=16), f"/allocations/{uuid4()}"
        code = "placement.concurrent_update"
        assert (await ask.refused("PUT", one, claim(at, 1, VCPU=1), status=409))["code"] == code
        await ask.done("PUT", one, claim(at, None, VCPU=1))
        error = await ask.refused("PUT", one, claim(at, None, VCPU=2), status=409)
        assert "consumer generation conflict - expected 1 but got None" in error["detail"]
        await ask.done("PUT", one, claim(at, 1))
        assert await ask.done("GET", one) == {"allocations": {}}
        await ask.refused("DELETE", one, status=404)
        await ask.done("PUT", one, claim(at, None, VCPU=1))

    run(story)


def test_what_is_not_to_be_had_is_a_conflict_without_a_code() -> None:
    async def story(ask: Asked) -> None:
        at, one = await ask.provider("one", VCPU=8), f"/allocations/{uuid4()}"
        offer = {"resource_class": "DISK_GB", "total": 100, "min_unit": 10, "max_unit": 50, "step_size": 10}
        await ask.done("POST", f"/resource_providers/{at}/inventories", offer, status=201)
        for resources in ({"VCPU": 9}, {"DISK_GB": 5}, {"DISK_GB": 60}, {"DISK_GB": 15}, {"MEMORY_MB": 1}):
            error = await ask.refused("PUT", one, claim(at, None, **resources), status=409)
            assert error["code"] == "placement.undefined_code"
            assert error["detail"].startswith("Unable to allocate inventory: ")
        for body, words in (
            (claim(at, None, CUSTOM_NOTHING=1), "No such resource class CUSTOM_NOTHING"),
            (claim(str(uuid4()), None, VCPU=1), "that does not exist"),
        ):
            assert words in (await ask.refused("PUT", one, body, status=400))["detail"]
        await ask.refused("PUT", "/allocations/me", claim(at, None, VCPU=1), status=400)
        assert (await ask.done("GET", f"/resource_providers/{at}/usages"))["usages"] == {"VCPU": 0, "DISK_GB": 0}
        huge = claim(at, None, VCPU=10**30)
        await ask.refused("PUT", one, huge, status=409)

    run(story)


def test_several_are_written_together_or_not_at_all() -> None:
    async def story(ask: Asked) -> None:
        at, first, second = await ask.provider("one", VCPU=8), str(uuid4()), str(uuid4())
        await ask.refused(
            "POST", "/allocations", {first: claim(at, None, VCPU=4), second: claim(at, None, VCPU=5)}, status=409
        )
        assert await ask.done("GET", f"/allocations/{first}") == {"allocations": {}}
        await ask.done("POST", "/allocations", {first: claim(at, None, VCPU=8)}, status=204)
        move = {first: claim(at, 1), second: claim(at, None, VCPU=8)}  # changes hands on a full provider
        await ask.done("POST", "/allocations", move, status=204)
        held = (await ask.done("GET", f"/resource_providers/{at}/allocations"))["allocations"]
        assert held == {second: {"resources": {"VCPU": 8}, "consumer_generation": 1}}

    run(story)


def test_a_provider_that_is_given_something_changes_its_generation_and_one_that_is_left_does_not() -> None:
    async def story(ask: Asked) -> None:
        first, second, one = await ask.provider("one", VCPU=8), await ask.provider("two", VCPU=8), uuid4()
        await ask.done("PUT", f"/allocations/{one}", claim(first, None, VCPU=1))
        await ask.done("PUT", f"/allocations/{one}", claim(first, 1, VCPU=1))  # the same again
        assert (await ask.generation(first), await ask.generation(second)) == (3, 1)
        await ask.done("PUT", f"/allocations/{one}", claim(second, 2, VCPU=1))
        assert (await ask.generation(first), await ask.generation(second)) == (3, 2)
        await ask.done("DELETE", f"/allocations/{one}")
        assert (await ask.generation(first), await ask.generation(second)) == (3, 2)

    run(story)


def test_reshaping_moves_inventories_with_what_is_held_of_them() -> None:
    async def story(ask: Asked) -> None:
        root, one = await ask.provider("root", VCPU=8, DISK_GB=100), str(uuid4())
        child = await ask.provider("child", root)
        await ask.done("PUT", f"/allocations/{one}", claim(root, None, VCPU=4, DISK_GB=10))

        def shapes(generation: int, **more: Any) -> dict[str, Any]:
            disk = {"resource_provider_generation": generation, "inventories": {"DISK_GB": {"total": 100}}}
            cpus = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
            return {"inventories": {root: disk, child: cpus}, "allocations": more}

        moved = claim(root, 1, DISK_GB=10)
        moved["allocations"][child] = {"resources": {"VCPU": 4}}
        for body, code in (
            (shapes(3), "placement.inventory.inuse"),
            (shapes(2, **{one: moved}), "placement.concurrent_update"),
            (shapes(3, **{one: moved | {"consumer_generation": 7}}), "placement.concurrent_update"),
        ):
            assert (await ask.refused("POST", "/reshaper", body, status=409))["code"] == code
        unknown = {"inventories": {str(uuid4()): shapes(3)["inventories"][root]}, "allocations": {}}
        error = await ask.refused("POST", "/reshaper", unknown, status=400)
        assert error["code"] == "placement.resource_provider.not_found"
        await ask.done("POST", "/reshaper", shapes(3, **{one: moved}), status=204)
        for uuid, used in ((root, {"DISK_GB": 10}), (child, {"VCPU": 4})):
            assert (await ask.done("GET", f"/resource_providers/{uuid}/usages"))["usages"] == used

    run(story)
