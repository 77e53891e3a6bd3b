"""POST /operations and /plans with drain_host and return_host."""

from __future__ import annotations

from typing import Any

from tests.unit.api.embedded import Api, run

ROOMY = ("simulated.hosts=3",)


async def account(api: Api, operation: str) -> Any:
    return (await api.get(f"/operations/{operation}"))["operation"]["account"]


def test_a_drain_is_planned_done_and_taken_back() -> None:
    async def story(api: Api) -> None:
        servers = [await api.created(host="host1") for _ in range(2)]
        asked = {"operation": "drain_host", "host": "host1"}
        plan = (await api.post("/plans", asked, 200))["plan"]
        assert {move["server"] for move in plan["moves"]} == set(servers) and plan["operation"] == "drain_host"
        assert {(disk["disk"], disk["fate"]) for move in plan["moves"] for disk in move["disks"]} == {("root", "kept")}
        assert (await api.get("/hosts/host1"))["host"]["state"] == "up", "a dry run closes nothing"

        drained = (await api.post("/operations", asked))["operation"]
        await api.ended(drained)
        shown = (await api.get(f"/operations/{drained}"))["operation"]
        assert shown["account"]["sentence"] == "2 moved; 0 failed; 0 impossible"
        assert shown["progress"]["children"]["done"] == 2
        where = {move["server"]: move["to"] for move in plan["moves"]}
        for server in servers:
            now = (await api.get(f"/servers/{server}"))["server"]
            assert (now["host"], now["vm_state"]) == (where[server], "active"), "as planned"
        host = (await api.get("/hosts/host1"))["host"]
        assert (host["state"], host["disabled"]) == ("draining", False)

        asked = {"operation": "return_host", "host": "host1"}
        plan = (await api.post("/plans", asked, 200))["plan"]
        assert {move["server"]: move["to"] for move in plan["moves"]} == dict.fromkeys(servers, "host1")
        assert (await api.get("/hosts/host1"))["host"]["state"] == "draining"
        home = (await api.post("/operations", asked))["operation"]
        await api.ended(home)
        assert (await account(api, home))["moved"] == 2
        assert {(await api.get(f"/servers/{server}"))["server"]["host"] for server in servers} == {"host1"}

    run(story, *ROOMY)


def test_a_drain_without_room_is_refused_and_changes_nothing() -> None:
    async def story(api: Api) -> None:
        await api.created(host="host1")
        await api.post("/hosts/host2", {"disabled": True}, 200)
        asked = {"operation": "drain_host", "host": "host1"}
        status, code, sentence = await api.refused("POST", "/operations", asked)
        assert (status, code) == (409, "misfits") and "1 of 1 servers fit nowhere, so nothing was moved" in sentence
        assert (await api.get("/hosts/host1"))["host"]["state"] == "up"
        skipped = (await api.post("/operations", asked | {"on_misfit": "skip"}))["operation"]
        await api.ended(skipped)
        assert len((await account(api, skipped))["impossible"]) == 1
        assert (await api.get("/hosts/host1"))["host"]["state"] == "draining"
        await api.post("/hosts/host1", {"disabled": False}, 200)
        await api.host_is("host1", "up")

    run(story, "simulated.hosts=2")


def test_what_nobody_can_drain_or_return() -> None:
    async def story(api: Api) -> None:
        await api.post("/hosts/host2", {"disabled": True}, 200)
        await api.post("/simulated/hosts/host3", {"power": "off"}, 200)
        await api.post("/hosts/host3", {"forced_down": True}, 200)
        for body, status, code in (
            ({"operation": "drain_host", "host": "mars"}, 404, "no_such_host"),
            ({"operation": "drain_host", "host": "host1", "by": "fire"}, 400, "bad_request"),
            ({"operation": "return_host", "host": "host1", "by": "stop"}, 400, "bad_request"),
            ({"operation": "drain_host", "host": "host3"}, 409, "host_down"),
            ({"operation": "return_host", "host": "host3"}, 409, "host_down"),
            ({"operation": "return_host", "host": "host2"}, 409, "host_disabled"),
        ):
            for path in ("/operations", "/plans"):
                assert (await api.refused("POST", path, body))[:2] == (status, code), (path, body)

    run(story, *ROOMY)


def test_servers_are_stopped_where_they_are() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        asked = {"operation": "drain_host", "hosts": ["host1"], "by": "stop"}
        plan = (await api.post("/plans", asked, 200))["plan"]
        assert [(move["do"], move["to"]) for move in plan["moves"]] == [("stop", "host1")]
        drained = (await api.post("/operations", asked))["operation"]
        await api.ended(drained)
        assert (await account(api, drained))["sentence"] == "0 moved; 1 stopped; 0 failed; 0 impossible"
        assert (await api.get(f"/servers/{server}"))["server"]["vm_state"] == "stopped"

    run(story, *ROOMY)
