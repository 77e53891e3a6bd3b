"""A cell whose database does not answer: what the API shows of it, what it refuses, and that the rest goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kilonova.quota.usage import uncount_server
from kilonova.store import cell_store
from tests.support.creates import IMAGE
from tests.support.outages import breakable
from tests.unit.api.embedded import Api, run

OPTIONS = ("simulated.cells=2", "simulated.hosts=2")
AT = {"OpenStack-API-Version": "compute 2.90"}
BEFORE = {"OpenStack-API-Version": "compute 2.68"}
COMPUTE = "/compute/v2.1"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_store, "PAUSE", 0.05)


async def compute(api: Api, path: str, headers: dict[str, str] = AT, method: str = "GET", body: Any = None) -> Any:
    return await api.client.request(method, f"{COMPUTE}{path}", headers=headers, json=body)


async def listed(api: Api, path: str, headers: dict[str, str] = AT) -> list[dict[str, Any]]:
    answer = await compute(api, path, headers)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["servers"])


async def begun(api: Api, server: str, action: str) -> str:
    """The operation."""
    answer = await compute(api, f"/servers/{server}/action", AT, "POST", {action: None})
    assert answer.status_code == 202, answer.text
    return str(answer.headers["X-Kilonova-Operation"])


async def two_servers(api: Api) -> tuple[str, str]:
    """One in each cell: the one that stays, and the one whose cell goes away."""
    return await api.created(name="here", host="host1"), await api.created(name="away", host="host2")


def test_lists_show_what_control_knows() -> None:
    async def story(api: Api) -> None:
        here, away = await two_servers(api)
        breakable(api.service, "cell2").begin("cell2")
        brief = {server["id"]: server for server in await listed(api, "/servers")}
        assert brief[here]["name"] == "here"
        assert brief[away].keys() == {"id", "status", "links"} and brief[away]["status"] == "UNKNOWN"
        detail = {server["id"]: server for server in await listed(api, "/servers/detail")}
        assert detail[here]["status"] == "ACTIVE"
        assert detail[away].keys() == {"id", "status", "tenant_id", "created", "links"}
        assert [server["id"] for server in await listed(api, "/servers/detail", BEFORE)] == [here]
        assert [server["id"] for server in await listed(api, "/servers?name=a")] == []  # nobody can say whether it fits

    run(story, *OPTIONS)


def test_what_was_soft_deleted_there_is_not_listed() -> None:
    async def story(api: Api) -> None:
        here, away = await two_servers(api)
        await api.service.engine.world.db.control.write(lambda tx: uncount_server(tx, away))
        breakable(api.service, "cell2").begin("cell2")
        assert [server["id"] for server in await listed(api, "/servers")] == [here]

    run(story, *OPTIONS)


def test_pages_go_on_across_it() -> None:
    async def story(api: Api) -> None:
        made = []
        for number in range(6):
            made.append(await api.created(name=f"s{number}", host=f"host{number % 2 + 1}"))
        breakable(api.service, "cell2").begin("cell2")
        for query, expected in (
            ("", made[::-1]),
            ("&sort_key=created_at&sort_dir=asc", made),
            ("&sort_key=display_name&sort_dir=asc", [*made[::2], *made[:0:-2]]),  # what cannot be sorted comes last
        ):
            seen, marker = [], ""
            while found := await listed(api, f"/servers?limit=2{query}{marker}"):
                seen += [server["id"] for server in found]
                marker = f"&marker={seen[-1]}"
            assert seen == expected, query

    run(story, *OPTIONS)


def test_one_server_is_shown_as_it_was_asked_for() -> None:
    async def story(api: Api) -> None:
        here, away = await two_servers(api)
        breakable(api.service, "cell2").begin("cell2")
        shown = (await compute(api, f"/servers/{away}")).json()["server"]
        assert shown.keys() == {
            *("id", "status", "tenant_id", "user_id", "created", "links", "image", "flavor", "server_groups"),
            *("OS-EXT-AZ:availability_zone", "OS-EXT-STS:power_state"),
        }
        assert (shown["status"], shown["OS-EXT-STS:power_state"]) == ("UNKNOWN", 0)
        assert (shown["flavor"]["vcpus"], shown["image"]["id"]) == (1, IMAGE)
        assert (await compute(api, f"/servers/{here}")).json()["server"]["status"] == "ACTIVE"
        assert (await compute(api, "/servers/00000000-0000-4000-8000-000000000000")).status_code == 404
        for method, path, body, headers in (
            ("GET", f"/servers/{away}", None, BEFORE),
            ("POST", f"/servers/{away}/action", {"os-stop": None}, AT),
            ("DELETE", f"/servers/{away}", None, AT),
            ("GET", f"/servers/{away}/os-instance-actions", None, AT),
        ):
            answer = await compute(api, path, headers, method, body)
            assert answer.status_code == 503, (path, answer.text)
            assert "cell" not in answer.text and "retry later" in answer.json()["serviceUnavailable"]["message"]

    run(story, *OPTIONS)


def test_an_operator_may_want_an_error_instead() -> None:
    async def story(api: Api) -> None:
        await two_servers(api)
        breakable(api.service, "cell2").begin("cell2")
        assert (await compute(api, "/servers", BEFORE)).status_code == 503
        assert (await compute(api, "/servers")).status_code == 200

    run(story, *OPTIONS, "api.list_records_by_skipping_down_cells=false")


def test_services_and_hypervisors() -> None:
    async def story(api: Api) -> None:
        outages = breakable(api.service, "cell2")
        outages.begin("cell2")
        await api.until(lambda: _is_away(api))
        services = (await compute(api, "/os-services?binary=nova-compute")).json()["services"]
        assert {service["host"]: service.get("state") for service in services} == {"host1": "up", "host2": None}
        assert services[-1] == {"binary": "nova-compute", "host": "host2", "status": "UNKNOWN"}
        before = (await compute(api, "/os-services?binary=nova-compute", BEFORE)).json()["services"]
        assert [service["host"] for service in before] == ["host1"]
        hypervisors = (await compute(api, "/os-hypervisors/detail")).json()["hypervisors"]
        assert [hypervisor["hypervisor_hostname"] for hypervisor in hypervisors] == ["host1"]

    run(story, *OPTIONS)


async def _is_away(api: Api) -> bool:
    return api.service.engine.world.db.outage("cell2") is not None


async def _is_back(api: Api) -> bool:
    return not await _is_away(api)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_the_rest_goes_on_and_what_was_begun_resumes(how: str) -> None:
    async def story(api: Api) -> None:
        here, away = await two_servers(api)
        outages = breakable(api.service, "cell2")
        stopping = await begun(api, away, "os-stop")
        outages.begin("cell2", how)
        await api.until(lambda: _is_away(api))
        assert (await api.ask("GET", f"/operations/{stopping}")).status_code == 503
        began = time.monotonic()
        assert (await compute(api, "/servers/detail")).status_code == 200
        more = await api.created(name="more")
        await api.ended(await begun(api, here, "os-stop"))
        await api.ended((await api.submit("delete", server=more))["operation"])
        assert time.monotonic() - began < 5.0
        outages.end("cell2")
        await api.until(lambda: _is_back(api))
        await api.ended(stopping)
        await api.host_is("host2", "up")  # its heartbeats are written again
        await api.ended(await begun(api, away, "os-start"))
        assert all(server["status"] != "UNKNOWN" for server in await listed(api, "/servers/detail"))

    run(story, *OPTIONS, "conductor.lease_seconds=1")
