"""/servers/{server}/os-volume_attachments: what each version shows, what is refused, and what a guest finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.api.compute.cloud import LATEST, Cloud, run
from tests.unit.api.compute.test_servers import made, new_server

UNKNOWN = "00000000-0000-4000-8000-000000000000"
OF_VERSION = {
    "2.1": {"id", "serverId", "volumeId", "device"},
    "2.70": {"id", "serverId", "volumeId", "device", "tag"},
    "2.79": {"id", "serverId", "volumeId", "device", "tag", "delete_on_termination"},
    "2.89": {"serverId", "volumeId", "device", "tag", "delete_on_termination", "attachment_id", "bdm_uuid"},
}


async def volumes(cloud: Cloud, method: str, path: str, body: Any = None, who: str = "member") -> Any:
    headers = {"X-Auth-Token": who, "OpenStack-API-Version": "volume 3.71"}
    answer = await cloud.api.client.request(method, f"/volume/v3{path}", headers=headers, json=body)
    assert answer.status_code < 300 or answer.status_code == 404, answer.text
    return answer.json()


async def until(cloud: Cloud, volume: str, status: str) -> None:
    async with asyncio.timeout(60):
        while (await _status(cloud, volume)) != status:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
            await asyncio.sleep(0.01)


async def _status(cloud: Cloud, volume: str) -> str:
    shown = await volumes(cloud, "GET", f"/volumes/{volume}")
    return str(shown["volume"]["status"]) if "volume" in shown else "gone"


async def new_volume(cloud: Cloud, who: str = "member") -> str:
    volume = (await volumes(cloud, "POST", "/volumes", {"volume": {"size": 1}}, who))["volume"]["id"]
    if who == "member":
        await until(cloud, volume, "available")
    return str(volume)


def wish(volume: str, **more: Any) -> dict[str, Any]:
    return {"volumeAttachment": {"volumeId": volume, **more}}


def address(server: str, volume: str = "") -> str:
    return f"/servers/{server}/os-volume_attachments" + (f"/{volume}" if volume else "")


async def attached(cloud: Cloud, server: str, *, at: str = "2.79", **more: Any) -> str:
    volume = await new_volume(cloud)
    await cloud.does("member", "POST", address(server), wish(volume, **more), at=at)
    await until(cloud, volume, "in-use")
    return volume


async def written(cloud: Cloud, server: str) -> str:
    """The last line of the console."""
    body = {"os-getConsoleOutput": {"length": 1}}
    return str((await cloud.does("member", "POST", f"/servers/{server}/action", body))["output"])


async def own(cloud: Cloud, method: str, path: str, body: Any = None) -> Any:
    """Of our own API, by an administrator."""
    answer = await cloud.ask("admin", method, path, body, prefix="/kilonova/v1")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_volume_comes_and_goes() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume = await new_volume(cloud)
        told = await cloud.does("member", "POST", address(server), wish(volume))
        assert told["volumeAttachment"] == {
            "id": volume,
            "serverId": server,
            "volumeId": volume,
            "device": "/dev/vdb",
        }
        await until(cloud, volume, "in-use")
        await own(cloud, "POST", f"/simulated/servers/{server}/write", {"text": "kept", "disk": volume})
        await cloud.does("member", "POST", f"/servers/{server}/action", {"reboot": {"type": "HARD"}}, status=202)
        async with asyncio.timeout(60):
            while "boot=2" not in await written(cloud, server):  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)
        assert (await written(cloud, server)).endswith("volumes=kept")
        shown = (await cloud.get("member", f"/servers/{server}", at="2.3"))["server"]
        assert shown["os-extended-volumes:volumes_attached"] == [{"id": volume, "delete_on_termination": False}]
        await cloud.does("member", "DELETE", address(server, volume), status=202)
        await until(cloud, volume, "available")
        assert (await written(cloud, server)).endswith("volumes=")
        async with asyncio.timeout(60):  # the volume is free a moment before the operation has ended
            while await cloud.get("member", address(server)) != {"volumeAttachments": []}:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)
        actions = (await cloud.get("member", f"/servers/{server}/os-instance-actions"))["instanceActions"]
        assert [one["action"] for one in actions] == ["detach_volume", "reboot", "attach_volume", "create"]

    run(story, hosts=1)


def test_each_version_shows_its_fields() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume = await attached(cloud, server, tag="data", delete_on_termination=True, device="/dev/vdf")
        for version, fields in OF_VERSION.items():
            shown = (await cloud.get("member", address(server, volume), at=version))["volumeAttachment"]
            assert set(shown) == fields
            (listed,) = (await cloud.get("member", address(server), at=version))["volumeAttachments"]
            assert listed == shown
        assert (shown["device"], shown["tag"], shown["delete_on_termination"]) == ("/dev/vdf", "data", True)
        second = await new_volume(cloud)
        answer = await cloud.ask("member", "POST", address(server), wish(second), at=LATEST)
        assert (answer.status_code, answer.content) == (202, b"")
        page = await cloud.get("member", f"{address(server)}?limit=1&offset=1")
        assert [one["volumeId"] for one in page["volumeAttachments"]] == [second]

    run(story, hosts=1)


def test_several_at_once_are_taken_one_after_the_other() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        wanted = [await new_volume(cloud) for _ in range(4)]
        asked = [cloud.does("member", "POST", address(server), wish(volume)) for volume in wanted]
        devices = {told["volumeAttachment"]["device"] for told in await asyncio.gather(*asked)}
        assert devices == {"/dev/vdb", "/dev/vdc", "/dev/vdd", "/dev/vde"}
        for volume in wanted:
            await until(cloud, volume, "in-use")

    run(story, hosts=1)


def test_what_goes_with_its_server() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        goes = await attached(cloud, server, delete_on_termination=True)
        stays = await attached(cloud, server, delete_on_termination=True)
        later = await attached(cloud, server)
        for volume, fate in ((stays, False), (later, True)):
            body = wish(volume, delete_on_termination=fate)
            await cloud.does("member", "PUT", address(server, volume), body, at="2.85", status=202)
            shown = (await cloud.get("member", address(server, volume), at="2.79"))["volumeAttachment"]
            assert shown["delete_on_termination"] is fate
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)
        await until(cloud, goes, "gone")
        await until(cloud, later, "gone")
        await until(cloud, stays, "available")

    run(story, hosts=1)


def test_what_is_refused() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume, another = await attached(cloud, server), await made(cloud, "b")
        refused = cloud.refuses
        await refused("member", "POST", address(server), wish(UNKNOWN), status=404)
        told = await refused("member", "POST", address(server), wish(volume))
        assert told == f"Invalid volume: Volume {volume} is already attached to {server}."
        assert "in-use" in await refused("member", "POST", address(another), wish(volume))
        theirs = await new_volume(cloud, "stranger")
        await refused("member", "POST", address(server), wish(theirs), status=404)
        free = await new_volume(cloud)
        told = await refused("member", "POST", address(server), wish(free, device="/dev/vdb"), status=409)
        assert told == f"The device /dev/vdb of instance {server} is in use."
        await refused("member", "POST", address(server), wish(free, device="vdb"))
        await refused("member", "POST", address(server), wish(free, tag="a"), at="2.48")
        await refused("member", "POST", address(server), wish(free, delete_on_termination=True), at="2.78")
        await refused("member", "GET", address(server, free), status=404)
        told = await refused("member", "DELETE", address(server, free), status=404)
        assert told == f"Instance {server} is not attached to volume {free}."
        await refused("reader", "POST", address(server), wish(free), status=403)
        await refused("stranger", "GET", address(server), status=404)
        assert await _status(cloud, free) == "available"

    run(story, hosts=1)


@pytest.mark.parametrize(
    ("who", "more", "status"),
    [("member", {"device": "/dev/vdz"}, 400), ("member", {"tag": "other"}, 400), ("member", {"id": UNKNOWN}, 400)],
)
def test_only_its_fate_can_be_changed(who: str, more: dict[str, Any], status: int) -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume = await attached(cloud, server)
        told = await cloud.refuses(who, "PUT", address(server, volume), wish(volume, **more), at="2.85", status=status)
        assert told.startswith(f"The {next(iter(more))} of a volume attachment cannot be changed")
        other = wish(await new_volume(cloud))
        await cloud.refuses("member", "PUT", address(server, volume), other, at="2.85", status=403)

    run(story, hosts=1)


def test_a_volume_that_cannot_be_attached_is_free_again() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume = await new_volume(cloud)
        await own(cloud, "POST", "/simulated/hosts/host1", {"fail": {"verb": "ensure_volume", "times": 9}})
        answer = await cloud.ask("member", "POST", address(server), wish(volume))
        path = f"/operations/{answer.headers['x-kilonova-operation']}"
        async with asyncio.timeout(60):
            while (await own(cloud, "GET", path))["operation"]["state"] != "undone":  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)
        assert await _status(cloud, volume) == "available"
        assert await cloud.get("member", address(server)) == {"volumeAttachments": []}

    run(story, hosts=1)


def test_of_creates_that_name_one_volume_at_once_only_one_is_accepted() -> None:
    async def story(cloud: Cloud) -> None:
        volume = await new_volume(cloud)
        body = await new_server(cloud, block_device_mapping=[{"volume_id": volume, "device_name": "/dev/vdb"}])
        answers = await asyncio.gather(*(cloud.ask("member", "POST", "/servers", body, at="2.52") for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [202, 400, 400, 400]
        for answer in answers:
            if answer.status_code == 400:
                assert "Block Device Mapping is Invalid: Invalid volume" in answer.text
        (server,) = (await cloud.get("member", "/servers"))["servers"]
        await until(cloud, volume, "in-use")
        await cloud.does("member", "DELETE", f"/servers/{server['id']}", status=204)
        await until(cloud, volume, "available")

    run(story, hosts=1)
