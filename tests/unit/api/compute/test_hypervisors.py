"""/os-hypervisors and /extensions."""

from __future__ import annotations

import re
from typing import Any

from tests.unit.api.compute.cloud import LATEST, Cloud, run

PATH = "/os-hypervisors"
BRIEF = {"id", "hypervisor_hostname", "state", "status"}
NUMBERS = {
    *("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "free_ram_mb", "local_gb", "local_gb_used"),
    *("free_disk_gb", "disk_available_least", "current_workload", "running_vms"),
}
DETAIL = BRIEF | {"hypervisor_type", "hypervisor_version", "host_ip", "service"}


async def listed(cloud: Cloud, more: str = "", *, at: str = "2.1") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cloud.get("admin", PATH + more, at=at))["hypervisors"]
    return found


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["hypervisor_hostname"] for one in found]


async def make_server(cloud: Cloud, host: str) -> str:
    cloud.api.client.headers["X-Auth-Token"] = "admin"
    flavor = await cloud.api.new_flavor(f"f-{host}", 2, disk=3)
    return str(await cloud.api.created(flavor=flavor, host=host))


def test_each_version_shows_its_fields_and_no_others() -> None:
    async def story(cloud: Cloud) -> None:
        for at, full, kind in (
            *(("2.1", DETAIL | NUMBERS | {"cpu_info"}, int), ("2.28", DETAIL | NUMBERS | {"cpu_info"}, int)),
            *(("2.53", DETAIL | NUMBERS | {"cpu_info"}, str), ("2.87", DETAIL | NUMBERS | {"cpu_info"}, str)),
            *(("2.88", DETAIL | {"uptime"}, str), (LATEST, DETAIL | {"uptime"}, str)),
        ):
            brief = await listed(cloud, at=at)
            assert [set(one) for one in brief] == [BRIEF] * 2 and names(brief) == ["host1", "host2"]
            assert {type(one["id"]) for one in brief} == {kind}
            detail = await listed(cloud, "/detail", at=at)
            assert [set(one) for one in detail] == [full] * 2
            shown = (await cloud.get("admin", f"{PATH}/{brief[1]['id']}", at=at))["hypervisor"]
            assert {**shown, "uptime": ""} == {**detail[1], "uptime": ""}
            assert set(shown["service"]) == {"id", "host", "disabled_reason"} and shown["service"]["host"] == "host2"
            if "cpu_info" in full:
                assert shown["cpu_info"] == ("" if at == "2.1" else {})
            else:
                assert re.fullmatch(r" \d\d:\d\d:\d\d up  0:00", shown["uptime"])
            service = (await cloud.get("admin", "/os-services?host=host2", at=at))["services"][0]
            assert service["id"] == shown["service"]["id"]

    run(story, hosts=2)


def test_the_numbers_are_those_of_placement() -> None:
    async def story(cloud: Cloud) -> None:
        server = await make_server(cloud, "host2")
        one, two = await listed(cloud, "/detail")
        assert (one["vcpus"], one["memory_mb"], one["local_gb"], one["running_vms"]) == (64, 262144, 4000, 0)
        assert {name: two[name] for name in NUMBERS} == {
            "vcpus": 64,
            "vcpus_used": 2,
            "memory_mb": 262144,
            "memory_mb_used": 512,
            "free_ram_mb": 261632,
            "local_gb": 4000,
            "local_gb_used": 3,
            "free_disk_gb": 3997,
            "disk_available_least": 3997,
            "current_workload": 0,
            "running_vms": 1,
        }
        sums = (await cloud.get("admin", f"{PATH}/statistics"))["hypervisor_statistics"]
        assert set(sums) == NUMBERS | {"count"}
        assert (sums["count"], sums["vcpus"], sums["vcpus_used"], sums["running_vms"]) == (2, 128, 2, 1)
        await cloud.does("admin", "PUT", "/os-services/disable", {"host": "host1", "binary": "nova-compute"})
        sums = (await cloud.get("admin", f"{PATH}/statistics"))["hypervisor_statistics"]
        assert (sums["count"], sums["vcpus"]) == (1, 64)
        assert [one["status"] for one in await listed(cloud)] == ["disabled", "enabled"]
        mine = [{"uuid": server, "name": "web"}]
        hypervisors = await listed(cloud, "/host/servers")
        assert [one.get("servers") for one in hypervisors] == [None, mine]
        assert [one.get("servers") for one in await listed(cloud, "?with_servers=true", at="2.53")] == [None, mine]
        assert [one.get("servers") for one in await listed(cloud, "?with_servers=1", at="2.75")] == [[], mine]
        assert [one.get("servers") for one in await listed(cloud, "/detail?with_servers=True", at=LATEST)] == [[], mine]
        id_ = (await listed(cloud, at=LATEST))[1]["id"]
        shown = await cloud.get("admin", f"{PATH}/{id_}?with_servers=true", at=LATEST)
        assert shown["hypervisor"]["servers"] == mine
        shown = await cloud.get("admin", f"{PATH}/{id_}?with_servers=false", at=LATEST)
        assert "servers" not in shown["hypervisor"]

    run(story, hosts=2)


