"""Pinned CPUs and devices from the request to /servers/{id}/topology; what cannot be is refused before it is stored."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.api.compute.cloud import LATEST, Cloud, run
from tests.unit.api.compute.test_servers import made

CARD = {"vendor_id": "8086", "product_id": "1572", "numa_node": 1, "vfs": 2, "vf_product_id": "154c"}
ALIAS = {"name": "nic", "vendor_id": "8086", "product_id": "154c", "device_type": "type-VF"}
HARDWARE = (
    "simulated.vcpus=8",
    "compute.cpu_dedicated_set=2-3,6-7",
    "compute.cpu_shared_set=0-1,4-5",
    f"simulated.pci={json.dumps([CARD])}",
    f"pci.alias={json.dumps([ALIAS])}",
    'pci.device_spec=[{"vendor_id": "8086"}]',
)


async def flavor(cloud: Cloud, name: str, vcpus: int, **specs: str) -> str:
    body = {"flavor": {"name": name, "ram": 512, "vcpus": vcpus, "disk": 1, "id": name}}
    await cloud.does("admin", "POST", "/flavors", body)
    keys = {key.replace("__", ":"): value for key, value in specs.items()}
    if keys:
        await cloud.does("admin", "POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": keys})
    return name


async def topology(cloud: Cloud, who: str, server: str, at: str = LATEST) -> Any:
    return await cloud.get(who, f"/servers/{server}/topology", at=at)


def test_a_pinned_server_tells_its_topology() -> None:
    async def story(cloud: Cloud) -> None:
        specs = {
            "hw__cpu_policy": "dedicated",
            "hw__numa_nodes": "2",
            "hw__cpu_threads": "2",
            "hw__mem_page_size": "small",
        }
        server = await made(cloud, flavorRef=await flavor(cloud, "pinned", 4, **specs))
        mine = await topology(cloud, "reader", server, "2.78")
        nodes = [{"memory_mb": 256, "vcpu_set": cpus, "siblings": [cpus]} for cpus in ([0, 1], [2, 3])]
        assert mine == {"nodes": nodes, "pagesize_kb": 4}
        whole = await topology(cloud, "admin", server)
        given = [{"host_node": 0, "cpu_pinning": {"0": 2, "1": 3}}, {"host_node": 1, "cpu_pinning": {"2": 6, "3": 7}}]
        assert whole["nodes"] == [node | more for node, more in zip(nodes, given, strict=True)]
        assert "not be found" in await cloud.refuses(
            "stranger", "GET", f"/servers/{server}/topology", at=LATEST, status=404
        )
        old = await cloud.ask("member", "GET", f"/servers/{server}/topology", at="2.77")
        assert old.status_code == 404
        shown = (await cloud.get("admin", "/os-hypervisors/detail", at="2.53"))["hypervisors"][0]
        assert shown["vcpus"] == 4, "the shared ones"

    run(story, *HARDWARE, hosts=1)


def test_a_plain_server_has_no_topology() -> None:
    async def story(cloud: Cloud) -> None:
        assert await topology(cloud, "member", await made(cloud)) == {"nodes": [], "pagesize_kb": None}

    run(story, hosts=1)


def test_what_no_host_has_is_buried_with_the_reason() -> None:
    async def story(cloud: Cloud) -> None:
        nic = await flavor(cloud, "nic", 1, pci_passthrough__alias="nic:1")
        for name in ("a", "b"):
            assert (await cloud.get("member", f"/servers/{await made(cloud, name, flavorRef=nic)}"))["server"][
                "status"
            ] == "ACTIVE"
        third = (await cloud.get("admin", f"/servers/{await made(cloud, 'c', flavorRef=nic)}"))["server"]
        assert (third["status"], third["fault"]["message"]) == ("ERROR", "No valid host was found.")
        assert "PciPassthroughFilter rejects 1" in third["fault"]["details"]
        unplaced = await topology(cloud, "admin", third["id"])
        assert unplaced == {"nodes": [], "pagesize_kb": None}

    run(story, *HARDWARE, hosts=1)


def test_a_server_without_a_host_tells_what_it_asks_for() -> None:
    async def story(cloud: Cloud) -> None:
        pair = await flavor(cloud, "pair", 4, hw__cpu_policy="dedicated")  # no cell has four
        server = await made(cloud, flavorRef=pair)
        (node,) = (await topology(cloud, "admin", server))["nodes"]
        assert node == {"memory_mb": 512, "vcpu_set": [0, 1, 2, 3], "siblings": [], "cpu_pinning": {}}

    run(story, *HARDWARE, hosts=1)


def test_what_cannot_be_is_refused_and_nothing_is_made() -> None:
    async def story(cloud: Cloud) -> None:
        image = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"][0]
        bad = {
            "odd": ({"hw__numa_nodes": "3"}, "hw:numa_nodes=3: 4 vCPUs and 512 MB cannot be divided evenly"),
            "gone": ({"pci_passthrough__alias": "gpu:1"}, "PCI alias gpu: not found; [pci] alias has nic"),
        }
        for name, (specs, sentence) in bad.items():
            body = {
                "server": {"name": "a", "flavorRef": await flavor(cloud, name, 4, **specs), "imageRef": image["id"]}
            }
            assert sentence in await cloud.refuses("member", "POST", "/servers", body)
        assert (await cloud.get("member", "/servers"))["servers"] == []

    run(story, *HARDWARE, hosts=1)


def test_a_rebuild_may_not_ask_for_other_hardware() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        asks = {"name": "pinned", "disk_format": "raw", "container_format": "bare", "hw_cpu_policy": "dedicated"}
        headers = {"X-Auth-Token": "admin"}
        image = (
            await cloud.api.client.post("/image/v2/images", headers=headers, json=asks | {"visibility": "public"})
        ).json()
        sent = {**headers, "Content-Type": "application/octet-stream"}
        await cloud.api.client.put(f"/image/v2/images/{image['id']}/file", headers=sent, content=b"x")
        body = {"rebuild": {"imageRef": image["id"]}}
        why = await cloud.refuses("member", "POST", f"/servers/{server}/action", body)
        assert why.startswith(f"Image {image['id']} asks for another NUMA topology, CPU policy or page size")

    run(story, *HARDWARE, hosts=1)


def test_several_at_once_each_get_their_own() -> None:
    async def story(cloud: Cloud) -> None:
        pair = await flavor(cloud, "pair", 2, hw__cpu_policy="dedicated")
        first = await made(cloud, "many", flavorRef=pair, min_count=2, max_count=2)
        both = [server["id"] for server in (await cloud.get("member", "/servers"))["servers"]]
        assert first in both and len(both) == 2
        await cloud.api.until(lambda: _all_run(cloud, both))
        pinned = [(await topology(cloud, "admin", server))["nodes"][0]["cpu_pinning"] for server in both]
        assert sorted(sorted(one.values()) for one in pinned) == [[2, 3], [6, 7]]

    run(story, *HARDWARE, hosts=1)


async def _all_run(cloud: Cloud, servers: list[str]) -> bool:
    shown = [(await cloud.get("member", f"/servers/{server}"))["server"] for server in servers]
    return all(server["status"] == "ACTIVE" for server in shown)
