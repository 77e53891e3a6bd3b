"""Cold migrate, confirm and revert from outside: the stories of hosts that die in the middle, as clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kilonova.policy.enforcer import Policy
from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_servers import made

CONFIRM, REVERT = {"confirmResize": None}, {"revertResize": None}
SEED = '"os_compute_api:os-migrate-server:migrate": "rule:context_is_admin"\n'  # the default of older releases


async def act(cloud: Cloud, who: str, server: str, body: dict[str, Any], status: int) -> httpx.Response:
    answer = await cloud.ask(who, "POST", f"/servers/{server}/action", body, at="2.56")
    assert answer.status_code == status, answer.text
    return answer


async def shown(cloud: Cloud, server: str) -> Any:
    return (await cloud.get("admin", f"/servers/{server}"))["server"]


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110 - over HTTP there is nothing to wait on
            await asyncio.sleep(0.02)


async def becomes(cloud: Cloud, server: str, status: str, host: str = "") -> None:
    async def look() -> bool:
        found = await shown(cloud, server)
        return found["status"] == status and found["OS-EXT-STS:task_state"] is None

    await until(look)
    assert not host or (await shown(cloud, server))["OS-EXT-SRV-ATTR:host"] == host


async def moved(cloud: Cloud, *, source: str = "host1", to: str = "host2") -> str:
    """A member's server that waits to be confirmed."""
    zone = {"availability_zone": f"nova:{source}"}
    body = {"name": "a", "flavorRef": "1", "imageRef": await an_image(cloud), "networks": "none", **zone}
    server = (await cloud.does("admin", "POST", "/servers", {"server": body}, at="2.52", status=202))["server"]["id"]
    await becomes(cloud, server, "ACTIVE", source)
    await act(cloud, "admin", server, {"migrate": {"host": to}}, 202)
    await becomes(cloud, server, "VERIFY_RESIZE", to)
    return str(server)


async def an_image(cloud: Cloud) -> str:
    answer = await cloud.ask("admin", "GET", "/v2/images", prefix="/image")
    return str(answer.json()["images"][0]["id"])


async def switch(cloud: Cloud, host: str, **order: str) -> None:
    answer = await cloud.ask("admin", "POST", f"/simulated/hosts/{host}", order, prefix="/kilonova/v1")
    assert answer.status_code == 200, answer.text


async def declare(cloud: Cloud, host: str, *, down: bool) -> bool:
    body = {"host": host, "binary": "nova-compute", "forced_down": down}
    return (await cloud.ask("admin", "PUT", "/os-services/force-down", body, at="2.11")).status_code == 200


async def back(cloud: Cloud, host: str) -> None:
    await switch(cloud, host, power="on", link="up")

    async def look() -> bool:
        return await declare(cloud, host, down=False)

    await until(look)


async def statuses(cloud: Cloud, server: str) -> list[str]:
    found = (await cloud.get("admin", f"/os-migrations?instance_uuid={server}"))["migrations"]
    return [one["status"] for one in found]


async def debts(cloud: Cloud, host: str) -> int:
    answer = await cloud.ask("admin", "GET", f"/hosts/{host}", prefix="/kilonova/v1")
    return int(answer.json()["host"]["debts"])


def test_a_confirmation_that_is_lost_is_asked_for_again() -> None:
    """Z5"""

    async def story(cloud: Cloud) -> None:
        server = await moved(cloud)
        await switch(cloud, "host1", link="cut")
        first = await act(cloud, "member", server, CONFIRM, 204)
        assert await statuses(cloud, server) == ["confirming"]
        again = await act(cloud, "member", server, CONFIRM, 204)
        assert first.headers["x-kilonova-operation"] == again.headers["x-kilonova-operation"]
        text = await cloud.refuses("member", "POST", f"/servers/{server}/action", REVERT, status=409)
        assert "Cannot 'revertResize'" in text
        assert (await shown(cloud, server))["status"] == "VERIFY_RESIZE"
        await switch(cloud, "host1", link="up")
        await becomes(cloud, server, "ACTIVE", "host2")
        assert await statuses(cloud, server) == ["confirmed"]
        await act(cloud, "member", server, CONFIRM, 409)

    run(story, hosts=2)


def test_delete_while_the_source_is_down() -> None:
    """Z6"""

    async def story(cloud: Cloud) -> None:
        server = await moved(cloud)
        await switch(cloud, "host1", power="off")
        assert await declare(cloud, "host1", down=True)
        await cloud.does("member", "DELETE", f"/servers/{server}", status=204)

        async def gone() -> bool:
            return (await cloud.ask("member", "GET", f"/servers/{server}")).status_code == 404

        await until(gone)
        assert await debts(cloud, "host1") == 1
        assert await statuses(cloud, server) == ["confirmed"]
        await back(cloud, "host1")
        assert await debts(cloud, "host1") == 0

    run(story, hosts=2)


@pytest.mark.slow
def test_a_forgotten_move_is_confirmed_and_not_while_its_host_is_down() -> None:
    """Z10"""

    async def story(cloud: Cloud) -> None:
        server = await moved(cloud)
        await switch(cloud, "host2", power="off")
        assert await declare(cloud, "host2", down=True)
        await asyncio.sleep(3.0)  # the window is over, and it was tried
        assert await statuses(cloud, server) == ["finished"]
        await back(cloud, "host2")
        await becomes(cloud, server, "ACTIVE", "host2")
        assert await statuses(cloud, server) == ["confirmed"]
        actions = (await cloud.get("member", f"/servers/{server}/os-instance-actions"))["instanceActions"]
        assert [one["action"] for one in actions] == ["confirmResize", "migrate", "create"]

    run(story, "DEFAULT.resize_confirm_window=2", hosts=2)


