"""/placement: what the ledger says of hosts and servers, for administrators and services."""

from __future__ import annotations

from typing import Any

import httpx

from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_servers import made


async def get(cloud: Cloud, path: str, who: str = "admin", **headers: str) -> httpx.Response:
    return await cloud.api.client.get(f"/placement{path}", headers={"X-Auth-Token": who, **headers})


def test_a_server_holds_what_its_flavor_says() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        (provider,) = (await get(cloud, "/resource_providers?name=host1")).json()["resource_providers"]
        base = f"/resource_providers/{provider['uuid']}"
        assert (await get(cloud, base)).json() == provider
        held = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
        assert (await get(cloud, f"{base}/usages")).json()["usages"] == held
        assert (await get(cloud, f"{base}/allocations")).json()["allocations"] == {server: {"resources": held}}
        mine: Any = (await get(cloud, f"/allocations/{server}")).json()["allocations"]
        assert mine[provider["uuid"]]["resources"] == held
        inventory = (await get(cloud, f"{base}/inventories")).json()["inventories"]
        assert inventory["VCPU"]["total"] == 64 and set(inventory["VCPU"]) == {
            *("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
        }

    run(story, hosts=1)


def test_who_may_read_and_which_version() -> None:
    async def story(cloud: Cloud) -> None:
        assert (await cloud.api.client.get("/placement/")).json()["versions"][0]["max_version"] == "1.39"
        for who, status in (("admin", 200), ("service", 200), ("member", 403), ("nobody", 401)):
            assert (await get(cloud, "/resource_providers", who)).status_code == status
        assert (await get(cloud, "/allocations/nothing")).json() == {"allocations": {}}
        for path, status in (("/resource_providers/x", 404), ("/resource_providers?colour=red", 400), ("/x", 404)):
            answer = await get(cloud, path)
            assert answer.status_code == status and answer.json()["errors"][0]["status"] == status
        for version, status in (("1.0", 200), ("latest", 200), ("1.39", 200), ("1.40", 406), ("one", 400)):
            answer = await get(cloud, "/resource_providers", **{"OpenStack-API-Version": f"placement {version}"})
            assert answer.status_code == status

    run(story, hosts=0)
