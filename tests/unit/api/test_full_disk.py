"""A disk with nothing but its reserve: reads, logins and deletes go on, writes are refused with the reason."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kilonova.api.app import service_apps
from kilonova.api.call import Call
from kilonova.api.extra.routes import ROUTES
from kilonova.api.full_disk import refuse_writes
from kilonova.domain.errors import Refused
from kilonova.roles import serve, simulated_hosts, wiring
from kilonova.store.reserve import DATABASES, IMAGES, MEBIBYTE, VOLUMES, DiskReserve
from kilonova.world import World
from tests.support.creates import NEWEST, create_body
from tests.support.table import table
from tests.unit.api.embedded import Api, run

_make_world = wiring.make_world
FLAT = {"Content-Type": "application/octet-stream"}


class Disk:
    """As `statvfs` would see it."""

    def __init__(self) -> None:
        self.free = 1000 * MEBIBYTE

    def __call__(self, folder: Path) -> int:
        return self.free


def _world(disk: Disk, given: Any, named: Any) -> World:
    return _make_world(*given, **named, free_bytes=disk)


def test_a_full_disk_refuses_writes_and_lets_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    for module in (serve, simulated_hosts):
        monkeypatch.setattr(module, "make_world", lambda *given, **named: _world(disk, given, named))

    async def story(api: Api) -> None:
        web = api.client
        server = await api.created()
        image = (await web.post("/image/v2/images", json={"disk_format": "raw", "container_format": "bare"})).json()
        path = f"/image/v2/images/{image['id']}"
        assert (await web.put(f"{path}/file", content=b"bytes", headers=FLAT)).status_code == 204
        project = (await api.service.identity.check(api.token)).project_id
        volumes = f"/volume/v3/{project}/volumes"
        volume = (await web.post(volumes, json={"volume": {"size": 1}})).json()["volume"]
        async with asyncio.timeout(60):
            while (await web.get(f"{volumes}/{volume['id']}")).json()["volume"]["status"] != "available":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await web.get("/readyz")).status_code == 200
        disk.free = 255 * MEBIBYTE
        api.service.reserve.look()
        ready = await web.get("/readyz")
        assert ready.status_code == 503 and "255 MB left and 256 MB are kept" in ready.json()["reason"]
        key = {"keypair": {"name": "k"}}
        for prefix, body in (
            ("/compute/v2.1/os-keypairs", key),
            ("/network/v2.0/networks", {"network": {}}),
            ("/image/v2/images", {}),
            (volumes, {"volume": {"size": 1}}),
        ):
            answer = await web.post(prefix, json=body)
            assert answer.status_code == 507 and "are kept for deletes" in answer.text, (prefix, answer.text)
        assert (await web.get("/compute/v2.1/servers")).status_code == 200
        assert (await web.delete(path)).status_code == 204
        assert (await web.delete(f"{volumes}/{volume['id']}")).status_code == 202
        forced = await web.post(f"/compute/v2.1/servers/{server}/action", json={"forceDelete": None})
        assert forced.status_code == 202, forced.text
        assert (await api.ask("GET", "/image-quotas/x")).status_code == 200
        disk.free = 257 * MEBIBYTE
        api.service.reserve.look()
        assert (await web.get("/readyz")).status_code == 200
        assert (await web.post("/compute/v2.1/os-keypairs", json=key)).status_code < 300

    run(story)


# Every path under /kilonova/v1 that writes and is open while a disk has nothing but its reserve.
OPEN = {
    *("/operations/{id}/cancel", "/operations/{id}/resume", "/operations/{id}/abandon", "/plans", "/audits"),
    *("/findings/{id}/settle", "/hosts/{host}", "/hosts/{host}/quarantine/{server}", "/simulated/hosts/{host}"),
    "/ha",
}


def test_own_rest_writes_only_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    for module in (serve, simulated_hosts):
        monkeypatch.setattr(module, "make_world", lambda *given, **named: _world(disk, given, named))

    async def story(api: Api) -> None:
        server = await api.created()
        disk.free = 255 * MEBIBYTE
        api.service.reserve.look()
        for route in ROUTES:
            if route.method in ("POST", "PUT", "PATCH") and route.path != "/operations":
                path = re.sub(r"{[a-z]+}", "x", route.path)
                told = await api.ask(route.method, path, {})
                assert (told.status_code == 507) == (route.path not in OPEN), (route.path, told.text)
        for wish in (
            create_body(),
            {"operation": "migrate", "server": server},
            {"operation": "evacuate_host", "host": "host1"},
        ):
            told = await api.ask("POST", "/operations", wish, **NEWEST)
            assert told.status_code == 507 and "are kept for deletes" in told.text, (wish, told.text)
        assert (await api.ask("POST", "/operations", {"operation": "delete", "server": server})).status_code == 202

    run(story)


# Actions that free room, or without which nothing can be deleted.
OPEN_ACTIONS = {
    *("forceDelete", "confirmResize", "os-force_delete", "os-force_detach", "os-detach"),
    *("os-begin_detaching", "os-roll_detaching", "os-unreserve", "os-terminate_connection", "os-reset_status"),
}


def test_actions_that_free_room_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    for module in (serve, simulated_hosts):
        monkeypatch.setattr(module, "make_world", lambda *given, **named: _world(disk, given, named))

    async def story(api: Api) -> None:
        disk.free = 255 * MEBIBYTE
        api.service.reserve.look()
        entries = [entry for entry in table(service_apps(api.service)) if entry.route.action]
        refused = set()
        for entry in entries:
            request = SimpleNamespace(method=entry.route.method)
            call = SimpleNamespace(request=request, route=entry.route, prefix=entry.prefix, service=api.service)
            try:
                refuse_writes(cast(Call, call))
            except Refused as why:
                assert why.code == "storage_reserve"
                refused.add(entry.route.action)
        assert {entry.route.action for entry in entries} - refused == OPEN_ACTIONS

    run(story)


def test_each_folder_counts_alone() -> None:
    free = {"a": 300, "b": 200, "c": 100}
    folders = {DATABASES: Path("a"), IMAGES: Path("b"), VOLUMES: Path("c")}
    reserve = DiskReserve(150, folders, lambda folder: free[folder.name])
    reserve.look()
    reserve.refuse(DATABASES, IMAGES)
    with pytest.raises(Refused) as why:
        reserve.refuse(VOLUMES)
    assert why.value.code == "storage_reserve" and "disk of the volumes" in why.value.message
    free["b"] = 1
    reserve.refuse(IMAGES)
    with pytest.raises(Refused):
        reserve.check(IMAGES)
    assert DiskReserve(0, folders, lambda folder: 0)._shortage(IMAGES) == "", "0 keeps nothing back"


def test_the_watch_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.store.reserve.LOOK_SECONDS", 0.01)
    disk = Disk()

    async def story() -> None:
        reserve = DiskReserve(MEBIBYTE, {IMAGES: Path("/")}, disk)
        watching = asyncio.create_task(reserve.watch())
        disk.free = 0
        async with asyncio.timeout(60):
            while not reserve.shortage:  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(story())
