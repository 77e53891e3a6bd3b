"""The resize action: whose quota, which image, which disks."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_server_disks import image_of, made, new_image

RESIZE = "/servers/{}/action"
VERIFY = "VERIFY_RESIZE"


async def created(cloud: Cloud, image: str = "", **more: Any) -> str:
    shown = await made(cloud, [], image or await image_of(cloud), **more)
    assert shown["status"] == "ACTIVE", shown
    return str(shown["id"])


async def flavor(cloud: Cloud, name: str, vcpus: int = 1, ram: int = 2048, disk: int = 20, **more: Any) -> None:
    body = {"flavor": {"id": name, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk, **more}}
    await cloud.does("admin", "POST", "/flavors", body)


async def resized(cloud: Cloud, server: str, who: str = "member", **body: Any) -> dict[str, Any]:
    await cloud.does(who, "POST", RESIZE.format(server), {"resize": body}, status=202)
    async with asyncio.timeout(60):
        while True:
            shown: dict[str, Any] = (await cloud.get("admin", f"/servers/{server}", at="2.47"))["server"]
            if shown["OS-EXT-STS:task_state"] is None:
                return shown
            await asyncio.sleep(0.01)


async def refused(cloud: Cloud, server: str, ref: str, status: int = 400, who: str = "member", **more: Any) -> str:
    body = {"resize": {"flavorRef": ref, **more}}
    return await cloud.refuses(who, "POST", RESIZE.format(server), body, status=status)


async def usage(cloud: Cloud, project: str) -> int:
    shown = await cloud.get("admin", f"/os-quota-sets/{cloud.projects[project]}/detail")
    return int(shown["quota_set"]["cores"]["in_use"])


def test_the_quota_of_the_servers_owner_counts_whoever_asks() -> None:
    async def story(cloud: Cloud) -> None:
        server = await created(cloud)
        project = cloud.projects["mine"]
        limits = {"quota_set": {"cores": 2}}
        await cloud.does("admin", "PUT", f"/os-quota-sets/{project}", limits)
        told = await refused(cloud, server, "4", 403, who="admin")
        assert told == "Quota exceeded: cores: requested 3, used 1 of 2"
        assert (await resized(cloud, server, flavorRef="3"))["status"] == VERIFY
        assert await usage(cloud, "mine") == 2

    run(story, hosts=2)


def test_an_image_that_is_gone_does_not_matter() -> None:
    async def story(cloud: Cloud) -> None:
        image = await new_image(cloud, min_ram=1024)
        await flavor(cloud, "poor", ram=512)
        server = await created(cloud, image, flavorRef="2")
        told = await refused(cloud, server, "poor")
        assert told == "Flavor's memory is too small for requested image: 512 MB, it needs 1024 MB."
        headers = {"X-Auth-Token": "member"}
        await cloud.api.client.delete(f"/image/v2/images/{image}", headers=headers)
        shown = await resized(cloud, server, flavorRef="poor")
        assert (shown["status"], shown["flavor"]["original_name"]) == (VERIFY, "poor")

    run(story, hosts=2)


def test_what_the_image_says_of_disk_config_and_hardware() -> None:
    async def story(cloud: Cloud) -> None:
        image = await new_image(cloud, auto_disk_config="Disabled", hw_numa_nodes="2")
        server = await created(cloud, image, flavorRef="3")
        told = await refused(cloud, server, "4", **{"OS-DCF:diskConfig": "AUTO"})
        assert told == f"Requested image {image} has automatic disk resize disabled."
        await flavor(cloud, "single", disk=40)
        assert "2" in await refused(cloud, server, "single"), "one CPU in two cells"
        shown = await resized(cloud, server, flavorRef="4", **{"OS-DCF:diskConfig": "MANUAL"})
        assert shown["status"] == VERIFY
        topology = await cloud.get("admin", f"/servers/{server}/topology", at="2.78")
        assert len(topology["nodes"]) == 2

    run(story, hosts=2)


def test_a_server_that_boots_from_a_volume_may_have_a_smaller_flavor() -> None:
    async def story(cloud: Cloud) -> None:
        image = await image_of(cloud)
        root = {"boot_index": 0, "source_type": "image", "uuid": image, "destination_type": "volume", "volume_size": 1}
        shown = await made(cloud, [root], flavorRef="3")
        await flavor(cloud, "zero", disk=0)
        for name in ("1", "zero"):
            assert (await resized(cloud, shown["id"], flavorRef=name))["status"] == VERIFY
            body = {"operation": "confirm_resize", "server": shown["id"]}
            answer = await cloud.ask("admin", "POST", "/operations", body, prefix="/kilonova/v1")
            assert answer.status_code == 202
            async with asyncio.timeout(60):
                while (await cloud.get("member", f"/servers/{shown['id']}"))["server"]["status"] != "ACTIVE":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    run(story, hosts=2)


def test_a_flavor_that_was_created_again_under_its_id_is_another_one() -> None:
    async def story(cloud: Cloud) -> None:
        await flavor(cloud, "f")
        server = await created(cloud, flavorRef="f")
        assert await refused(cloud, server, "f") == "When resizing, instances must change flavor!"
        await cloud.does("admin", "DELETE", "/flavors/f", status=202)
        await flavor(cloud, "f", vcpus=2)
        assert (await resized(cloud, server, flavorRef="f"))["flavor"]["vcpus"] == 2

    run(story, hosts=2)


def test_local_disks_that_were_named_keep_their_sizes() -> None:
    async def story(cloud: Cloud) -> None:
        image = await image_of(cloud)
        ephemeral = {"OS-FLV-EXT-DATA:ephemeral": 6, "swap": 128}
        await flavor(cloud, "local", **ephemeral)
        await flavor(cloud, "more", vcpus=2, **{**ephemeral, "OS-FLV-EXT-DATA:ephemeral": 9, "swap": 64})
        await flavor(cloud, "less", vcpus=2, **{"OS-FLV-EXT-DATA:ephemeral": 2})
        blank = {"source_type": "blank", "destination_type": "local", "boot_index": -1}
        disks = [{**blank, "volume_size": 2}, {**blank, "volume_size": 1}, {**blank, "guest_format": "swap"}]
        root = {"boot_index": 0, "source_type": "image", "uuid": image, "destination_type": "local"}
        shown = await made(cloud, [root, *disks], image, flavorRef="local")
        assert "from 3 GB to 2 GB" in await refused(cloud, shown["id"], "less")
        await resized(cloud, shown["id"], flavorRef="more")
        output = await cloud.does("member", "POST", RESIZE.format(shown["id"]), {"os-getConsoleOutput": {}})
        assert "root=20G ephemeral0=2G:blank ephemeral1=1G:blank swap=64M:blank" in output["output"]

    run(story, "DEFAULT.max_local_block_devices=-1", hosts=2)
