"""/services, /endpoints, /regions: ours follow from the public address; an operator's own stand beside them."""

from __future__ import annotations

import json

from tests.unit.api.identity.asking import URL, Asking, asking


def test_our_own_are_shown_and_cannot_be_changed() -> None:
    async def story(it: Asking) -> None:
        services = (await it.get("/services"))["services"]
        assert {one["type"]: one["name"] for one in services} == {
            "identity": "keystone",
            "compute": "nova",
            "image": "glance",
            "network": "neutron",
            "placement": "placement",
            "block-storage": "cinder",
            "volumev3": "cinderv3",
        }
        endpoints = (await it.get("/endpoints"))["endpoints"]
        assert len(endpoints) == 21 and all(one["region"] == one["region_id"] == "RegionOne" for one in endpoints)
        assert [one["id"] for one in (await it.get("/regions"))["regions"]] == ["RegionOne"]
        compute = (await it.get("/services?type=compute"))["services"][0]
        found = (await it.get(f"/endpoints?service_id={compute['id']}&interface=public"))["endpoints"]
        assert [one["url"] for one in found] == [f"{URL}/compute/v2.1"]
        for words, one in (("services", compute), ("endpoints", found[0]), ("regions", {"id": "RegionOne"})):
            word = words.removesuffix("s")
            path = f"/{words}/{one['id']}"
            assert (await it.get(path))[word]["id"] == one["id"]
            assert "--public-url" in await it.refused(403, "DELETE", path)
            await it.refused(403, "PATCH", path, {word: {"description": "x"}})
        body = {"endpoint": {"service_id": compute["id"], "interface": "public", "url": "http://elsewhere"}}
        await it.refused(403, "POST", "/endpoints", body)
        for body in ({"id": "RegionOne"}, {"id": "RegionOne", "description": "x"}):
            await it.refused(409, "POST", "/regions", {"region": body})

    asking(story)


def test_another_service_is_registered_and_stands_in_the_catalog() -> None:
    async def story(it: Asking) -> None:
        service = await it.make("services", type="dns", name="designate", description="d")
        assert "dns" not in {one["type"] for one in (await it.get("/auth/catalog"))["catalog"]}, "no endpoint yet"
        url = "http://dns.example.org/%(tenant_id)s"
        wish = {"service_id": service["id"], "interface": "public", "url": url, "region": "north"}
        endpoint = await it.make("endpoints", **wish)
        assert endpoint["region"] == endpoint["region_id"] == "north" and endpoint["enabled"] is True
        assert (await it.get("/regions/north"))["region"]["id"] == "north", "made on the way"
        entry = next(one for one in (await it.get("/auth/catalog"))["catalog"] if one["type"] == "dns")
        project = await it.home.identity.project_named("admin")
        assert [one["url"] for one in entry["endpoints"]] == [f"http://dns.example.org/{project}"]
        system = await it.log_in(
            {"name": "admin", "domain": {"id": "default"}, "password": "of admin"}, {"system": {"all": True}}
        )
        assert "dns" not in {one["type"] for one in system.json()["token"]["catalog"]}, "no project to put in"

        again = await it.make("endpoints", **{**wish, "interface": "internal"})  # the region is there by now
        assert again["region_id"] == "north"
        await it.done("DELETE", f"/endpoints/{again['id']}")
        await it.refused(403, "DELETE", "/regions/north")
        changed = await it.change("endpoints", endpoint["id"], url="http://other", enabled=False, region="south")
        assert (changed["url"], changed["enabled"], changed["region"]) == ("http://other", False, "south")
        assert "dns" not in {one["type"] for one in (await it.get("/auth/catalog"))["catalog"]}
        await it.done("DELETE", "/regions/north")
        assert (await it.change("services", service["id"], description="e"))["description"] == "e"
        await it.done("DELETE", f"/services/{service['id']}")
        await it.refused(404, "GET", f"/endpoints/{endpoint['id']}")
        await it.refused(404, "GET", f"/services/{service['id']}")

    asking(story)


def test_what_cannot_be_registered() -> None:
    async def story(it: Asking) -> None:
        service = (await it.make("services", type="dns"))["id"]
        good = {"service_id": service, "interface": "public", "url": "http://x"}
        for wish in (
            {"service_id": "nothing"},
            {"interface": "secret"},
            {"url": "no address"},
            {"url": ""},
            {"region_id": "nowhere"},
            {"enabled": "True"},
        ):
            await it.refused(400, "POST", "/endpoints", {"endpoint": {**good, **wish}})
        endpoint = (await it.make("endpoints", **good))["id"]
        await it.refused(400, "PATCH", f"/endpoints/{endpoint}", {"endpoint": {"service_id": "nothing"}})
        await it.refused(400, "POST", "/services", {"service": {"name": "no type"}})
        await it.refused(404, "PATCH", "/services/nothing", {"service": {"name": "x"}})

    asking(story)