def test_searching_and_paging() -> None:
    async def story(cloud: Cloud) -> None:
        everybody = ["host1", "host2", "host3"]
        assert names(await listed(cloud, "/host/search")) == everybody
        assert names(await listed(cloud, "/st2/search")) == ["host2"]
        assert names(await listed(cloud, "?hypervisor_hostname_pattern=st3", at="2.53")) == ["host3"]
        assert names(await listed(cloud, "/detail?hypervisor_hostname_pattern=host", at=LATEST)) == everybody
        assert names(await listed(cloud, "?limit=1")) == everybody  # not known yet
        for at in ("2.33", "2.53", LATEST):
            for path in ("", "/detail"):
                page = await cloud.get("admin", f"{PATH}{path}?limit=2", at=at)
                assert names(page["hypervisors"]) == everybody[:2]
                last = page["hypervisors"][-1]["id"]
                href = f"http://cloud/compute/v2.1{PATH}{path}?limit=2&marker={last}"
                assert page["hypervisors_links"] == [{"rel": "next", "href": href}]
                page = await cloud.get("admin", f"{PATH}{path}?limit=2&marker={last}", at=at)
                assert names(page["hypervisors"]) == everybody[2:] and set(page) == {"hypervisors"}
            assert await listed(cloud, "?limit=0", at=at) == []

    run(story, hosts=3)


def test_what_is_refused() -> None:
    async def story(cloud: Cloud) -> None:
        unknown = "00000000-0000-4000-8000-000000000000"
        id_, number = (await listed(cloud, at=LATEST))[0]["id"], (await listed(cloud))[0]["id"]
        for path, at, status in (
            *((f"/{unknown}", "2.1", 404), ("/nix", "2.1", 404), (f"/{id_}", "2.52", 404), ("/12", "2.1", 404)),
            *((f"/{unknown}", "2.53", 404), ("/nix", "2.53", 400), (f"/{number}", "2.53", 400)),
            *((f"/{unknown}/uptime", "2.1", 404), (f"/{unknown}/uptime", "2.53", 404), ("/x/uptime", "2.53", 400)),
            *(("/nix/search", "2.1", 404), ("/nix/servers", "2.1", 404), ("/host1/search", "2.53", 404)),
            *(("/host1/servers", "2.53", 404), ("/statistics", "2.87", 200), (f"/{id_}/uptime", "2.88", 404)),
            *(("?marker=nix", "2.33", 400), ("?limit=x", "2.33", 400), (f"?marker={unknown}", "2.53", 400)),
            *(("?unknown=1", "2.52", 200), ("?unknown=1", "2.53", 400), ("?with_servers=maybe", "2.53", 400)),
            *(("?limit=1&limit=2", "2.53", 400), ("?hypervisor_hostname_pattern=nix", "2.53", 404)),
            *(("?hypervisor_hostname_pattern=host&limit=1", "2.53", 400), (f"/{id_}?x=1", "2.53", 400)),
            *(("?hypervisor_hostname_pattern=a%20b", "2.53", 400), ("?hypervisor_hostname_pattern=", "2.53", 400)),
            ("/statistics", "2.88", 404),
        ):
            if status == 200:
                await cloud.get("admin", PATH + path, at=at)
            else:
                assert await cloud.refuses("admin", "GET", PATH + path, at=at, status=status), (path, at)
        for who in ("manager", "member", "reader", "service", "stranger"):
            for path in ("", "/detail", "/statistics", f"/{number}", f"/{number}/uptime", "/h/search", "/h/servers"):
                assert await cloud.refuses(who, "GET", PATH + path, status=403)
        assert await cloud.refuses("nobody", "GET", PATH, status=401)

    run(story, hosts=1)


def test_uptime_and_a_host_that_is_down() -> None:
    async def story(cloud: Cloud) -> None:
        number = (await listed(cloud))[0]["id"]
        shown = (await cloud.get("admin", f"{PATH}/{number}/uptime"))["hypervisor"]
        assert set(shown) == BRIEF | {"uptime"} and re.fullmatch(r" \d\d:\d\d:\d\d up  0:00", shown["uptime"])
        await cloud.does(
            "admin",
            "PUT",
            "/os-services/force-down",
            {"host": "host1", "binary": "nova-compute", "forced_down": True},
            at="2.11",
        )
        assert [one["state"] for one in await listed(cloud)] == ["down"]
        said = await cloud.refuses("admin", "GET", f"{PATH}/{number}/uptime")
        assert said == "Compute service of host1 is unavailable at this time."
        assert (await listed(cloud, "/detail", at=LATEST))[0]["uptime"] is None

    run(story, hosts=1)


def test_extensions() -> None:
    async def story(cloud: Cloud) -> None:
        found = (await cloud.get("reader", "/extensions"))["extensions"]
        by_alias = {one["alias"]: one for one in found}
        assert len(by_alias) == len(found) > 30 and by_alias["os-keypairs"]["name"] == "Keypairs"
        assert {frozenset(one) for one in found} == {
            frozenset({"alias", "description", "links", "name", "namespace", "updated"})
        }
        shown = await cloud.get("reader", "/extensions/os-keypairs", at=LATEST)
        assert shown == {"extension": by_alias["os-keypairs"]}
        assert await cloud.refuses("reader", "GET", "/extensions/nix", status=404)
        assert await cloud.refuses("nobody", "GET", "/extensions", status=401)
        assert await cloud.refuses("reader", "GET", "/extensions?x=1", at="2.102")

    run(story)
