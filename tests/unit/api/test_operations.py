"""/operations: one create, two journals; lists, keys, refusals, cancelling, explaining."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.api.extra.operations import EvacuateBody, EvacuateHostBody
from kilonova.compute.drivers.simulated.driver import SimulatedDriver
from tests.support.creates import NEWEST, create_body
from tests.unit.api.embedded import Api, run

CREATE = create_body()
OLD_FORM = {"operation": "create", "name": "web", "flavor": {"vcpus": 1, "memory_mb": 512, "disk_gb": 1}}


def test_a_create_is_one_operation_with_all_its_steps() -> None:
    async def story(api: Api) -> None:
        made = await api.create()
        shown = await api.ended(made["operation"])
        assert (shown["operation"], shown["server"]) == ("create", made["server"])
        assert shown["journals"] == ["control", "cell1"]
        names = [step["name"] for step in shown["steps"]]
        assert names[:2] == ["select_destinations", "claim"] and names[-1] == "build_and_run_instance"
        assert "hand_over" in names and names.count("claim") == 1
        ordinals = [step["ordinal"] for step in shown["steps"]]
        assert ordinals == sorted(set(ordinals)), "each once, in order, over both journals"
        assert shown["steps"][-1]["on"] == shown["destination"]
        assert [action["action"] for action in shown["actions"]] == ["create"]
        assert shown["actions"][0]["events"][0]["event"] == "compute__do_build_and_run_instance"
        assert shown["decision"]["chosen"]["host"] == shown["destination"]

        listed = (await api.get("/operations"))["operations"]
        assert [one["id"] for one in listed] == [made["operation"]]
        assert listed[0]["state"] == "done"

    run(story)


def test_a_rebuild_from_cell0_is_one_operation_however_it_ends() -> None:
    async def story(api: Api) -> None:
        image = (await api.client.get("/image/v2/images")).json()["images"][0]["id"]
        newest = {"OpenStack-API-Version": "compute 2.105"}
        server = {"name": "patient", "flavorRef": "1", "imageRef": image, "networks": "none"}

        async def post(path: str, body: dict[str, Any]) -> str:
            answer = await api.client.post(f"/compute/v2.1/servers{path}", json=body, headers=newest)
            assert answer.status_code == 202, answer.text
            return str(answer.headers["X-Kilonova-Operation"])

        async def close_hosts(disabled: bool) -> None:
            for host in ("host1", "host2", "host3"):
                answer = await api.ask("POST", f"/hosts/{host}", {"disabled": disabled})
                assert answer.status_code == 200, answer.text

        await close_hosts(True)
        first = await post("", {"server": server})
        server_id = (await api.ended(first, "undone"))["server"]
        again = await post(f"/{server_id}/action", {"rebuild": {"imageRef": image}})
        await api.ended(again, "undone")
        await close_hosts(False)
        last = await post(f"/{server_id}/action", {"rebuild": {"imageRef": image}})
        whole = await api.ended(last, "done")
        assert (whole["operation"], whole["journals"]) == ("rebuild_in_cell0", ["cell0", "control", "cell1"])
        listed = (await api.get("/operations"))["operations"]
        assert [(one["id"], one["operation"], one["state"]) for one in listed] == [
            (last, "rebuild_in_cell0", "done"),
            (again, "rebuild_in_cell0", "undone"),
            (first, "create", "undone"),
        ]
        assert listed[1]["journals"] == ["cell0", "control"]

    run(story)


def test_the_header_names_the_operation() -> None:
    async def story(api: Api) -> None:
        answer = await api.ask("POST", "/operations", CREATE, **NEWEST)
        assert answer.status_code == 202
        assert answer.headers["x-kilonova-operation"] == answer.json()["operation"]

    run(story)


def test_lists_are_filtered_and_paged_without_gaps_or_doubles() -> None:
    async def story(api: Api) -> None:
        made = [await api.create(f"s{number}") for number in range(7)]
        for one in made:
            await api.ended(one["operation"])
        gone = await api.submit("delete", server=made[0]["server"])
        await api.ended(gone["operation"])
        everything = {one["operation"] for one in [*made, gone]}

        seen: list[str] = []
        marker = ""
        while True:
            found = (await api.get(f"/operations?limit=3{marker}"))["operations"]
            if not found:
                break
            assert len(found) <= 3
            seen += [one["id"] for one in found]
            marker = f"&marker={seen[-1]}"
        assert len(seen) == len(set(seen)) and set(seen) == everything
        assert seen[0] == gone["operation"], "the newest comes first"

        by_server = (await api.get(f"/operations?server={made[0]['server']}"))["operations"]
        assert [one["operation"] for one in by_server] == ["delete", "create"]
        assert len((await api.get("/operations?state=done"))["operations"]) == 8
        assert (await api.get("/operations?state=running"))["operations"] == []

    run(story)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "must be 1 to 1000"),
        ("limit=-1", "must be 1 to 1000"),
        ("limit=many", "must be 1 to 1000"),
        ("limit=%C2%B2", "must be 1 to 1000"),
        ("state=tired", "use one of accepted, running"),
        ("marker=nothing", "marker nothing: not found"),
        ("server=%00", "NUL"),
        ("colour=red", "unknown query parameter colour"),
    ],
)
def test_queries_that_make_no_sense(query: str, words: str) -> None:
    async def story(api: Api) -> None:
        status, code, sentence = await api.refused("GET", f"/operations?{query}")
        assert (status, code) == (400, "bad_request") and words in sentence

    run(story, "simulated.hosts=0")


BAD_BODIES: list[tuple[Any, str]] = [
    (b"", "Malformed request body"),
    (b"{", "Malformed request body"),
    (b"\xff\xfe", "Malformed request body"),
    (b'{"operation":"create","name":"\\u0000"}', "NUL"),
    (b'{"operation":"create","name":"\\ud800"}', "Malformed request body"),
    (b"[]", "[] is not of type 'object'"),
    ({}, "'operation' is a required property"),
    ({"operation": "explode"}, "operation 'explode': unknown here; use one of create, delete, migrate"),
    ({"operation": 7}, "field/attribute operation. Value: 7. 7 is not of type 'string'"),
    ({"operation": "create"}, "'server' is a required property"),
    (OLD_FORM, "the body of a create is that of POST /servers with 'operation' beside it"),
    ({**CREATE, "nme": "typo"}, "'nme' was unexpected"),
    (create_body(""), "is shorter than 1 character (at server/name)"),
    (create_body("x" * 256), "(at server/name)"),
    (create_body(flavor=["1"]), "attribute flavorRef. Value: ['1']."),
    ({"operation": "delete"}, "'server' is a required property"),
    ({"operation": "evacuate_host"}, "'host' or 'hosts' is a required property"),
    ({"operation": "evacuate_host", "host": "host1", "hosts": ["host2"]}, "only one of the two"),
    ({"operation": "evacuate_host", "host": "host1", "on_misfit": "pray"}, "on_misfit"),
    ({"operation": "evacuate_host", "host": "host1", "deadline": -1}, "deadline"),
    ({"operation": "evacuate_host", "host": "host1", "accept_unfenced": "yes"}, "accept_unfenced"),
    ({"operation": "host_gone", "host": "host1"}, "'reason' is a required property"),
    ({"operation": "host_gone", "host": "host1", "reason": ""}, "is shorter than 1 character (at reason)"),
]


def test_bodies_that_make_no_sense_change_nothing() -> None:
    async def story(api: Api) -> None:
        for body, words in BAD_BODIES:
            status, code, sentence = await api.refused("POST", "/operations", body, **NEWEST)
            assert (status, code) == (400, "bad_request") and words in sentence, (body, sentence)
        status, code, _ = await api.refused("POST", "/operations", b" " * (1024 * 1024 + 1))
        assert (status, code) == (413, "too_large")
        assert (await api.get("/operations"))["operations"] == []
        assert (await api.get("/servers"))["servers"] == []

    run(story, "simulated.hosts=0")


def test_refusals_have_their_status() -> None:
    async def story(api: Api) -> None:
        server = await api.created()
        nobody = "00000000-0000-0000-0000-000000000000"
        for body, status, code in (
            ({"operation": "delete", "server": nobody}, 404, "not_found"),
            ({"operation": "migrate", "server": nobody}, 404, "not_found"),
            ({"operation": "migrate", "server": server, "host": "mars"}, 404, "no_such_host"),
            ({"operation": "confirm_resize", "server": server}, 409, "invalid_state"),
            ({"operation": "evacuate", "server": server}, 400, "host_still_up"),
            ({"operation": "evacuate_host", "host": "host1"}, 400, "host_still_up"),
            ({"operation": "evacuate_host", "host": "mars"}, 404, "no_such_host"),
            ({"operation": "host_gone", "host": "host1", "reason": "fire"}, 400, "host_still_up"),
            ({"operation": "host_gone", "host": "mars", "reason": "fire"}, 404, "no_such_host"),
        ):
            assert (await api.refused("POST", "/operations", body))[:2] == (status, code), body
        for path in (f"/operations/{nobody}", f"/operations/{nobody}/explain", f"/servers/{nobody}", "/hosts/mars"):
            assert (await api.refused("GET", path))[0] == 404
        assert (await api.refused("POST", f"/operations/{nobody}/cancel", {}))[0] == 404
        assert (await api.refused("GET", "/nowhere"))[:2] == (404, "not_found")
        assert (await api.refused("PUT", "/operations", {}))[:2] == (405, "method_not_allowed")

    run(story)


def test_an_idempotency_key_makes_two_requests_one() -> None:
    async def story(api: Api) -> None:
        first = await api.post("/operations", CREATE, Idempotency_Key="k1", **NEWEST)
        await api.ended(first["operation"])
        assert await api.post("/operations", CREATE, Idempotency_Key="k1", **NEWEST) == first
        other = await api.post("/operations", CREATE, Idempotency_Key="k2", **NEWEST)
        assert other["server"] != first["server"] and other["adminPass"] != first["adminPass"]
        status, code, _ = await api.refused("POST", "/operations", create_body("x"), Idempotency_Key="k1", **NEWEST)
        assert (status, code) == (409, "idempotency_key_reused")

        delete = {"operation": "delete", "server": first["server"]}
        gone = await api.post("/operations", delete, Idempotency_Key="k3")
        await api.ended(gone["operation"])
        assert await api.post("/operations", delete, Idempotency_Key="k3") == gone, "also when the server is gone"
        assert (await api.refused("POST", "/operations", delete))[0] == 404
        assert (await api.refused("POST", "/operations", CREATE, Idempotency_Key="k" * 256, **NEWEST))[0] == 400

    run(story)


@pytest.mark.slow
def test_cancelling_before_the_point_of_no_return_and_never_after_the_end() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        moving = await api.submit("migrate", server=server)

        async def sending() -> bool:
            shown = (await api.get(f"/operations/{moving['operation']}"))["operation"]
            return any(step["name"] == "resize_instance" for step in shown["steps"])

        await api.until(sending)
        await api.post(f"/operations/{moving['operation']}/cancel", {})
        shown = await api.ended(moving["operation"], "cancelled")
        assert any(step["way"] == "undo" for step in shown["steps"])
        after = (await api.get(f"/servers/{server}"))["server"]
        assert (after["host"], after["vm_state"], after["task_state"]) == ("host1", "active", None)
        status, code, _ = await api.refused("POST", f"/operations/{moving['operation']}/cancel", {})
        assert (status, code) == (409, "ended")

    run(story, "simulated.copy_seconds=5")


def test_a_create_can_be_cancelled_while_it_is_built() -> None:
    async def story(api: Api) -> None:
        made = await api.create()

        async def building() -> bool:
            shown = (await api.get(f"/operations/{made['operation']}"))["operation"]
            return shown["journals"] == ["control", "cell1"]

        await api.until(building)
        await api.post(f"/operations/{made['operation']}/cancel", {})
        shown = await api.ended(made["operation"], "cancelled")
        assert shown["operation"] == "create"

    run(story, "simulated.boot_seconds=5")


def test_every_host_has_its_verdict_when_none_fits() -> None:
    async def story(api: Api) -> None:
        made = await api.create(flavor=await api.new_flavor("wide", 65))
        shown = await api.ended(made["operation"], "undone")
        assert shown["error"]["code"] == "no_valid_host" and "details" not in shown["error"]
        why = (await api.get(f"/operations/{made['operation']}/explain"))["decision"]
        rejected = {one["host"]: one["sentence"] for one in why["verdicts"] if not one["passed"]}
        assert set(rejected) == {"host1", "host2", "host3"} and "65" in rejected["host1"]
        buried = (await api.get(f"/servers/{made['server']}"))["server"]
        assert (buried["cell"], buried["vm_state"]) == ("cell0", "error") and "No valid host" in buried["fault"]

        fits = await api.create()
        await api.ended(fits["operation"])
        why = (await api.get(f"/operations/{fits['operation']}/explain"))["decision"]
        assert why["chosen"]["host"] in rejected and all(one["passed"] for one in why["verdicts"])

    run(story, "quota.cores=-1")


def test_each_attempt_of_a_create_is_explained() -> None:
    async def story(api: Api) -> None:
        for host in ("host1", "host2", "host3"):
            await api.post(
                f"/simulated/hosts/{host}", {"fail": {"verb": "ensure_disk", "times": 1, "how": "error"}}, 200
            )
        made = await api.create()
        await api.ended(made["operation"], "undone")
        told = await api.get(f"/servers/{made['server']}/explain")
        attempts = [*told["earlier"], told]
        tried = [attempt["decision"]["chosen"]["host"] for attempt in attempts]
        assert sorted(tried) == ["host1", "host2", "host3"]
        problems = [(attempt["problem"]["step"], attempt["problem"]["message"]) for attempt in attempts]
        assert problems == [
            ("build_and_run_instance", f"ensure_disk failed on {host}: injected failure") for host in tried
        ]

    run(story)


@pytest.mark.parametrize(("room", "text"), [("beside", "kept until the new one runs"), ("instead", "removed first")])
def test_what_became_of_the_old_disk_of_a_rebuild_is_explained(
    monkeypatch: pytest.MonkeyPatch, room: str, text: str
) -> None:
    async def found(*_: Any, **__: Any) -> str:
        return room

    async def story(api: Api) -> None:
        monkeypatch.setattr(SimulatedDriver, "room_for_rebuild", found)
        made = await api.create()
        await api.ended(made["operation"])
        assert "old_disk" not in await api.get(f"/operations/{made['operation']}/explain")
        image = (await api.client.get("/image/v2/images")).json()["images"][0]["id"]
        path = f"/compute/v2.1/servers/{made['server']}/action"
        answer = await api.client.post(path, json={"rebuild": {"imageRef": image}})
        operation = answer.headers["X-Kilonova-Operation"]
        await api.ended(operation)
        assert (await api.get(f"/operations/{operation}/explain"))["old_disk"].startswith(text)

    run(story)


def test_several_at_once_that_do_not_fit_are_told_how_many_would() -> None:
    async def story(api: Api) -> None:
        image = (await api.client.get("/image/v2/images")).json()["images"][0]["id"]
        server = {"name": "many", "flavorRef": "1", "imageRef": image, "min_count": 5, "networks": "none"}
        answer = await api.client.post(
            "/compute/v2.1/servers", json={"server": server}, headers={"OpenStack-API-Version": "compute 2.104"}
        )
        await api.ended(answer.headers["X-Kilonova-Operation"], "undone")
        told = await api.get(f"/servers/{answer.json()['server']['id']}/explain")
        await api.ended(told["operation"], "undone")  # each is buried on its own, once all of them were given up
        told = await api.get(f"/servers/{answer.json()['server']['id']}/explain")
        assert told["problem"]["message"].startswith("No valid host was found for 5 servers at once: 3 would fit.")
        assert told["decision"]["changes"] == ["at most 3 servers in one request"]

    run(story, "simulated.vcpus=1")


def test_what_is_unexpected_tells_nothing_of_the_inside() -> None:
    async def story(api: Api) -> None:
        api.service.engine.registry = {}
        answer = await api.ask("POST", "/operations", CREATE, **NEWEST)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "unexpected" and "KeyError" not in answer.text
        await api.service.engine.world.db.control.close()  # type: ignore[attr-defined]
        status, code, sentence = await api.refused("GET", "/operations")
        assert (status, code) == (503, "unavailable") and "control" not in sentence

    run(story, "simulated.hosts=0")


def test_silence_alone_is_accepted_only_where_the_request_says_so() -> None:
    host = msgspec.json.decode(b'{"operation": "evacuate_host", "host": "host1"}', type=EvacuateHostBody)
    assert host.bulk().accept_unfenced is False
    server = msgspec.json.decode(b'{"operation": "evacuate", "server": "s"}', type=EvacuateBody)
    assert server.params() == {"accept_unfenced": False}
    accepted = msgspec.structs.replace(server, accept_unfenced=True, host="host2")
    assert accepted.params() == {"accept_unfenced": True, "host": "host2"}
