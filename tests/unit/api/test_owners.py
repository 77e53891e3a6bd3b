"""/operations for the owners of servers: what they see, what they cancel, and what stays hidden."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from kilonova.domain.cause import Cause
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_servers import made, new_server

OWN = "/kilonova/v1"
NOT_THERE = "00000000-0000-0000-0000-000000000000"


async def ask(cloud: Cloud, who: str, method: str, path: str) -> httpx.Response:
    return await cloud.ask(who, method, path, {} if method == "POST" else None, prefix=OWN)


async def shown(cloud: Cloud, who: str, operation: str) -> Any:
    answer = await ask(cloud, who, "GET", f"/operations/{operation}")
    assert answer.status_code == 200, answer.text
    assert "host1" not in answer.text and "host2" not in answer.text and "cell1" not in answer.text, answer.text
    return answer.json()["operation"]


async def act(cloud: Cloud, who: str, server: str, body: dict[str, Any]) -> str:
    answer = await cloud.ask(who, "POST", f"/servers/{server}/action", body, at="2.56")
    assert answer.status_code == 202, answer.text
    return str(answer.headers["X-Kilonova-Operation"])


async def until(cloud: Cloud, operation: str, name: str, *values: Any) -> Any:
    async with asyncio.timeout(60):
        while True:
            found = await shown(cloud, "reader", operation)
            if found[name] in values:
                return found
            await asyncio.sleep(0.02)


async def cut(cloud: Cloud, host: str, word: str) -> None:
    answer = await cloud.api.ask("POST", f"/simulated/hosts/{host}", {"link": word}, X_Auth_Token="admin")
    assert answer.status_code == 200, answer.text


async def heard_long_ago(cloud: Cloud, host: str) -> None:
    """Longer than service_down_time, while nobody has listened for as long: nothing is known of it."""
    last, at = None, time.monotonic()
    async with asyncio.timeout(60):
        while (now := time.monotonic()) - at < 3:  # what it sent before the cut is written within a second
            if (seen := (await ask(cloud, "admin", "GET", f"/hosts/{host}")).json()["host"]["last_seen"]) != last:
                last, at = seen, now
            await asyncio.sleep(0.1)

    async def body(tx: Tx) -> None:
        await rows.change(tx, cell.hosts, {"last_seen": await tx.now() - 301}, name=host)

    await cloud.api.service.engine.world.db.cell("cell1").write(body)
    assert "unknown" in (await ask(cloud, "admin", "GET", f"/hosts/{host}")).text


async def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


async def asked_by_an_operator(cloud: Cloud, server: str) -> str:
    """On a project of the operator's."""
    cause = Cause(user_id="root", project_id="operators", through="api", request_id="req-1", is_admin=True)
    return (await submit(cloud.api.service.engine, Ask(kind="migrate", server_id=server, cause=cause))).operation_id


def test_owners_see_the_operations_on_their_servers_without_hosts() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        moved = await act(cloud, "admin", server, {"migrate": None})
        await until(cloud, moved, "state", "done")
        listed = (await ask(cloud, "reader", "GET", f"/operations?server={server}")).json()["operations"]
        assert [(one["operation"], one["state"]) for one in listed] == [("migrate", "done"), ("create", "done")]
        for one in listed:
            assert one["destination"] is None and one["journals"] is None and one["parent"] is None
        found = await shown(cloud, "member", moved)
        assert [step["name"] for step in found["steps"]][:3] == ["cold_migrate", "claim", "prep_resize"]
        assert {step["on"] for step in found["steps"]} == {None}
        assert set(found) == set((await ask(cloud, "admin", "GET", f"/operations/{moved}")).json()["operation"])
        page = (await ask(cloud, "reader", "GET", f"/operations?server={server}&limit=1&marker={moved}")).json()
        assert [one["operation"] for one in page["operations"]] == ["create"]

    run(story, hosts=2)


