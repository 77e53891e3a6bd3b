"""/metrics: who may read it, and what it tells."""

from __future__ import annotations

import logging
import re

import httpx
import pytest

from kilonova.api.app import make_app
from kilonova.api.seen import Seen
from tests.unit.api.embedded import URL, Api, login, run


def asking_from(api: Api, address: str) -> httpx.AsyncClient:
    app = Seen(make_app(api.service), access_log=True)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 1)), base_url=URL)


def test_metrics_are_for_loopback_and_administrators() -> None:
    async def story(api: Api) -> None:
        async with asking_from(api, "127.0.0.1") as here, asking_from(api, "203.0.113.7") as elsewhere:
            assert (await here.get("/metrics")).status_code == 200
            assert (await elsewhere.get("/metrics")).status_code == 401
            assert (await elsewhere.get("/metrics", headers={"X-Auth-Token": "wrong"})).status_code == 401
            assert (await elsewhere.get("/metrics", headers={"X-Auth-Token": api.token})).status_code == 200
            password = (api.data / "demo.password").read_text().strip()
            demo = await login(api.service, "demo", password)
            assert (await elsewhere.get("/metrics", headers={"X-Auth-Token": demo})).status_code == 403

    run(story)


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def test_metrics_tell_of_operations_hosts_capacity_and_requests(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: Api) -> None:
        async with asking_from(api, "127.0.0.1") as here:
            done = 'kilonova_operation_seconds_count{kind="build",state="done"}'
            route = 'kilonova_http_requests_total{code="404",method="GET",route="/compute/v2.1/servers/{server}"}'
            before = (await here.get("/metrics")).text
            with caplog.at_level(logging.INFO, "kilonova"):
                server = await api.created()
                for name in ("a", "b"):
                    headers = {"X-Auth-Token": api.token}
                    assert (await here.get(f"/compute/v2.1/servers/{name}", headers=headers)).status_code == 404
            text = (await here.get("/metrics")).text
            assert value(text, done) == value(before, done) + 1
            assert value(text, route) == value(before, route) + 2, "by the template, not by the path"
            assert value(text, 'kilonova_hosts{cell="cell1",state="up"}') == 3
            assert value(text, 'kilonova_capacity{resource_class="VCPU"}') == 192
            assert value(text, 'kilonova_used{resource_class="VCPU"}') == 1
            assert value(text, 'kilonova_database_answers{database="placement"}') == 1
        lines = [record.getMessage() for record in caplog.records]
        ends = [line for line in lines if line.startswith("operation ended: ") and f"server={server} " in line]
        assert len(ends) == 2 and "kind=place state=done" in ends[0] and "kind=build state=done" in ends[1]
        assert sum(line.startswith("request: client=127.0.0.1 method=GET path=/compute") for line in lines) == 2

    run(story)


def test_a_refused_login_and_an_administrators_word_are_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: Api) -> None:
        user = {"name": "a\nb", "domain": {"id": "default"}, "password": "wrong"}
        auth = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
        assert (await api.client.post("/identity/v3/auth/tokens", json=auth)).status_code == 401
        await api.post("/hosts/host2", {"forced_down": True}, 200)
        await api.post("/token-keys", {}, 201)

        async def is_said() -> bool:
            said = [record.getMessage() for record in caplog.records]
            return any(line.startswith("host state changed: host=host2 cell=cell1 state=down") for line in said)

        await api.until(is_said)
        said = "\n".join(record.getMessage() for record in caplog.records)
        assert "login refused: user='a\\nb' domain='default' address=127.0.0.1 reason=unauthorized" in said
        assert "host declared down: host=host2 user=" in said and "token keys rotated: key=" in said

    with caplog.at_level(logging.INFO, "kilonova"):
        run(story)
