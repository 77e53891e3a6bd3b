"""The same request with the same Idempotency-Key is the same operation, whatever has become of its host, server, flavor
or image since; and whole hosts that an operation is at work on are not asked for twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.embedded import QUICK, Api, run

HOSTS = ("simulated.hosts=3", *QUICK)
UNFENCED = {"accept_unfenced": True}


async def down(api: Api, host: str) -> None:
    await api.post(f"/simulated/hosts/{host}", {"power": "off"}, 200)
    await api.host_is(host, "down")


async def up(api: Api, host: str) -> None:
    await api.post(f"/simulated/hosts/{host}", {"power": "on"}, 200)
    await api.host_is(host, "up")


async def answers(api: Api, host: str) -> bool:
    return (await api.get(f"/hosts/{host}"))["host"]["state"] in ("up", "returning")


async def known_dead(api: Api, body: dict[str, Any], **headers: str) -> Any:
    """The answer to a request about a dead host. A busy machine may not hear its hosts for a moment: then nothing is
    known of any, and it is asked again."""
    found: list[Any] = []

    async def look() -> bool:
        answer = await api.ask("POST", "/operations", body, **headers)
        found.append(answer.json())
        assert answer.status_code == 202 or found[-1]["error"]["code"] == "host_unknown", answer.text
        return answer.status_code == 202

    await api.until(look)
    return found[-1]


async def same(api: Api, body: dict[str, Any], first: Any, key: str) -> None:
    again = await api.post("/operations", body, Idempotency_Key=key)
    assert again == first
    other = await api.refused("POST", "/operations", {**body, **_other(body)}, Idempotency_Key=key)
    assert other[:2] == (409, "idempotency_key_reused")


def _other(body: dict[str, Any]) -> dict[str, Any]:
    return {"reason": "another"} if "reason" in body else {"deadline": 7.0} if "hosts" in body else {}


@pytest.mark.slow
def test_an_evacuation_is_asked_again_when_its_host_is_back_and_when_it_is_gone() -> None:
    async def story(api: Api) -> None:
        await api.created(host="host1")
        await down(api, "host1")
        body = {"operation": "evacuate_host", "hosts": ["host1"], **UNFENCED}
        first = await known_dead(api, body, Idempotency_Key="e")
        await api.ended(first["operation"])
        await up(api, "host1")
        await same(api, body, first, "e")
        await down(api, "host1")
        gone = {"operation": "host_gone", "host": "host1", "reason": "scrapped"}
        ended = await known_dead(api, gone, Idempotency_Key="g")
        await api.ended(ended["operation"])
        await same(api, gone, ended, "g")
        await same(api, body, first, "e")

    run(story, *HOSTS)


@pytest.mark.slow
def test_a_drain_and_a_return_are_asked_again_when_their_host_is_down() -> None:
    async def story(api: Api) -> None:
        await api.created(host="host1")
        drain = {"operation": "drain_host", "hosts": ["host1"]}
        drained = await api.post("/operations", drain, Idempotency_Key="d")
        await api.ended(drained["operation"])
        back = {"operation": "return_host", "hosts": ["host1"]}
        returned = await api.post("/operations", back, Idempotency_Key="r")
        await api.ended(returned["operation"])
        await down(api, "host1")
        await same(api, drain, drained, "d")
        await same(api, back, returned, "r")

    run(story, *HOSTS)


@pytest.mark.slow
def test_an_evacuation_that_runs_is_joined_also_when_its_host_is_back() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")

        async def runs_elsewhere() -> bool:
            """From then on the evacuation goes on, also when its source returns (law 8)."""
            runner = (await api.get(f"/servers/{server}"))["server"]["runner"]
            return bool(runner and runner[0] != "host1")

        await down(api, "host1")
        body = {"operation": "evacuate_host", "host": "host1", **UNFENCED}
        first = await known_dead(api, body)
        await api.until(runs_elsewhere)
        await api.post("/simulated/hosts/host1", {"power": "on"}, 200)
        await api.until(lambda: answers(api, "host1"))
        assert (await api.post("/operations", body))["operation"] == first["operation"]
        await api.ended(first["operation"])

    run(story, *HOSTS, "simulated.boot_seconds=8")


@pytest.mark.parametrize("operation", ["resize", "rebuild", "snapshot", "migrate"])
def test_a_request_about_a_server_is_asked_again_when_the_server_is_gone(operation: str) -> None:
    async def story(api: Api) -> None:
        images = (await api.client.get("/image/v2/images")).json()["images"]
        more = {
            "resize": {"flavor": "2"},
            "rebuild": {"image": images[0]["id"]},
            "snapshot": {"name": "kept"},
            "migrate": {},
        }
        server = await api.created()
        body = {"operation": operation, "server": server, **more[operation]}
        first = await api.post("/operations", body, Idempotency_Key="s")
        await api.ended(first["operation"])
        deleted = await api.post("/operations", {"operation": "delete", "server": server})
        await api.ended(deleted["operation"])
        assert await api.post("/operations", body, Idempotency_Key="s") == first
        other = {**body, "server": "00000000-0000-0000-0000-000000000000"}
        status, code, _ = await api.refused("POST", "/operations", other, Idempotency_Key="s")
        assert (status, code) == (409, "idempotency_key_reused")

    run(story, *HOSTS)


def test_an_action_of_compute_is_asked_again_when_the_server_is_gone() -> None:
    async def story(api: Api) -> None:
        async def act(server: str, body: dict[str, Any]) -> tuple[int, str | None]:
            headers = {"OpenStack-API-Version": "compute 2.90", "Idempotency-Key": "a"}
            path = f"/compute/v2.1/servers/{server}/action"
            answer = await api.client.post(path, json=body, headers=headers)
            return answer.status_code, answer.headers.get("x-kilonova-operation")

        bodies = [{"resize": {"flavorRef": "2"}}, {"migrate": {"host": "host2"}}, {"evacuate": {}}]
        servers = [await api.created(host="host1") for _ in bodies]
        asked = list(zip(servers, bodies, strict=True))
        await api.until(lambda: answers(api, "host2"))
        first = [await act(*one) for one in asked[:2]]
        for _, operation in first:
            await api.ended(operation or "")
        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)
        await api.post("/hosts/host1", {"forced_down": True}, 200)
        first.append(await act(*asked[2]))
        assert [status for status, _ in first] == [202, 202, 200]
        await api.ended(first[2][1] or "")
        for server in servers:
            await api.ended((await api.post("/operations", {"operation": "delete", "server": server}))["operation"])
        assert [await act(*one) for one in asked] == first

    run(story, *HOSTS)
