"""Flavors for some: os-flavor-access, addTenantAccess, removeTenantAccess."""

from __future__ import annotations

from typing import Any

from tests.unit.api.compute.cloud import Cloud, run

ACCESS, ACTION = "/flavors/p/os-flavor-access", "/flavors/p/action"


async def make_private(cloud: Cloud) -> None:
    wish = {"name": "p", "id": "p", "ram": 64, "vcpus": 1, "disk": 1, "os-flavor-access:is_public": "False"}
    await cloud.does("admin", "POST", "/flavors", {"flavor": wish})


def add(project: Any) -> dict[str, Any]:
    return {"addTenantAccess": {"tenant": project}}


def remove(project: Any) -> dict[str, Any]:
    return {"removeTenantAccess": {"tenant": project}}


def test_a_project_gets_and_loses_it() -> None:
    async def story(cloud: Cloud) -> None:
        await make_private(cloud)
        theirs = cloud.projects["theirs"]
        entry = {"flavor_id": "p", "tenant_id": theirs}
        assert await cloud.get("admin", ACCESS) == {"flavor_access": []}
        assert await cloud.refuses("stranger", "GET", "/flavors/p", status=404)
        assert await cloud.does("admin", "POST", ACTION, add(theirs)) == {"flavor_access": [entry]}
        assert await cloud.get("admin", ACCESS) == {"flavor_access": [entry]}
        listed = [one["id"] for one in (await cloud.get("stranger", "/flavors"))["flavors"]]
        assert "p" in listed and (await cloud.get("stranger", "/flavors/p"))["flavor"]["id"] == "p"
        assert await cloud.refuses("member", "GET", "/flavors/p", status=404)
        said = await cloud.refuses("admin", "POST", ACTION, add(theirs), status=409)
        assert said == f"Flavor access already exists for flavor p and project {theirs} combination."
        assert await cloud.does("admin", "POST", ACTION, remove(theirs)) == {"flavor_access": []}
        assert await cloud.refuses("stranger", "GET", "/flavors/p", status=404)
        assert await cloud.refuses("admin", "POST", ACTION, remove(theirs), status=404)

    run(story)


def test_what_is_refused() -> None:
    async def story(cloud: Cloud) -> None:
        await make_private(cloud)
        mine = cloud.projects["mine"]
        assert await cloud.refuses("admin", "POST", ACTION, add("nix")) == "Project ID nix is not a valid project."
        assert await cloud.refuses("admin", "POST", ACTION, add("default"))  # a domain
        assert await cloud.refuses("admin", "POST", ACTION, remove("nix"), status=404)
        said = await cloud.refuses("admin", "GET", "/flavors/1/os-flavor-access", status=404)
        assert said == "Access list not available for public flavors."
        for wish in (add(""), add(5), add("x" * 256), add(None), {"addTenantAccess": {}}, {"other": {}}, {}, []):
            assert await cloud.refuses("admin", "POST", ACTION, wish), wish
        assert await cloud.refuses("admin", "POST", ACTION, {**add(mine), **remove(mine)})
        assert await cloud.refuses("admin", "POST", "/flavors/none/action", add(mine), status=404)
        # a public one has no list, but only from 2.7 on somebody is told so
        public = "/flavors/1/action"
        await cloud.does("admin", "POST", public, add(mine), at="2.6")
        said = await cloud.refuses("admin", "POST", public, add(mine), at="2.7", status=409)
        assert said == "Can not add access to a public flavor."
        assert await cloud.get("admin", ACCESS) == {"flavor_access": []}

    run(story)


def test_only_administrators() -> None:
    async def story(cloud: Cloud) -> None:
        await make_private(cloud)
        for who in ("manager", "member", "reader", "service", "stranger"):
            assert await cloud.refuses(who, "GET", ACCESS, status=403)
            assert await cloud.refuses(who, "POST", ACTION, add(cloud.projects["mine"]), status=403)
            assert await cloud.refuses(who, "POST", ACTION, remove(cloud.projects["mine"]), status=403)

    run(story)