def test_regions_stand_in_regions() -> None:
    async def story(it: Asking) -> None:
        await it.make("regions", id="north", parent_region_id="RegionOne")
        put = await it.ask("PUT", "/regions/far%20north", {"region": {"parent_region_id": "north", "description": "d"}})
        assert put.status_code == 201 and put.json()["region"]["id"] == "far north"
        assert [one["id"] for one in (await it.get("/regions?parent_region_id=north"))["regions"]] == ["far north"]
        made = await it.make("regions", description="unnamed")
        assert len(made["id"]) == 32
        await it.refused(409, "PUT", "/regions/north", {"region": {}})
        await it.refused(400, "PUT", "/regions/a", {"region": {"id": "b"}})
        await it.refused(404, "POST", "/regions", {"region": {"parent_region_id": "nowhere"}})
        for parent in ("north", "far north"):
            await it.refused(400, "PATCH", "/regions/north", {"region": {"parent_region_id": parent}})
        await it.refused(403, "DELETE", "/regions/north")
        await it.done("DELETE", "/regions/far%20north")
        await it.done("DELETE", "/regions/north")

    asking(story)


# -- what is kept for others ------------------------------------------------------------------------------------------


def test_credentials_are_their_owners() -> None:
    async def story(it: Asking) -> None:
        demo, admin = await it.home.user_id("demo"), await it.home.user_id("admin")
        token = (await it.home.log_in()).token
        theirs = await it.make("credentials", user_id=admin, type="totp", blob="secret of admin")
        wish = {"credential": {"user_id": demo, "type": "cert", "blob": {"key": "value"}}}
        made = (await it.ask("POST", "/credentials", wish, token=token)).json()["credential"]
        assert json.loads(made["blob"]) == {"key": "value"} and "sealed" not in made
        assert (await it.get(f"/credentials/{made['id']}", token=token))["credential"] == made
        assert (await it.get("/credentials", token=token))["credentials"] == [made]
        assert (await it.get(f"/credentials?user_id={admin}", token=token))["credentials"] == []
        assert len((await it.get("/credentials"))["credentials"]) == 2
        assert (await it.get("/credentials?type=totp"))["credentials"] == [theirs]
        await it.refused(403, "GET", f"/credentials/{theirs['id']}", token=token)
        await it.refused(403, "DELETE", f"/credentials/{theirs['id']}", token=token)
        await it.refused(403, "PATCH", f"/credentials/{made['id']}", {"credential": {"user_id": admin}}, token=token)
        await it.refused(
            403, "POST", "/credentials", {"credential": {**wish["credential"], "user_id": admin}}, token=token
        )
        changed = await it.change("credentials", made["id"], blob="other")
        assert changed["blob"] == "other"
        await it.refused(400, "POST", "/credentials", {"credential": {"user_id": "nobody", "type": "x", "blob": "x"}})
        await it.done("DELETE", f"/credentials/{made['id']}")
        await it.refused(404, "GET", f"/credentials/{made['id']}")

    asking(story)


def test_an_access_key_is_taken_once() -> None:
    async def story(it: Asking) -> None:
        demo, project = await it.home.user_id("demo"), await it.home.identity.project_named("demo")
        good = {"user_id": demo, "type": "ec2", "project_id": project, "blob": '{"access": "a", "secret": "s"}'}
        made = await it.make("credentials", **good)
        assert len(made["id"]) == 64
        await it.refused(409, "POST", "/credentials", {"credential": good})
        for wish in ({"blob": "no json"}, {"blob": "{}"}, {"blob": "[]"}, {"project_id": None}):
            await it.refused(400, "POST", "/credentials", {"credential": {**good, **wish}})

    asking(story)


def test_policies() -> None:
    async def story(it: Asking) -> None:
        made = await it.make("policies", type="application/json", blob="{}")
        assert (await it.get(f"/policies/{made['id']}"))["policy"] == made
        assert (await it.get("/policies?type=application/json"))["policies"] == [made]
        assert (await it.change("policies", made["id"], blob="new"))["blob"] == "new"
        await it.done("DELETE", f"/policies/{made['id']}")
        await it.refused(404, "GET", f"/policies/{made['id']}")

    asking(story)
