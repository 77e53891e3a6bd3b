"""/operations/{id}/resume and /abandon, /findings: an operator's word about an operation that waits."""

from __future__ import annotations

from typing import Any

from tests.unit.api.embedded import Api, run


async def waiting(api: Api, *, refusals: int) -> tuple[str, str]:
    """A server, and its stop, which its host refuses, and to be undone too."""
    server = await api.created(host="host1")
    refuse = {"fail": {"verb": "ensure_power", "times": refusals, "how": "refuse"}}
    await api.post("/simulated/hosts/host1", refuse, 200)
    headers = {"OpenStack-API-Version": "compute 2.1"}
    path = f"/compute/v2.1/servers/{server}/action"
    answer = await api.client.post(path, json={"os-stop": None}, headers=headers)
    assert answer.status_code == 202, answer.text
    operation = answer.headers["x-kilonova-operation"]

    async def look() -> bool:
        shown = (await api.get(f"/operations/{operation}"))["operation"]
        return bool(shown["state"] == "waiting")

    await api.until(look)
    return server, operation


async def status(api: Api, server: str) -> Any:
    shown = (await api.client.get(f"/compute/v2.1/servers/{server}")).json()["server"]
    return shown["status"], shown["OS-EXT-STS:task_state"]


def test_an_operation_that_waits_says_what_to_type_and_resume_tries_now() -> None:
    async def story(api: Api) -> None:
        server, operation = await waiting(api, refusals=2)
        listed = (await api.get("/operations?state=waiting"))["operations"]
        assert [one["id"] for one in listed] == [operation]
        assert f"kilonova op abandon {operation} --reason TEXT" in listed[0]["waiting_for"]
        assert f"kilonova op resume {operation}" in listed[0]["waiting_for"]
        assert await status(api, server) == ("ACTIVE", "powering-off")
        await api.post(f"/operations/{operation}/resume", {}, 202)
        shown = await api.ended(operation, "undone")
        words = [(one["verb"], one["reason"]) for one in shown["interventions"]]
        assert words == [("resume", "")] and shown["findings"] == []
        assert await status(api, server) == ("ACTIVE", None)

    run(story)


def test_an_abandoned_operation_fails_and_its_finding_is_settled_once() -> None:
    async def story(api: Api) -> None:
        server, operation = await waiting(api, refusals=1000)
        await api.post(f"/operations/{operation}/abandon", {"reason": "the host is broken"}, 202)
        shown = await api.ended(operation, "failed")
        assert shown["error"]["code"] == "abandoned" and "the host is broken" in shown["error"]["message"]
        (word,) = shown["interventions"]
        assert (word["verb"], word["reason"]) == ("abandon", "the host is broken") and word["by"]
        assert await status(api, server) == ("ACTIVE", None)

        (finding,) = (await api.get("/findings"))["findings"]
        assert (finding["server"], finding["step"], finding["way"], finding["on"]) == (
            server,
            "stop_instance",
            "undo",
            "host1",
        )
        report = (await api.post("/audits", {}, 200))["audit"]
        assert report["findings"] == [] and finding["id"] in report["abandoned"][0]
        await api.post(f"/findings/{finding['id']}/settle", {"reason": "restarted by hand"}, 200)
        assert (await api.get("/findings"))["findings"] == []
        (settled,) = (await api.get("/findings?settled=true"))["findings"]
        assert (settled["settled_reason"], settled["settled_by"]) == ("restarted by hand", word["by"])
        found = await api.refused("POST", f"/findings/{finding['id']}/settle", {"reason": "again"})
        assert found[:2] == (409, "settled")
        assert (await api.post("/audits", {}, 200))["audit"]["abandoned"] == []

    run(story)


def test_what_cannot_be_abandoned_or_settled_changes_nothing() -> None:
    async def story(api: Api) -> None:
        made = await api.create(host="host1")
        await api.ended(made["operation"])
        operation = f"/operations/{made['operation']}"
        for path, body, expected in (
            (f"{operation}/abandon", {"reason": "why not"}, (409, "ended")),
            (f"{operation}/resume", {}, (409, "ended")),
            (f"{operation}/abandon", {}, (400, "bad_request")),
            (f"{operation}/abandon", {"reason": ""}, (400, "bad_request")),
            (f"{operation}/abandon", {"reason": "x" * 1001}, (400, "bad_request")),
            (f"{operation}/abandon", {"reason": "x", "force": True}, (400, "bad_request")),
            ("/operations/none/abandon", {"reason": "x"}, (404, "not_found")),
            ("/operations/none/resume", {}, (404, "not_found")),
            ("/findings/none/settle", {"reason": "x"}, (404, "not_found")),
            ("/findings/none/settle", {}, (400, "bad_request")),
        ):
            assert (await api.refused("POST", path, body))[:2] == expected, path
        assert (await api.refused("GET", "/findings?settled=maybe"))[:2] == (400, "bad_request")
        assert (await api.refused("GET", "/findings?colour=red"))[:2] == (400, "bad_request")
        assert (await api.get("/findings?settled=true"))["findings"] == []

    run(story)
