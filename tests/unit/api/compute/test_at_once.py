"""The same request many times at once: one key is one operation, and no limit is overrun."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.api.compute.cloud import LATEST, Cloud, run
from tests.unit.api.compute.test_server_volumes import address, new_volume, wish
from tests.unit.api.compute.test_servers import made


async def _keyed(cloud: Cloud, method: str, path: str, body: Any, key: str = "once") -> Any:
    headers = {"X-Auth-Token": "member", "OpenStack-API-Version": f"compute {LATEST}", "Idempotency-Key": key}
    return await cloud.api.client.request(method, f"/compute/v2.1{path}", headers=headers, json=body)


def test_one_key_is_one_operation_whatever_a_faster_one_has_changed() -> None:
    """The volume is reserved, the server busy or gone, when the slower ones look."""

    async def story(cloud: Cloud) -> None:
        cloud.api.client.headers["X-Auth-Token"] = "admin"
        server, volume = await made(cloud), await new_volume(cloud)
        asked = [
            ("POST", address(server), wish(volume)),
            ("POST", f"/servers/{server}/action", {"os-stop": None}),
            ("DELETE", f"/servers/{server}", None),
        ]
        for number, (method, path, body) in enumerate(asked):
            answers = await asyncio.gather(*(_keyed(cloud, method, path, body, f"k{number}") for _ in range(10)))
            told = {(answer.status_code, answer.headers.get("x-kilonova-operation")) for answer in answers}
            assert len(told) == 1 and None not in told and answers[0].status_code < 300, told
            await cloud.api.ended(answers[0].headers["x-kilonova-operation"])

    run(story, hosts=1)


def test_metadata_is_counted_where_it_is_written() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        items = [{"metadata": {f"key{number}": "x"}} for number in range(12)]
        asked = [cloud.ask("member", "POST", f"/servers/{server}/metadata", item) for item in items]
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [403] * 7
        assert len((await cloud.get("member", f"/servers/{server}/metadata"))["metadata"]) == 5
        await cloud.does(
            "admin", "PUT", f"/os-quota-sets/{cloud.projects['mine']}", {"quota_set": {"metadata_items": 2}}
        )
        (key, *_) = (await cloud.get("member", f"/servers/{server}/metadata"))["metadata"]
        await cloud.does("member", "DELETE", f"/servers/{server}/metadata/{key}", status=204)

    run(story, "quota.metadata_items=5", hosts=1)