def test_other_projects_find_nothing() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        (mine,) = (await ask(cloud, "member", "GET", f"/operations?server={server}")).json()["operations"]
        for who, id_ in (("stranger", mine["id"]), ("member", NOT_THERE)):
            for method, path in (("GET", ""), ("POST", "/cancel")):
                answer = await ask(cloud, who, method, f"/operations/{id_}{path}")
                assert await code(answer) == (404, f"operation {id_}: not found")
        for who, id_ in (("stranger", server), ("member", NOT_THERE)):
            answer = await ask(cloud, who, "GET", f"/operations?server={id_}")
            assert await code(answer) == (404, f"server {id_}: it has no operations")
        theirs = await made(cloud, who="stranger")
        (other,) = (await ask(cloud, "stranger", "GET", f"/operations?server={theirs}")).json()["operations"]
        answer = await ask(cloud, "member", "GET", f"/operations?server={server}&marker={other['id']}")
        assert await code(answer) == (400, f"marker {other['id']}: not found")
        assert (await ask(cloud, "member", "GET", "/operations")).status_code == 403
        for path in ("/explain", "/resume", "/abandon"):
            method = "GET" if path == "/explain" else "POST"
            assert (await ask(cloud, "member", method, f"/operations/{mine['id']}{path}")).status_code == 403

    run(story, hosts=1)


@pytest.mark.slow
def test_owners_cancel_what_their_project_asked_for_and_read_what_it_waits_for() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        where = (await cloud.get("admin", f"/servers/{server}"))["server"]["OS-EXT-SRV-ATTR:host"]
        await cut(cloud, other := {"host1": "host2", "host2": "host1"}[where], "cut")
        moving = await act(cloud, "manager", server, {"migrate": None})
        await until(cloud, moving, "waiting_for", "a host of the cloud to answer")
        assert (await ask(cloud, "reader", "POST", f"/operations/{moving}/cancel")).status_code == 403
        assert (await ask(cloud, "stranger", "POST", f"/operations/{moving}/cancel")).status_code == 404
        assert (await ask(cloud, "member", "POST", f"/operations/{moving}/cancel")).status_code == 202
        await cut(cloud, other, "up")
        ended = await until(cloud, moving, "state", "cancelled")
        assert ended["error"] == {"code": "cancelled", "message": "The operation was cancelled.", "step": ""}
        await cut(cloud, other, "cut")
        moving = await asked_by_an_operator(cloud, server)
        await until(cloud, moving, "waiting_for", "a host of the cloud to answer")
        answer = await ask(cloud, "member", "POST", f"/operations/{moving}/cancel")
        text = "your project did not ask for it; ask an administrator to cancel it"
        assert await code(answer) == (403, f"operation {moving}: {text}")
        await cut(cloud, other, "up")
        await until(cloud, moving, "state", "done")
        answer = await ask(cloud, "manager", "POST", f"/operations/{moving}/cancel")
        assert answer.status_code == 403

    run(story, hosts=2)


def test_owners_read_why_in_safe_words() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        failed = await act(cloud, "manager", server, {"migrate": None})
        found = await until(cloud, failed, "state", "undone")
        assert found["error"] == {
            "code": "no_valid_host",
            "message": "The server could not be migrated; it is as it was.",
            "step": "cold_migrate",
        }
        assert {step["error"] for step in found["steps"]} == {None}

    run(story, hosts=1)


def test_what_was_created_and_deleted_is_still_its_owners_to_read() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)
        async with asyncio.timeout(60):
            while (await cloud.ask("member", "GET", f"/servers/{server}")).status_code != 404:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.02)
        listed = (await ask(cloud, "reader", "GET", f"/operations?server={server}")).json()["operations"]
        assert [one["operation"] for one in listed] == ["delete", "create"]
        assert (await ask(cloud, "stranger", "GET", f"/operations/{listed[0]['id']}")).status_code == 404

    run(story, hosts=1)


@pytest.mark.slow
def test_owners_read_what_a_new_server_waits_for() -> None:
    async def story(cloud: Cloud) -> None:
        await cut(cloud, "host1", "cut")
        await heard_long_ago(cloud, "host1")
        answer = await cloud.ask("member", "POST", "/servers", await new_server(cloud, "patient"), at="2.37")
        assert answer.status_code == 202, answer.text
        building = answer.headers["X-Kilonova-Operation"]
        words = "hosts of the cloud to answer: it is not known yet whether one fits"
        waiting = await until(cloud, building, "waiting_for", words)
        assert (waiting["operation"], waiting["state"]) == ("create", "waiting")
        assert (await ask(cloud, "stranger", "GET", f"/operations/{building}")).status_code == 404
        assert (await ask(cloud, "member", "POST", f"/operations/{building}/cancel")).status_code == 202
        await until(cloud, building, "state", "cancelled")
        await cut(cloud, "host1", "up")

    run(story, "DEFAULT.service_down_time=300", hosts=1)
