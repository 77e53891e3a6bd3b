"""/os-services and /os-availability-zone: what they tell of hosts and workers, and the administrator's word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.compute.cloud import LATEST, Cloud, run

SERVICES = "/os-services"
OLD = {"id", "binary", "host", "zone", "status", "state", "updated_at", "disabled_reason"}
NEW = OLD | {"forced_down"}
BINARIES = ["nova-scheduler", "nova-conductor", "nova-compute", "nova-compute"]


async def services(cloud: Cloud, query: str = "", *, at: str = LATEST) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cloud.get("admin", SERVICES + query, at=at))["services"]
    return found


async def service_of(cloud: Cloud, host: str, *, at: str = LATEST) -> dict[str, Any]:
    (found,) = await services(cloud, f"?host={host}&binary=nova-compute", at=at)
    return found


async def host_is(cloud: Cloud, host: str, **expected: Any) -> None:
    async def look() -> bool:
        return (await service_of(cloud, host)).items() >= expected.items()

    await cloud.api.until(look)


def test_hosts_and_workers_are_listed() -> None:
    async def story(cloud: Cloud) -> None:
        for at, known in (("2.1", OLD), ("2.10", OLD), ("2.11", NEW), ("2.52", NEW), ("2.53", NEW), (LATEST, NEW)):
            found = await services(cloud, at=at)
            assert [set(one) for one in found] == [known] * 4 and [one["binary"] for one in found] == BINARIES
            assert {type(one["id"]) for one in found} == {str if at in ("2.53", LATEST) else int}
            assert len({one["id"] for one in found}) == 4
            assert [one["id"] for one in await services(cloud, at=at)] == [one["id"] for one in found]
            assert [(one["status"], one["state"]) for one in found] == [("enabled", "up")] * 4
        assert [one["zone"] for one in found] == ["internal", "internal", "nova", "nova"]
        assert [one["host"] for one in found][2:] == ["host1", "host2"] and found[0]["host"] == found[1]["host"]
        assert [one["host"] for one in await services(cloud, "?binary=nova-compute")] == ["host1", "host2"]
        assert [one["binary"] for one in await services(cloud, "?host=host2")] == ["nova-compute"]
        assert await services(cloud, "?host=host2&binary=nova-conductor") == []
        assert await services(cloud, "?host=nix") == []
        assert len(await services(cloud, "?unknown=1", at="2.74")) == 4
        assert await cloud.refuses("admin", "GET", f"{SERVICES}?unknown=1", at="2.75")

    run(story, hosts=2)


def test_the_old_way_of_saying_it() -> None:
    async def story(cloud: Cloud) -> None:
        one = {"host": "host1", "binary": "nova-compute"}

        async def act(action: str, at: str = "2.1", **more: Any) -> Any:
            return (await cloud.does("admin", "PUT", f"{SERVICES}/{action}", {**one, **more}, at=at))["service"]

        assert await act("disable") == {**one, "status": "disabled"}
        await host_is(cloud, "host1", status="disabled", disabled_reason=None)
        assert await act("disable-log-reason", disabled_reason="new disk") == {
            **one,
            "status": "disabled",
            "disabled_reason": "new disk",
        }
        await host_is(cloud, "host1", status="disabled", disabled_reason="new disk", state="up")
        await host_is(cloud, "host2", status="enabled")
        assert await act("enable") == {**one, "status": "enabled"}
        await host_is(cloud, "host1", status="enabled", disabled_reason=None)
        assert await act("force-down", "2.11", forced_down="true") == {**one, "forced_down": True}
        await host_is(cloud, "host1", forced_down=True, state="down", status="enabled")
        assert await act("force-down", "2.52", forced_down=False) == {**one, "forced_down": False}
        await host_is(cloud, "host1", forced_down=False, state="up")

    run(story, hosts=2)


def test_the_old_way_refuses() -> None:
    async def story(cloud: Cloud) -> None:
        one = {"host": "host1", "binary": "nova-compute"}
        for action, body, at, status in (
            *(("nix", one, "2.1", 404), ("force-down", one, "2.10", 404), ("enable", one, "2.53", 400)),
            *(("disable-log-reason", one, "2.1", 400), ("force-down", one, "2.11", 400)),
            *(("disable", {**one, "binary": "nova-conductor"}, "2.1", 400), ("disable", {**one, "x": 1}, "2.1", 400)),
            *(("disable", {**one, "host": "nix"}, "2.1", 404), ("disable", {"host": "host1"}, "2.1", 400)),
            *(("disable", {**one, "host": "a b"}, "2.1", 400), ("disable", [], "2.1", 400)),
            ("disable-log-reason", {**one, "disabled_reason": "x" * 256}, "2.1", 400),
            ("force-down", {**one, "forced_down": "maybe"}, "2.11", 400),
        ):
            assert await cloud.refuses("admin", "PUT", f"{SERVICES}/{action}", body, at=at, status=status), action
        said = await cloud.refuses("admin", "PUT", f"{SERVICES}/enable", {**one, "host": "nix"}, status=404)
        assert said == "Could not find binary nova-compute on host nix."
        assert (await service_of(cloud, "host1")).items() >= {"status": "enabled", "forced_down": False}.items()

    run(story, hosts=1)


def test_the_new_way_of_saying_it() -> None:
    async def story(cloud: Cloud) -> None:
        path = f"{SERVICES}/{(await service_of(cloud, 'host1'))['id']}"

        async def put(**wish: Any) -> Any:
            return (await cloud.does("admin", "PUT", path, wish, at="2.53"))["service"]

        shown = await put(status="disabled", disabled_reason="new disk")
        assert set(shown) == NEW and (shown["host"], shown["status"]) == ("host1", "disabled")
        assert shown["disabled_reason"] == "new disk"
        shown = await put(status="enabled", forced_down=True)
        assert (shown["status"], shown["state"], shown["forced_down"]) == ("enabled", "down", True)
        assert shown["disabled_reason"] is None
        shown = await put(forced_down="False", status="disabled")
        assert (shown["status"], shown["forced_down"], shown["disabled_reason"]) == ("disabled", False, None)
        await put(status="enabled")
        await host_is(cloud, "host1", state="up", status="enabled")

    run(story, hosts=1)


def test_the_new_way_refuses() -> None:
    async def story(cloud: Cloud) -> None:
        mine = (await service_of(cloud, "host1"))["id"]
        conductor = (await services(cloud, "?binary=nova-conductor"))[0]["id"]
        unknown = "00000000-0000-4000-8000-000000000000"
        for id_, wish, status in (
            *((mine, {}, 400), (mine, {"disabled_reason": "x"}, 400), (mine, {"status": "off"}, 400)),
            *((mine, {"status": "enabled", "disabled_reason": "x"}, 400), (mine, {"host": "host1"}, 400)),
            *(("enable", {"status": "enabled"}, 400), (unknown, {"status": "enabled"}, 404)),
            *((conductor, {"status": "disabled"}, 400), (mine, {"forced_down": "maybe"}, 400), (mine, [], 400)),
        ):
            assert await cloud.refuses("admin", "PUT", f"{SERVICES}/{id_}", wish, at="2.53", status=status), wish
        for id_, at, status in (
            *((unknown, LATEST, 404), ("nix", LATEST, 400), ("nix", "2.1", 400), ("123", "2.1", 404)),
            *((conductor, LATEST, 409), (mine, LATEST, 409)),
        ):
            assert await cloud.refuses("admin", "DELETE", f"{SERVICES}/{id_}", at=at, status=status), id_
        assert (await service_of(cloud, "host1")).items() >= {"status": "enabled", "forced_down": False}.items()
        assert len((await cloud.get("admin", "/os-hypervisors"))["hypervisors"]) == 1

    run(story, hosts=1)


def test_a_host_that_owes_something_is_not_declared_up() -> None:
    async def story(cloud: Cloud) -> None:
        api = cloud.api
        api.client.headers["X-Auth-Token"] = "admin"
        server = await api.created()
        host = (await api.get(f"/servers/{server}"))["server"]["host"]
        await api.post(f"/simulated/hosts/{host}", {"power": "off"}, status=200)
        path = f"{SERVICES}/{(await service_of(cloud, host))['id']}"
        await cloud.does("admin", "PUT", path, {"forced_down": True}, at="2.53")
        await api.ended((await api.submit("evacuate", server=server))["operation"])
        said = await cloud.refuses("admin", "PUT", path, {"forced_down": False}, at="2.53")
        assert "start its agent, and retry when it has removed them" in said
        assert (await service_of(cloud, host))["forced_down"] is True
        said = await cloud.refuses("admin", "DELETE", path, at="2.53", status=409)
        assert said.startswith(f"host {host}: its agent answered ")  # what it owes does not refuse it

    run(story, hosts=2)


@pytest.mark.slow
def test_a_host_is_deleted_when_it_is_empty_and_silent() -> None:
    async def story(cloud: Cloud) -> None:
        api = cloud.api
        api.client.headers["X-Auth-Token"] = "admin"
        server = await api.created(host="host1")
        path = f"{SERVICES}/{(await service_of(cloud, 'host1'))['id']}"
        said = await cloud.refuses("admin", "DELETE", path, at=LATEST, status=409)
        assert said == (
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
        )
        await api.ended((await api.submit("delete", server=server))["operation"])
        said = await cloud.refuses("admin", "DELETE", path, at=LATEST, status=409)
        assert "would register again; stop it" in said
        await host_is(cloud, "host1", state="up")
        await api.post("/simulated/hosts/host1", {"power": "off"}, status=200)
        await host_is(cloud, "host1", state="down")
        await cloud.does("admin", "DELETE", path, at=LATEST, status=204)
        assert [one["host"] for one in await services(cloud, "?binary=nova-compute")] == ["host2"]
        hypervisors = (await cloud.get("admin", "/os-hypervisors"))["hypervisors"]
        assert [one["hypervisor_hostname"] for one in hypervisors] == ["host2"]
        assert await cloud.refuses("admin", "DELETE", path, at=LATEST, status=404)
        # it may come back, as a new one, and take servers again
        await api.post("/simulated/hosts/host1", {"power": "on"}, status=200)

        async def back() -> bool:
            return len(await services(cloud, "?host=host1")) == 1

        await api.until(back)
        await host_is(cloud, "host1", state="up")
        assert path != f"{SERVICES}/{(await service_of(cloud, 'host1'))['id']}"
        await api.created(host="host1")

    run(story, "DEFAULT.service_down_time=4", hosts=2)


def test_zones() -> None:
    async def story(cloud: Cloud) -> None:
        open_ = {"available": True}
        for who in ("reader", "service", "admin"):
            zones = (await cloud.get(who, "/os-availability-zone"))["availabilityZoneInfo"]
            assert zones == [{"zoneName": "nova", "zoneState": open_, "hosts": None}]
        inner, nova = (await cloud.get("admin", "/os-availability-zone/detail"))["availabilityZoneInfo"]
        assert (inner["zoneName"], nova["zoneName"], inner["zoneState"], nova["zoneState"]) == (
            *("internal", "nova"),
            *(open_, open_),
        )
        assert set(nova["hosts"]) == {"host1", "host2"} and set(nova["hosts"]["host1"]) == {"nova-compute"}
        state = nova["hosts"]["host1"]["nova-compute"]
        assert set(state) == {"available", "active", "updated_at"} and state["available"] and state["active"]
        (of_worker,) = inner["hosts"].values()
        assert set(of_worker) == {"nova-conductor", "nova-scheduler"}

        for host in ("host1", "host2"):
            body = {"host": host, "binary": "nova-compute"}
            await cloud.does("admin", "PUT", f"{SERVICES}/disable", body)
            zones = (await cloud.get("admin", "/os-availability-zone/detail"))["availabilityZoneInfo"]
            if host == "host1":
                assert set(zones[1]["hosts"]) == {"host2"}
        assert zones[1] == {"zoneName": "nova", "zoneState": {"available": False}, "hosts": None}
        for who in ("manager", "member", "reader", "service"):
            assert await cloud.refuses(who, "GET", "/os-availability-zone/detail", status=403)
        assert await cloud.refuses("reader", "GET", "/os-availability-zone?x=1", at="2.102")

    run(story, hosts=2)


def test_only_administrators() -> None:
    async def story(cloud: Cloud) -> None:
        id_ = (await service_of(cloud, "host1"))["id"]
        for who in ("manager", "member", "reader", "service", "stranger"):
            assert await cloud.refuses(who, "GET", SERVICES, status=403)
            assert await cloud.refuses(who, "PUT", f"{SERVICES}/{id_}", {"status": "disabled"}, at="2.53", status=403)
            body = {"host": "host1", "binary": "nova-compute"}
            assert await cloud.refuses(who, "PUT", f"{SERVICES}/disable", body, status=403)
            assert await cloud.refuses(who, "DELETE", f"{SERVICES}/{id_}", at="2.53", status=403)
        assert await cloud.refuses("nobody", "GET", SERVICES, status=401)
        assert (await service_of(cloud, "host1"))["status"] == "enabled"

    run(story, hosts=1)
