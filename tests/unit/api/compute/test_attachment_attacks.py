"""Attachments as a weapon: what the Volume API refuses to those who would take a server's volume away from it, or bind
another project's server."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_server_volumes import attached, until
from tests.unit.api.compute.test_servers import made

CONNECTOR = {"host": "elsewhere"}
# Every verb of the Volume API that concerns an attachment: method, path, body. A volume or an attachment of compute's.
ON_ATTACHMENT = [
    ("PUT", "", {"attachment": {"connector": CONNECTOR}}),
    ("POST", "/action", {"os-complete": {}}),
    ("DELETE", "", None),
]
ON_VOLUME = [
    {"os-attach": {"instance_uuid": "$server", "mountpoint": "/dev/vdb"}},
    {"os-attach": {"host_name": "elsewhere", "mountpoint": "/dev/vdb"}},
    {"os-detach": {"attachment_id": "$attachment"}},
    {"os-detach": {}},
    {"os-initialize_connection": {"connector": CONNECTOR}},
    {"os-terminate_connection": {"connector": CONNECTOR}},
    {"os-terminate_connection": {"connector": None}},
]


async def volume_api(cloud: Cloud, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"X-Auth-Token": who, "OpenStack-API-Version": "volume 3.71"}
    return await cloud.api.client.request(method, f"/volume/v3{path}", headers=headers, json=body)


async def _own_volume(cloud: Cloud, who: str) -> str:
    volume = (await volume_api(cloud, who, "POST", "/volumes", {"volume": {"size": 1}})).json()["volume"]["id"]

    async def is_there() -> bool:
        shown = await volume_api(cloud, who, "GET", f"/volumes/{volume}")
        return bool(shown.json()["volume"]["status"] == "available")

    await cloud.api.until(is_there)
    return str(volume)


async def _attachment_of(cloud: Cloud, volume: str) -> dict[str, Any]:
    path = f"/attachments/detail?volume_id={volume}&all_tenants=1"
    (one,) = (await volume_api(cloud, "admin", "GET", path)).json()["attachments"]
    return dict(one)


def _filled(body: Any, **values: str) -> Any:
    if isinstance(body, dict):
        return {key: _filled(value, **values) for key, value in body.items()}
    return values[body[1:]] if isinstance(body, str) and body.startswith("$") else body


@pytest.mark.parametrize(("who", "refusal"), [("stranger", 404), ("member", 409), ("admin", 409)])
def test_nobody_takes_an_attachment_from_compute(who: str, refusal: int) -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume = await attached(cloud, server)
        before = await _attachment_of(cloud, volume)
        asked = [(method, f"/attachments/{before['id']}{path}", body) for method, path, body in ON_ATTACHMENT]
        asked += [("POST", f"/volumes/{volume}/action", body) for body in ON_VOLUME]
        for method, path, body in asked:
            filled = _filled(body, server=server, attachment=before["id"])
            answer = await volume_api(cloud, who, method, path, filled)
            assert answer.status_code == refusal, (method, path, filled, answer.text)
            if refusal == 409:
                assert "using the Compute API" in answer.text or "use the Compute API" in answer.text
        assert await _attachment_of(cloud, volume) == before, "its secret too is what it was"

    run(story, hosts=1)


@pytest.mark.parametrize("who", ["member", "admin"])
def test_no_second_attachment_beside_computes(who: str) -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        volume = await attached(cloud, server)
        for more in ({"instance_uuid": server}, {"instance_uuid": server, "connector": CONNECTOR}, {}):
            body = {"attachment": {"volume_uuid": volume, **more}}
            answer = await volume_api(cloud, who, "POST", "/attachments", body)
            assert answer.status_code == 400 and "status must be available" in answer.text
        await until(cloud, volume, "in-use")

    run(story, hosts=1)


@pytest.mark.parametrize("who", ["stranger", "admin"])
def test_another_projects_server_is_refused(who: str) -> None:
    """The administrator's own volume is of another project than the server too."""

    async def story(cloud: Cloud) -> None:
        if who == "admin":
            cloud.projects["mine"], cloud.projects["theirs"] = cloud.projects["theirs"], cloud.projects["mine"]
        volume = await _own_volume(cloud, who)
        if who == "admin":
            cloud.projects["mine"], cloud.projects["theirs"] = cloud.projects["theirs"], cloud.projects["mine"]
        server = await made(cloud)
        create = {"attachment": {"volume_uuid": volume, "instance_uuid": server}}
        connected = {"attachment": {"volume_uuid": volume, "instance_uuid": server, "connector": CONNECTOR}}
        old_way = {"os-attach": {"instance_uuid": server, "mountpoint": "/dev/vdb"}}
        asked = [("/attachments", create), ("/attachments", connected), (f"/volumes/{volume}/action", old_way)]
        for path, body in asked:
            answer = await volume_api(cloud, who, "POST", path, body)
            assert answer.status_code == 400, answer.text
            assert f"Instance {server} could not be found in the project of volume {volume}." in answer.text
        shown = (await volume_api(cloud, who, "GET", f"/volumes/{volume}")).json()["volume"]
        assert (shown["status"], shown["attachments"]) == ("available", [])

    run(story, hosts=1)


def test_what_a_client_attached_to_its_own_server_stays_the_clients() -> None:
    """It does not appear among the server's volumes, and the server's end does not end it."""

    async def story(cloud: Cloud) -> None:
        server, volume = await made(cloud), await _own_volume(cloud, "member")
        body = {"attachment": {"volume_uuid": volume, "instance_uuid": server, "connector": CONNECTOR}}
        answer = await volume_api(cloud, "member", "POST", "/attachments", body)
        assert answer.status_code == 200
        shown = await cloud.get("member", f"/servers/{server}/os-volume_attachments")
        assert shown == {"volumeAttachments": []}
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)

        async def is_gone() -> bool:
            return (await cloud.ask("member", "GET", f"/servers/{server}")).status_code == 404

        await cloud.api.until(is_gone)
        assert (await _attachment_of(cloud, volume))["id"] == answer.json()["attachment"]["id"]
        gone = await volume_api(cloud, "member", "DELETE", f"/attachments/{answer.json()['attachment']['id']}")
        assert gone.status_code == 200
        await until(cloud, volume, "available")

    run(story, hosts=1)
