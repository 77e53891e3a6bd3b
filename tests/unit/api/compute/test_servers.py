"""/servers: which fields each version has, every filter and order, pages, and who sees what."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tests.unit.api.compute.cloud import LATEST, Cloud, run

ATTRIBUTE = "OS-EXT-SRV-ATTR:"
BASE = {
    *("id", "name", "status", "tenant_id", "user_id", "metadata", "hostId", "image", "flavor", "created", "updated"),
    *("addresses", "accessIPv4", "accessIPv6", "links", "progress", "OS-DCF:diskConfig", "config_drive", "key_name"),
    *("OS-EXT-AZ:availability_zone", "OS-SRV-USG:launched_at", "OS-SRV-USG:terminated_at", "security_groups"),
    *("OS-EXT-STS:task_state", "OS-EXT-STS:vm_state", "OS-EXT-STS:power_state"),
    "os-extended-volumes:volumes_attached",
}
ADMIN = {f"{ATTRIBUTE}{name}" for name in ("host", "instance_name", "hypervisor_hostname")}
NEW = {
    "2.9": {"locked"},
    "2.19": {"description"},
    "2.26": {"tags"},
    "2.63": {"trusted_image_certificates"},
    "2.71": {"server_groups"},
    "2.73": {"locked_reason"},
    "2.90": {f"{ATTRIBUTE}hostname"},
    "2.96": {"pinned_availability_zone"},
    "2.100": {"scheduler_hints"},
}
NEW_FOR_ADMIN = {
    "2.3": {
        f"{ATTRIBUTE}{name}"
        for name in (
            "reservation_id",
            "launch_index",
            "hostname",
            "kernel_id",
            "ramdisk_id",
            "root_device_name",
            "user_data",
        )
    },
    "2.16": {"host_status"},
}


def number(version: str) -> int:
    return int(version.partition(".")[2])


async def new_server(cloud: Cloud, name: str = "a", *, who: str = "member", **more: Any) -> dict[str, Any]:
    image = next(iter((await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": who})).json()["images"]))
    return {"server": {"name": name, "flavorRef": "1", "imageRef": image["id"], "networks": "none", **more}}


async def made(cloud: Cloud, name: str = "a", *, who: str = "member", at: str = "2.52", **more: Any) -> str:
    body = await new_server(cloud, name, who=who, **more)
    server = (await cloud.does(who, "POST", "/servers", body, at=at, status=202))["server"]["id"]
    async with asyncio.timeout(60):
        while (await cloud.get(who, f"/servers/{server}"))["server"]["status"] == "BUILD":  # noqa: ASYNC110 - over HTTP there is nothing to wait on
            await asyncio.sleep(0.01)
    return str(server)


def test_each_version_has_its_fields_and_no_others() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud, networks="auto")
        for minor in range(1, 105):
            at = f"2.{minor}"
            later = {key for version, keys in NEW.items() if number(version) <= minor for key in keys}
            for_admin = ADMIN | {
                key for version, keys in NEW_FOR_ADMIN.items() if number(version) <= minor for key in keys
            }
            shown = (await cloud.get("member", f"/servers/{server}", at=at))["server"]
            assert set(shown) == BASE | later, at
            shown = (await cloud.get("admin", f"/servers/{server}", at=at))["server"]
            assert set(shown) == BASE | later | for_admin, at
            (listed,) = (await cloud.get("member", "/servers/detail", at=at))["servers"]
            assert set(listed) == (BASE | later) - {"server_groups"}, at
            assert ("id" in shown["flavor"]) is (minor < 47), at
            assert ("properties" in shown["image"]) is (minor >= 98), at

    run(story, hosts=1)


FILTERS: list[tuple[str, str, str, set[str]]] = [  # who, version, query, names
    ("member", "2.1", "name=e", {"one", "three"}),
    ("member", "2.1", "name=^t.*o$", {"two"}),
    ("member", "2.1", "status=ACTIVE", {"one", "three"}),
    ("member", "2.1", "status=active", {"one", "three"}),
    ("member", "2.1", "status=SHUTOFF", {"two"}),
    ("member", "2.1", "status=SHUTOFF&status=ACTIVE", {"one", "two", "three"}),
    ("member", "2.1", "status=NONSENSE", set()),
    ("member", "2.1", "flavor=1", {"one", "two", "three"}),
    ("member", "2.1", "flavor=2", set()),
    ("member", "2.1", "image=nothing", set()),
    ("member", "2.1", "colour=red", {"one", "two", "three"}),
    ("member", "2.1", "host=nowhere", {"one", "two", "three"}),
    ("admin", "2.1", "host=nowhere", set()),
    ("admin", "2.1", "host=host1", {"one", "two", "three"}),
    ("member", "2.25", "tags=x", {"one", "two", "three"}),
    ("member", "2.26", "tags=x", {"one", "two"}),
    ("member", "2.26", "tags=x,y", {"two"}),
    ("member", "2.26", "tags-any=x,y", {"one", "two"}),
    ("member", "2.26", "not-tags=x,y", {"one", "three"}),
    ("member", "2.26", "not-tags-any=x,y", {"three"}),
    ("member", "2.83", "vm_state=stopped", {"two"}),
    ("member", "2.82", "changes-since=2001-01-01T00:00:00Z", {"one", "two", "three"}),
    ("member", "2.66", "changes-before=2001-01-01T00:00:00Z", set()),
    ("member", "2.83", "power_state=4", {"two"}),
    ("member", "2.83", "availability_zone=nova", {"one", "two", "three"}),
    ("member", "2.90", "hostname=three", {"three"}),
    ("member", "2.73", "locked=true", set()),
    ("member", "2.1", "all_tenants=0", {"one", "two", "three"}),
    ("stranger", "2.1", "", set()),
    ("stranger", "2.1", "project_id=mine", set()),
]
REFUSED = [
    ("member", "2.38", "status=NONSENSE", 400),
    ("member", "2.75", "colour=red", 400),
    ("member", "2.1", "limit=-1", 400),
    ("member", "2.1", "limit=many", 400),
    ("member", "2.1", "marker=nothing", 400),
    ("member", "2.1", "sort_key=colour", 400),
    ("member", "2.1", "sort_dir=up", 400),
    ("member", "2.1", "sort_key=host", 403),
    ("member", "2.1", "changes-since=yesterday", 400),
    ("member", "2.66", "changes-since=2020-01-01&changes-before=2019-01-01", 400),
    ("member", "2.1", "all_tenants=1", 403),
    ("member", "2.1", "all_tenants=perhaps", 400),
    ("member", "2.1", "status=deleted", 403),
]


def test_filters_orders_and_pages() -> None:
    async def names(cloud: Cloud, who: str, at: str, query: str) -> list[str]:
        return [server["name"] for server in (await cloud.get(who, f"/servers?{query}", at=at))["servers"]]

    async def story(cloud: Cloud) -> None:
        for name, tags in (("one", ["x"]), ("two", ["x", "y"]), ("three", [])):
            last = await made(cloud, name, tags=tags)
            if name == "two":
                await cloud.does("member", "POST", f"/servers/{last}/action", {"os-stop": None}, status=202)
                async with asyncio.timeout(60):
                    while (await cloud.get("member", f"/servers/{last}"))["server"]["status"] != "SHUTOFF":  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                        await asyncio.sleep(0.01)
        for who, at, query, expected in FILTERS:
            assert set(await names(cloud, who, at, query)) == expected, (who, at, query)
        for who, at, query, status in REFUSED:
            answer = await cloud.ask(who, "GET", f"/servers?{query}", at=at)
            assert answer.status_code == status, (query, answer.status_code, answer.text)
        assert await names(cloud, "member", "2.1", "") == ["three", "two", "one"], "the newest first"
        assert await names(cloud, "member", "2.1", "sort_key=display_name&sort_dir=asc") == ["one", "three", "two"]
        assert await names(
            cloud, "member", "2.1", "sort_key=vm_state&sort_dir=desc&sort_key=display_name&sort_dir=asc"
        ) == [*("two", "one", "three")]
        assert await names(cloud, "member", "2.1", "limit=0") == []
        assert await names(cloud, "admin", "2.1", "all_tenants=1&status=ACTIVE") == ["three", "one"]
        for order in ("", "sort_key=display_name&sort_dir=desc"):
            assert await walked(cloud, order) == await names(cloud, "member", "2.1", order)
        theirs = await cloud.ask("stranger", "GET", f"/servers?marker={last}")
        assert theirs.status_code == 400 and "not found" in theirs.text, "another project's server is no marker"

    async def walked(cloud: Cloud, order: str) -> list[str]:
        """Page after page, one server each, by the links alone."""
        found, path = [], f"/servers?limit=1&{order}"
        while path:
            shown = await cloud.get("member", path)
            found += [server["name"] for server in shown["servers"]]
            following = shown.get("servers_links")
            path = following[0]["href"].partition("/compute/v2.1")[2] if following else ""
        return found

    run(story, hosts=1)


def test_deleted_servers_are_for_administrators() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)
        async with asyncio.timeout(60):
            while (await cloud.ask("member", "GET", f"/servers/{server}")).status_code != 404:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)
        listed = (await cloud.get("admin", "/servers/detail?deleted=true&all_tenants=1"))["servers"]
        assert [(one["id"], one["status"]) for one in listed] == [(server, "DELETED")]
        changed = (await cloud.get("member", "/servers/detail?changes-since=2001-01-01T00:00:00Z"))["servers"]
        assert [one["status"] for one in changed] == ["DELETED"]

    run(story, hosts=1)


def test_several_at_once_differ_by_their_number() -> None:
    async def story(cloud: Cloud) -> None:
        image = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"][0]
        wish = {"name": "n", "flavorRef": "1", "imageRef": image["id"], "networks": "none", "max_count": 3}
        body = {"server": {**wish, "return_reservation_id": True}}
        answer = await cloud.does("member", "POST", "/servers", body, at="2.37", status=202)
        assert set(answer) == {"reservation_id"}
        found = await cloud.get(
            "admin", f"/servers/detail?all_tenants=1&reservation_id={answer['reservation_id']}", at="2.3"
        )
        assert {one["name"] for one in found["servers"]} == {"n-1", "n-2", "n-3"}
        assert {one[f"{ATTRIBUTE}launch_index"] for one in found["servers"]} == {0, 1, 2}
        too_many = {"server": {**wish, "min_count": 8, "max_count": 20}}
        assert "Quota exceeded" in await cloud.refuses("member", "POST", "/servers", too_many, at="2.37", status=403)
        assert len((await cloud.get("member", "/servers"))["servers"]) == 3

    run(story, hosts=1)


@pytest.mark.parametrize("at", ["2.37", LATEST])
def test_a_key_makes_two_requests_one(at: str) -> None:
    async def story(cloud: Cloud) -> None:
        image = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"][0]
        headers = {"X-Auth-Token": "member", "OpenStack-API-Version": f"compute {at}", "Idempotency-Key": "k"}

        async def post(name: str) -> Any:
            wish = {"name": name, "flavorRef": "1", "imageRef": image["id"], "networks": "none"}
            return await cloud.api.client.post("/compute/v2.1/servers", json={"server": wish}, headers=headers)

        first, again, other = await post("a"), await post("a"), await post("b")
        assert first.json()["server"]["id"] == again.json()["server"]["id"]
        assert first.headers["x-kilonova-operation"] == again.headers["x-kilonova-operation"]
        assert other.status_code == 409 and "another body" in other.text
        assert len((await cloud.get("member", "/servers"))["servers"]) == 1

    run(story, hosts=1)


def test_user_data_is_nowhere_in_plain_sight() -> None:
    """The administrator may see it as long as the server lives; the databases never show it."""
    secret = base64.b64encode(b"password: hunter2hunter2").decode()

    async def story(cloud: Cloud) -> None:
        image = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"][0]
        wish = {"name": "n", "flavorRef": "1", "imageRef": image["id"], "networks": "none", "user_data": secret}
        made = (await cloud.does("member", "POST", "/servers", {"server": wish}, at="2.37", status=202))["server"]["id"]
        shown = (await cloud.get("admin", f"/servers/{made}", at="2.3"))["server"]
        assert shown["OS-EXT-SRV-ATTR:user_data"] == secret
        async with asyncio.timeout(60):
            while (await cloud.get("member", f"/servers/{made}"))["server"]["status"] != "ACTIVE":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for path in cloud.api.data.glob("*.db*"):
            assert secret.encode() not in path.read_bytes(), path

    run(story, hosts=1)


@pytest.mark.parametrize("told", ["true", "false"])
def test_a_password_is_told_where_guests_take_it(told: str) -> None:
    async def story(cloud: Cloud) -> None:
        images = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"]
        server = {"name": "a", "flavorRef": "1", "imageRef": images[0]["id"], "adminPass": "secret"}
        answer = await cloud.does("member", "POST", "/servers", {"server": server}, status=202)
        assert answer["server"].get("adminPass") == ("secret" if told == "true" else None)

    run(story, f"api.enable_instance_password={told}")


def test_an_operator_may_offer_fewer_versions() -> None:
    """2.105 is ours; who wants Nova's alone says so."""

    async def story(cloud: Cloud) -> None:
        shown = (await cloud.api.client.get("/compute/v2.1/")).json()["version"]
        assert (shown["version"], shown["min_version"]) == ("2.104", "2.1")
        answer = await cloud.api.client.get(
            "/compute/v2.1/servers", headers={"X-Auth-Token": "member", "OpenStack-API-Version": "compute 2.105"}
        )
        assert (answer.status_code, "maximum is 2.104" in answer.text) == (406, True)
        newest = await cloud.api.client.get(
            "/compute/v2.1/servers", headers={"X-Auth-Token": "member", "OpenStack-API-Version": "compute latest"}
        )
        assert newest.headers["OpenStack-API-Version"] == "compute 2.104"

    run(story, "api.max_microversion=2.104")