def test_the_destination_dies_before_it_is_confirmed() -> None:
    """Z14"""

    async def story(cloud: Cloud) -> None:
        server = await moved(cloud)
        await switch(cloud, "host2", power="off")
        assert await declare(cloud, "host2", down=True)
        text = await cloud.refuses("member", "POST", f"/servers/{server}/action", CONFIRM, status=409)
        assert "revert the migration" in text and "host2" not in text
        await act(cloud, "member", server, REVERT, 202)
        await becomes(cloud, server, "ACTIVE", "host1")
        assert await statuses(cloud, server) == ["reverted"]
        assert await debts(cloud, "host2") == 1
        await back(cloud, "host2")
        assert await debts(cloud, "host2") == 0

    run(story, hosts=2)


@pytest.mark.slow
def test_the_destination_is_cut_off_after_it_was_powered_on() -> None:
    """Z16"""

    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        source = (await shown(cloud, server))["OS-EXT-SRV-ATTR:host"]
        target = {"host1": "host2", "host2": "host1"}[source]
        operation = (await act(cloud, "manager", server, {"migrate": None}, 202)).headers["x-kilonova-operation"]

        async def finishing() -> bool:
            return bool((await shown(cloud, server))["OS-EXT-STS:task_state"] == "resize_finish")

        await until(finishing)
        await switch(cloud, target, link="cut")

        async def waits() -> bool:
            answer = await cloud.ask("reader", "GET", f"/operations/{operation}", prefix="/kilonova/v1")
            return bool(answer.json()["operation"]["waiting_for"] == "a host of the cloud to answer")

        await until(waits)
        assert (await shown(cloud, server))["status"] == "RESIZE"
        assert await declare(cloud, target, down=True)
        await becomes(cloud, server, "ACTIVE", source)
        assert await statuses(cloud, server) == ["error"]
        await back(cloud, target)
        assert await debts(cloud, target) == 0

    run(story, "simulated.boot_seconds=1", hosts=2)


def test_a_manager_neither_names_nor_learns_hosts() -> None:
    async def story(cloud: Cloud) -> None:
        server = await moved(cloud)
        (move,) = (await cloud.get("manager", f"/os-migrations?instance_uuid={server}"))["migrations"]
        assert {move[name] for name in ("source_compute", "dest_compute", "dest_host", "source_node")} == {None}
        for name in ("host", "source_compute"):
            text = await cloud.refuses("manager", "GET", f"/os-migrations?{name}=host1", status=403)
            assert "os_compute_api:os-migrations:index:host" in text
        await act(cloud, "member", server, REVERT, 202)
        await becomes(cloud, server, "ACTIVE", "host1")
        text = (await act(cloud, "manager", server, {"migrate": {"host": "host2"}}, 403)).text
        assert "os_compute_api:os-migrate-server:migrate:host" in text
        assert await statuses(cloud, server) == ["reverted"]

    run(story, hosts=2)


def test_hosts_are_not_named_to_a_manager() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        host = (await shown(cloud, server))["OS-EXT-SRV-ATTR:host"]
        await switch(cloud, host, power="off")
        assert await declare(cloud, host, down=True)
        text = await cloud.refuses("manager", "POST", f"/servers/{server}/action", {"migrate": None}, status=409)
        assert text == f"The host of instance {server} does not answer; try again when it is back"
        told = await cloud.refuses("admin", "POST", f"/servers/{server}/action", {"migrate": None}, status=409)
        assert host in told and "Evacuate it" in told

    run(story, hosts=2)


def test_a_locked_server_is_moved_by_administrators_alone() -> None:
    async def story(cloud: Cloud) -> None:
        server = await moved(cloud)
        engine = cloud.api.service.engine
        await lock(engine.world.db.cell("cell1"), server)
        for body in (CONFIRM, REVERT):
            text = await cloud.refuses("member", "POST", f"/servers/{server}/action", body, status=409)
            assert text == f"Instance {server} is locked"
        await act(cloud, "admin", server, CONFIRM, 204)
        await becomes(cloud, server, "ACTIVE", "host2")
        text = await cloud.refuses("manager", "POST", f"/servers/{server}/action", {"migrate": None}, status=409)
        assert text == f"Instance {server} is locked"

    run(story, hosts=2)


async def lock(store: Any, server: str) -> None:
    async def body(tx: Any) -> None:
        from kilonova.engine.details import edit_details

        await edit_details(tx, server, {"locked_by": "admin"})

    await store.write(body)


def test_the_older_default_is_a_line_of_the_policy(tmp_path: Path) -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        await act(cloud, "manager", server, {"migrate": None}, 202)
        await becomes(cloud, server, "VERIFY_RESIZE")
        await act(cloud, "member", server, REVERT, 202)
        await becomes(cloud, server, "ACTIVE")
        (tmp_path / "policy.yaml").write_text(SEED)
        cloud.api.service.policy = Policy(file=tmp_path / "policy.yaml")
        for who in ("manager", "member"):
            text = await cloud.refuses(who, "POST", f"/servers/{server}/action", {"migrate": None}, status=403)
            assert "os_compute_api:os-migrate-server:migrate" in text
        await act(cloud, "admin", server, {"migrate": None}, 202)
        await becomes(cloud, server, "VERIFY_RESIZE")
        await act(cloud, "member", server, CONFIRM, 204)

    run(story, hosts=2)
