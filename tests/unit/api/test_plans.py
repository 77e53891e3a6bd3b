"""/plans: what would happen, with nothing stored."""

from __future__ import annotations

from typing import Any

from tests.unit.api.embedded import Api, run


def test_a_plan_names_the_destination_and_the_steps_and_stores_nothing() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        before = (await api.get("/operations"))["operations"]
        told = (await api.post("/plans", {"operation": "migrate", "server": server, "host": "host3"}, 200))["plan"]
        assert told["facts"]["candidates"][0]["host"] == "host3"
        assert [step["name"] for step in told["steps"]][:3] == ["cold_migrate", "claim", "prep_resize"]
        assert told["problem"] is None
        assert (await api.get("/operations"))["operations"] == before

    run(story)


def test_a_plan_is_refused_as_the_request_would_be() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        asked = {"operation": "evacuate", "server": server}
        refused = await api.refused("POST", "/plans", asked)
        assert refused == await api.refused("POST", "/operations", asked) or refused[:2] == (400, "host_still_up")
        assert (await api.refused("POST", "/plans", {"operation": "migrate", "server": "nobody"}))[0] == 404
        assert (await api.refused("POST", "/plans", {"operation": "fly", "server": server}))[0] == 400

    run(story)


def test_a_plan_of_a_whole_host_says_who_would_go_where_and_stores_nothing() -> None:
    async def story(api: Api) -> None:
        servers = {await api.created(host="host1") for _ in range(2)}
        assert await api.refused("POST", "/plans", {"operation": "evacuate_host", "host": "mars"}) == (
            *(404, "no_such_host"),
            "Compute host mars could not be found.",
        )
        asked = {"operation": "evacuate_host", "host": "host1"}
        assert (await api.refused("POST", "/plans", asked))[1] == "host_still_up"
        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)
        await api.post("/hosts/host1", {"forced_down": True}, 200)
        before = (await api.get("/operations"))["operations"]
        told = (await api.post("/plans", asked, 200))["plan"]
        assert (told["misfits"], told["refused"]) == ({}, {})
        assert {move["server"] for move in told["moves"]} == servers
        assert {move["to"] for move in told["moves"]} <= {"host2", "host3"}
        assert all(move["source"] == "host1" and move["why"] for move in told["moves"])
        fates = [[disk["fate"] for disk in move["disks"]] for move in told["moves"]]
        assert fates == [["re-created"], ["re-created"]]
        assert told["hosts"]["host1"]["proven_by"] == "forced_down"
        assert told["seconds"] > 0 and told["bytes"] == sum(move["bytes"] for move in told["moves"]) > 0
        assert (await api.get("/operations"))["operations"] == before
        for host in ("host2", "host3"):
            await api.post(f"/hosts/{host}", {"disabled": True}, 200)
        told = (await api.post("/plans", asked, 200))["plan"]
        assert told["moves"] == [] and set(told["misfits"]) == servers
        assert all("No valid host" in one["why"] for one in told["misfits"].values())
        assert all(one["changes"][0].startswith("enable host") for one in told["misfits"].values())

    run(story)


def test_a_plan_of_a_host_that_is_gone_says_what_is_settled_and_stores_nothing() -> None:
    async def story(api: Api) -> None:
        server, resized = await api.created(host="host1"), await api.created(host="host1")
        asked = {"operation": "host_gone", "host": "host1"}
        assert (await api.refused("POST", "/plans", asked))[1] == "host_still_up"
        await api.ended((await api.submit("migrate", server=resized, host="host2"))["operation"])
        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)
        await api.post("/hosts/host1", {"forced_down": True}, 200)
        status, code, sentence = await api.refused("POST", "/plans", asked)
        assert (
            (status, code) == (409, "host_in_use") and "1 servers are on it" in sentence and "evacuate_host" in sentence
        )
        await api.ended((await api.submit("evacuate", server=server))["operation"])
        before = (await api.get("/operations"))["operations"]
        plan = (await api.post("/plans", asked, 200))["plan"]
        assert (plan["reverts"], plan["confirm_only"]) == ([], [resized])
        assert plan["settled"] == {"copies": 2, "debts": 1, "evacuations": 1} and plan["left"] == {"quarantined": 0}
        assert plan["proof"].startswith("host1 was declared down")
        assert (await api.get("/operations"))["operations"] == before
        assert (await api.get("/hosts/host1"))["host"]["state"] == "down"

    run(story)


def test_what_is_no_plan_is_told_with_what_would_be() -> None:
    async def story(api: Api) -> None:
        told = await api.refused("POST", "/plans", {"operation": "fly", "server": "x"})
        assert told[2] == (
            "operation 'fly': unknown here; use one of create, "
            "rebuild, delete, migrate, confirm_resize, revert_resize, evacuate, retry, snapshot, resize, "
            "evacuate_host, drain_host, return_host, host_gone"
        )

    run(story)


def test_plans_of_a_move_say_what_becomes_of_disks_and_claims() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        share = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}

        async def plan(operation: str, **more: str) -> Any:
            told = (await api.post("/plans", {"operation": operation, "server": server, **more}, 200))["plan"]
            assert told["problem"] is None and told["joins"] is None
            return told["outlook"]

        assert await plan("migrate", host="host3") == {
            "host": "host3",
            "ends": "resized",
            "disks": [{"disk": "root", "fate": "kept"}],
            "claims": {"host3": share},
            "left": [{"host": "host1", "copies": [1], "claims": {"host1": share}}],
            "removed": [],
        }
        await api.ended((await api.submit("migrate", server=server, host="host3"))["operation"])
        before = (await api.get("/operations"))["operations"]
        old, new = (
            {"host": "host1", "copies": [1], "claims": {"host1": share}},
            {"host": "host3", "copies": [2], "claims": {"host3": share}},
        )
        nothing: dict[str, Any] = {"claims": {}, "left": []}
        assert await plan("confirm_resize") == {
            "host": "host3",
            "ends": "active",
            "disks": [{"disk": "root", "fate": "kept"}],
            "removed": [old],
            **nothing,
        }
        assert await plan("revert_resize") == {
            "host": "host1",
            "ends": "active",
            "disks": [{"disk": "root", "fate": "reverted"}],
            "removed": [new],
            **nothing,
        }
        assert await plan("delete") == {
            "host": None,
            "ends": "deleted",
            "disks": [{"disk": "root", "fate": "lost"}],
            "removed": [old, new],
            **nothing,
        }
        assert (await api.get("/operations"))["operations"] == before
        await api.ended((await api.submit("revert_resize", server=server))["operation"])

    run(story)


def test_a_plan_of_a_move_that_finds_no_host_says_why_and_promises_nothing() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        await api.post("/hosts/host2", {"disabled": True}, 200)
        told = (await api.post("/plans", {"operation": "migrate", "server": server, "host": "host2"}, 200))["plan"]
        assert told["problem"]["code"] == "no_valid_host"
        assert (told["outlook"]["host"], told["outlook"]["disks"], told["outlook"]["claims"]) == (None, [], {})
        verdicts = told["problem"]["details"]["decision"]["verdicts"]
        assert any("disabled" in str(one) for one in verdicts)
        assert (await api.refused("POST", "/plans", {"operation": "confirm_resize", "server": server}))[0] == 409

    run(story)
