"""How Placement speaks: versions, forms of answers and of refusals, who is believed, which pages may ask."""

from __future__ import annotations

import httpx
import pytest

from kilonova.api.placement.dialect import accepts_json
from tests.unit.api.placement.asked import Asked, run

HEADER = "openstack-api-version"


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [
        ({}, "1.0"),
        ({HEADER: "placement 1.12"}, "1.12"),
        ({HEADER: "placement latest"}, "1.39"),
        ({HEADER: "compute 2.1"}, "1.0"),
        ({HEADER: "compute 2.1, placement 1.39"}, "1.39"),
    ],
)
def test_the_version_that_is_asked_for_is_spoken(asked: dict[str, str], spoken: str) -> None:
    async def story(ask: Asked) -> None:
        answer = await ask.client.get("/", headers=asked)
        assert answer.status_code == 200 and answer.headers[HEADER] == f"placement {spoken}"
        assert answer.headers["vary"] == HEADER
        assert ("cache-control" in answer.headers) is (spoken == "1.39")

    run(story)


@pytest.mark.parametrize(
    ("asked", "status"), [("1.40", 406), ("0.9", 406), ("2.0", 406), ("1", 400), ("x.y", 400), ("1.2.3", 400)]
)
def test_a_version_that_is_not_spoken_is_refused(asked: str, status: int) -> None:
    async def story(ask: Asked) -> None:
        answer = await ask("GET", "/resource_providers", at=asked)
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["status"]) == (status, status) and asked in error["detail"]
        assert HEADER not in answer.headers and "code" not in error
        known = (error.get("min_version"), error.get("max_version"))
        assert known == (("1.0", "1.39") if status == 406 else (None, None))

    run(story)


def test_who_wants_nothing_but_a_page_is_told_on_one() -> None:
    async def story(ask: Asked) -> None:
        for path, at, status, words in (
            ("/", "0.5", 406, "Unacceptable version header: 0.5"),
            ("/nowhere", "1.39", 404, "The resource could not be found"),
        ):
            answer = await ask("GET", path, at=at, accept="text/html")
            assert answer.status_code == status and answer.headers["content-type"].startswith("text/html")
            assert words in answer.text
            assert (await ask("GET", path, at=at, accept="text/html, */*")).json()["errors"]
        assert (await ask("GET", "/", accept="text/html")).json()["versions"]

    run(story)


def test_errors_carry_a_code_from_1_23_on() -> None:
    async def story(ask: Asked) -> None:
        assert "code" not in await ask.refused("GET", "/nowhere", at="1.22", status=404)
        assert (await ask.refused("GET", "/nowhere", at="1.23", status=404))["code"] == "placement.undefined_code"

    run(story)


def test_what_is_not_allowed_names_what_is() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one")
        path = f"/resource_providers/{uuid}/inventories"
        for at, allowed in (("1.39", "DELETE, GET, POST, PUT"), ("1.4", "GET, POST, PUT")):
            answer = await ask("PATCH" if at == "1.39" else "DELETE", path, at=at)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        await ask.refused("GET", "/traits", at="1.5", status=404)  # not a wrong method: no such address yet

    run(story)


@pytest.mark.parametrize(
    ("accept", "fits"),
    [
        ("", True),
        ("*/*", True),
        ("application/json", True),
        ("text/html, application/*;q=0.2", True),
        ("text/html", False),
        ("application/json;q=0", False),
        ("application/json; q=0.0, text/plain", False),
        ("application/json;q=0.05", True),
    ],
)
def test_who_accepts_json(accept: str, fits: bool) -> None:
    assert accepts_json(accept) is fits


