"""Deletes that can be taken back: hidden, restored, deleted for good, and what the quota says of it."""

from __future__ import annotations

import asyncio

from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_servers import made

SOFTLY = "DEFAULT.reclaim_instance_interval=3600"


async def until(cloud: Cloud, server: str, status: str) -> None:
    async with asyncio.timeout(60):
        while (await cloud.get("member", f"/servers/{server}"))["server"]["status"] != status:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
            await asyncio.sleep(0.01)


async def used(cloud: Cloud) -> int:
    absolute = (await cloud.get("member", "/limits"))["limits"]["absolute"]
    return int(absolute["totalInstancesUsed"])


def test_a_deleted_server_comes_back() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)
        await until(cloud, server, "SOFT_DELETED")
        assert await used(cloud) == 0
        assert (await cloud.get("member", "/servers"))["servers"] == []
        shown = (await cloud.get("admin", "/servers?soft_deleted=True&all_tenants=1"))["servers"]
        assert [one["id"] for one in shown] == [server]
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)  # as asked before
        await cloud.does("member", "POST", f"/servers/{server}/action", {"restore": None}, status=202)
        await until(cloud, server, "ACTIVE")
        assert await used(cloud) == 1
        assert [one["id"] for one in (await cloud.get("member", "/servers"))["servers"]] == [server]

    run(story, SOFTLY, hosts=1)


def test_it_can_go_for_good() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)
        await until(cloud, server, "SOFT_DELETED")
        await cloud.does("member", "POST", f"/servers/{server}/action", {"forceDelete": None}, status=202)
        async with asyncio.timeout(60):
            while (await cloud.ask("member", "GET", f"/servers/{server}")).status_code != 404:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)
        assert await used(cloud) == 0

    run(story, SOFTLY, hosts=1)


def test_it_does_not_come_back_over_the_quota() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        quota = {"quota_set": {"instances": 1}}
        await cloud.does("admin", "PUT", f"/os-quota-sets/{cloud.projects['mine']}", quota)
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)
        await until(cloud, server, "SOFT_DELETED")
        await made(cloud, "b")
        path, body = f"/servers/{server}/action", {"restore": None}
        told = await cloud.refuses("member", "POST", path, body, status=403)
        assert told == "Quota exceeded: instances: requested 1, used 1 of 1"
        await until(cloud, server, "SOFT_DELETED")

    run(story, SOFTLY, hosts=1)


def test_without_the_option_nothing_comes_back() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        told = await cloud.refuses("member", "POST", f"/servers/{server}/action", {"restore": None}, status=409)
        assert told == f"Cannot 'restore' instance {server} while it is in vm_state active"

    run(story, hosts=1)
