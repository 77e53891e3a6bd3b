"""Aggregates and zones together: what zones mean for hosts, servers and placement, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.compute.cloud import LATEST, Cloud, run

AGGREGATES = "/os-aggregates"


async def made(cloud: Cloud, name: str, zone: str | None = None, *hosts: str) -> int:
    wish = {"name": name, **({"availability_zone": zone} if zone else {})}
    number: int = (await cloud.does("admin", "POST", AGGREGATES, {"aggregate": wish}))["aggregate"]["id"]
    for host in hosts:
        await act(cloud, number, {"add_host": {"host": host}})
    return number


async def act(cloud: Cloud, number: int, body: Any) -> Any:
    return await cloud.does("admin", "POST", f"{AGGREGATES}/{number}/action", body)


async def refused(cloud: Cloud, number: int, body: Any, status: int) -> str:
    return await cloud.refuses("admin", "POST", f"{AGGREGATES}/{number}/action", body, status=status)


async def zones(cloud: Cloud, path: str = "") -> dict[str, list[str] | None]:
    found = (await cloud.get("admin", f"/os-availability-zone{path}"))["availabilityZoneInfo"]
    return {one["zoneName"]: None if one["hosts"] is None else sorted(one["hosts"]) for one in found}


async def server(cloud: Cloud, **wish: Any) -> dict[str, Any]:
    """Built, or in error."""
    image = await an_image(cloud)
    body = {"server": {"name": "s", "flavorRef": "1", "imageRef": image, "networks": "none", **wish}}
    server_id = (await cloud.does("admin", "POST", "/servers", body, at=LATEST, status=202))["server"]["id"]
    shown: dict[str, Any] = {}

    async def look() -> bool:
        shown.update((await cloud.get("admin", f"/servers/{server_id}", at=LATEST))["server"])
        return shown["status"] in ("ACTIVE", "ERROR")

    await cloud.api.until(look)
    return shown


async def an_image(cloud: Cloud) -> str:
    answer = await cloud.ask("admin", "GET", "/v2/images", prefix="/image")
    return str(answer.json()["images"][0]["id"])


async def of_provider(cloud: Cloud, provider: str, what: str) -> Any:
    headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.19"}
    answer = await cloud.api.client.get(f"/placement/resource_providers/{provider}/{what}", headers=headers)
    return answer.json()[what]


@pytest.mark.slow
def test_a_zone_is_made_by_an_aggregate_and_its_hosts() -> None:
    async def story(cloud: Cloud) -> None:
        assert await zones(cloud) == {"nova": None}
        await made(cloud, "rack1", "east", "host1")
        assert await zones(cloud) == {"east": None, "nova": None}
        detail = await zones(cloud, "/detail")
        assert (detail["east"], detail["nova"]) == (["host1"], ["host2"])
        found = (await cloud.get("admin", "/os-services?binary=nova-compute"))["services"]
        assert {one["host"]: one["zone"] for one in found} == {"host1": "east", "host2": "nova"}

    run(story, hosts=2)


def test_servers_go_where_their_zone_is() -> None:
    async def story(cloud: Cloud) -> None:
        await made(cloud, "rack2", "west", "host2")
        for _ in range(3):
            there = await server(cloud, availability_zone="west")
            assert there["OS-EXT-SRV-ATTR:host"] == "host2" and there["OS-EXT-AZ:availability_zone"] == "west"
            assert there["pinned_availability_zone"] == "west"
        forced = await server(cloud, availability_zone="west:host1")
        assert forced["OS-EXT-SRV-ATTR:host"] == "host1" and forced["OS-EXT-AZ:availability_zone"] == "nova"
        assert forced["pinned_availability_zone"] is None, "a zone that is not the host's is dropped"
        listed = await cloud.get("admin", "/servers?availability_zone=west", at=LATEST)
        assert len(listed["servers"]) == 3
        wish = {"name": "s", "flavorRef": "1", "imageRef": await an_image(cloud), "networks": "none"}
        text = await cloud.refuses(
            "admin", "POST", "/servers", {"server": wish | {"availability_zone": "north"}}, at=LATEST
        )
        assert text == "The requested availability zone is not available"

    run(story, hosts=2)


def test_a_host_has_one_zone() -> None:
    async def story(cloud: Cloud) -> None:
        await made(cloud, "east-1", "east", "host1")
        same = await made(cloud, "east-2", "east", "host1")
        other, plain = await made(cloud, "west-1", "west"), await made(cloud, "plain", None, "host1")
        assert "already in availability zone east" in await refused(cloud, other, {"add_host": {"host": "host1"}}, 409)
        zone = {"set_metadata": {"metadata": {"availability_zone": "west"}}}
        assert "cannot be in west" in await refused(cloud, plain, zone, 400)
        assert "without a name" in await refused(
            cloud, other, {"set_metadata": {"metadata": {"availability_zone": ""}}}, 400
        )
        assert (await act(cloud, same, {"set_metadata": {"metadata": {"ssd": "yes"}}}))["aggregate"]["metadata"] == {
            "availability_zone": "east",
            "ssd": "yes",
        }

    run(story, hosts=1)


def test_a_server_never_changes_its_zone() -> None:
    async def story(cloud: Cloud) -> None:
        assert (await server(cloud))["OS-EXT-SRV-ATTR:host"] == "host1"
        zoned, plain = await made(cloud, "rack", "east"), await made(cloud, "plain", None, "host1")
        text = await refused(cloud, zoned, {"add_host": {"host": "host1"}}, 409)
        assert text.startswith("Host host1 has 1 servers in availability zone nova")
        wish = {"aggregate": {"availability_zone": "east"}}
        assert "has 1 servers" in await cloud.refuses("admin", "PUT", f"{AGGREGATES}/{plain}", wish, status=400)
        assert (await cloud.get("admin", f"{AGGREGATES}/{plain}"))["aggregate"]["availability_zone"] is None
        await act(cloud, plain, {"remove_host": {"host": "host1"}})

    run(story, hosts=1)


def test_placement_knows_who_is_in_which_aggregate() -> None:
    async def story(cloud: Cloud) -> None:
        number = await made(cloud, "rack", None, "host1")
        uuid = (await cloud.get("admin", f"{AGGREGATES}/{number}", at="2.41"))["aggregate"]["uuid"]
        hosts = (await cloud.get("admin", "/os-hypervisors", at=LATEST))["hypervisors"]
        provider = next(one["id"] for one in hosts if one["hypervisor_hostname"] == "host1")

        async def known() -> list[str]:
            found: list[str] = await of_provider(cloud, provider, "aggregates")
            return found

        assert await known() == [uuid]
        await act(cloud, number, {"remove_host": {"host": "host1"}})
        assert await known() == []

    run(story, hosts=1)


def test_a_disabled_host_carries_the_trait() -> None:
    async def story(cloud: Cloud) -> None:
        async def traits() -> list[str]:
            hosts = (await cloud.get("admin", "/os-hypervisors", at=LATEST))["hypervisors"]
            found: list[str] = await of_provider(cloud, hosts[0]["id"], "traits")
            return found

        assert "COMPUTE_NODE" in await traits() and "COMPUTE_IMAGE_TYPE_QCOW2" in await traits()
        body = {"host": "host1", "binary": "nova-compute"}
        await cloud.does("admin", "PUT", "/os-services/disable", body)
        assert "COMPUTE_STATUS_DISABLED" in await traits()
        await cloud.does("admin", "PUT", "/os-services/enable", body)
        assert "COMPUTE_STATUS_DISABLED" not in await traits()

    run(story, hosts=1)