def test_bodies_are_json_and_say_so() -> None:
    async def story(ask: Asked) -> None:
        async def post(content: bytes, **headers: str) -> httpx.Response:
            given = {"X-Auth-Token": "admin", **{name.replace("_", "-"): value for name, value in headers.items()}}
            return await ask.client.post("/resource_providers", content=content, headers=given)

        assert (await post(b'{"name": "a"}')).status_code == 400
        assert (await post(b'{"name": "a"}', content_type="text/plain")).status_code == 415
        assert (await post(b"")).status_code == 415
        broken = await post(b'{"name": ', content_type="application/json")
        assert broken.status_code == 400 and "Malformed JSON" in broken.text
        fine = await post(b'{"name": "a"}', content_type="application/json; charset=UTF-8")
        assert (fine.status_code, fine.content) == (201, b"")
        assert fine.headers["location"].startswith("http://placement/resource_providers/")
        wrong = await ask("GET", "/resource_providers", accept="text/plain")
        assert wrong.status_code == 406 and "max_version" not in wrong.text

    run(story)


def test_a_wrong_form_is_told_with_its_place() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one")
        path = f"/resource_providers/{uuid}/inventories"
        for body, words in (
            ({"resource_class": "VCPU", "total": 0}, "0 is less than the minimum of 1 (at total). Failed validating"),
            ({"resource_class": "vcpu", "total": 1}, "'vcpu' does not match '^[A-Z0-9_]+$'"),
            ({"total": 1}, "'resource_class' is a required property. Failed validating 'required' in schema"),
            ({"resource_class": "VCPU", "total": 1, "colour": 2}, "('colour' was unexpected)"),
            ([], "[] is not of type 'object'"),
        ):
            error = await ask.refused("POST", path, body, status=400)
            assert error["detail"].startswith("JSON does not validate: ") and words in error["detail"]
        error = await ask.refused("GET", "/traits?colour=red", status=400)
        assert error["detail"].startswith("Invalid query string parameters: Additional properties are not allowed")
        missing = path.replace(uuid, "00000000-0000-4000-8000-000000000000")
        await ask.refused("POST", missing, [], status=404)  # that it is not there is told first

    run(story)


def test_headers_say_who_asks() -> None:
    async def story(ask: Asked) -> None:
        path = "/resource_providers"
        for headers, status in (
            ({}, 200),
            ({"who": "root"}, 403),
            ({"who": "root", "x_roles": "admin,member"}, 200),
            ({"who": "admin", "x_roles": "member"}, 403),
            ({"who": "root", "x_roles": "admin", "openstack_system_scope": "all"}, 403),
            ({"who": ""}, 401),
        ):
            answer = await ask("GET", path, **headers)
            assert answer.status_code == status, (headers, answer.text)
        own = {"who": "me:mine", "x_roles": "reader"}
        assert (await ask("GET", "/usages?project_id=mine", **own)).status_code == 200
        assert (await ask("GET", "/usages?project_id=theirs", **own)).status_code == 403
        assert (await ask("GET", "/usages?project_id=theirs", **own, x_project_id="theirs")).status_code == 200

    run(story, "secure-rbac")


def test_it_answers_under_its_prefix_too() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("one")
        for prefix in ("", "/placement"):
            shown = await ask.done("GET", f"{prefix}/resource_providers/{uuid}")
            assert shown["links"][0]["href"] == f"{prefix}/resource_providers/{uuid}"
        assert (await ask.client.get("/placement")).json() == (await ask.client.get("/")).json()
        assert (await ask.client.get("/readyz")).json() == {"ready": True}

    run(story)


ORIGIN = {"origin": "http://valid.example.com"}


@pytest.mark.parametrize("profile", ["default", "cors"])
def test_pages_of_a_named_origin_may_ask(profile: str) -> None:
    async def story(ask: Asked) -> None:
        asking = {**ORIGIN, "access-control-request-method": "GET", "access-control-request-headers": HEADER}
        first = await ask.client.options("/", headers=asking)
        assert first.status_code == (200 if profile == "cors" else 405)
        allowed = first.headers.get("access-control-allow-headers")
        assert allowed == (HEADER if profile == "cors" else None)
        then = await ask.client.get("/", headers=ORIGIN)
        assert then.headers.get("access-control-allow-origin") == (ORIGIN["origin"] if profile == "cors" else None)
        for changed in (
            {"origin": "http://elsewhere"},
            {"access-control-request-method": "BREW"},
            {"access-control-request-headers": "x-secret"},
        ):
            no = await ask.client.options("/", headers=asking | changed)
            assert "access-control-allow-origin" not in no.headers

    run(story, profile)
