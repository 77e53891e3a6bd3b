"""/auth: discovery, logging in, looking at tokens, giving them back, and where their owner may go."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kilonova.services.identity.guesses import Guesses
from tests.unit.api.identity.asking import URL, Asking, asking

DEMO = {"name": "demo", "domain": {"name": "Default"}, "password": "of demo"}
ADMIN = {"name": "admin", "domain": {"id": "default"}, "password": "of admin"}
ON_DEMO = {"project": {"name": "demo", "domain": {"name": "Default"}}}


def test_discovery() -> None:
    async def story(it: Asking) -> None:
        root = await it.client.get("/identity")
        assert root.status_code == 300
        (version,) = root.json()["versions"]["values"]
        assert version["id"] == "v3.14" and version["status"] == "stable"
        assert version["links"] == [{"rel": "self", "href": f"{URL}/identity/v3/"}]
        assert (await it.client.get("/identity/")).json() == root.json()
        for path in ("/identity/v3", "/identity/v3/"):
            shown = await it.client.get(path)
            assert shown.status_code == 200 and shown.json() == {"version": version}
        assert (await it.client.get("/identity/v2.0")).status_code == 404
        assert (await it.client.post("/identity")).status_code == 405

    asking(story)


def test_a_token_of_a_project() -> None:
    async def story(it: Asking) -> None:
        answer = await it.log_in(DEMO, ON_DEMO)
        assert answer.status_code == 201 and answer.headers["X-Subject-Token"].startswith("kn1.")
        token = answer.json()["token"]
        assert token["user"]["name"] == "demo" and token["user"]["domain"] == {"id": "default", "name": "Default"}
        assert token["project"]["name"] == "demo" and token["project"]["domain"]["name"] == "Default"
        assert [role["name"] for role in token["roles"]] == ["member", "reader"]
        assert token["methods"] == ["password"] and len(token["audit_ids"]) == 1 and token["is_domain"] is False
        times = [datetime.strptime(token[name], "%Y-%m-%dT%H:%M:%S.%fZ") for name in ("issued_at", "expires_at")]
        assert (times[1] - times[0]).total_seconds() == 3600
        catalog = {entry["type"]: entry for entry in token["catalog"]}
        own = {"identity", "compute", "image", "network", "placement", "block-storage", "volumev3"}
        assert set(catalog) == own
        assert {endpoint["interface"] for endpoint in catalog["compute"]["endpoints"]} == {
            "public",
            "internal",
            "admin",
        }
        assert {endpoint["url"] for endpoint in catalog["compute"]["endpoints"]} == {f"{URL}/compute/v2.1"}
        assert {endpoint["region"] for endpoint in catalog["image"]["endpoints"]} == {"RegionOne"}

    asking(story)


def test_tokens_of_other_scopes() -> None:
    async def story(it: Asking) -> None:
        system = (await it.log_in(ADMIN, {"system": {"all": True}})).json()["token"]
        assert system["system"] == {"all": True} and "project" not in system and system["catalog"]
        domain = (await it.log_in(ADMIN, {"domain": {"name": "Default"}})).json()["token"]
        assert domain["domain"] == {"id": "default", "name": "Default"} and "project" not in domain
        for scope in ("unscoped", {"unscoped": {}}, None):
            plain = (await it.log_in(ADMIN, scope)).json()["token"]
            assert not {"project", "domain", "system", "roles", "catalog"} & set(plain)

    asking(story)


def test_without_the_catalog() -> None:
    async def story(it: Asking) -> None:
        body = {"auth": {"identity": {"methods": ["password"], "password": {"user": DEMO}}, "scope": ON_DEMO}}
        answer = await it.ask("POST", "/auth/tokens?nocatalog", body, token="")
        assert answer.status_code == 201 and "catalog" not in answer.json()["token"]

    asking(story)


STRANGERS: list[tuple[Any, Any]] = [
    ({**DEMO, "password": "wrong"}, ON_DEMO),
    ({**DEMO, "name": "nobody"}, ON_DEMO),
    ({**DEMO, "domain": {"id": "nowhere"}}, ON_DEMO),
    (DEMO, {"project": {"name": "admin", "domain": {"id": "default"}}}),
    (DEMO, {"project": {"id": "nowhere"}}),
    (DEMO, {"domain": {"id": "default"}}),
    (DEMO, {"system": {"all": True}}),
]


def test_who_may_not_in_gets_one_answer() -> None:
    sentence = "The request you have made requires authentication."

    async def story(it: Asking) -> None:
        for user, scope in STRANGERS:
            answer = await it.log_in(user, scope)
            assert answer.status_code == 401 and "X-Subject-Token" not in answer.headers, (user, scope)
            assert answer.json() == {"error": {"code": 401, "message": sentence, "title": "Unauthorized"}}

    asking(story)


PASSWORD = {"methods": ["password"], "password": {"user": DEMO}}


SENSELESS: list[Any] = [
    None,
    b"",
    b"{",
    b'{"auth": ' + b"[" * 5000,
    b'"\\u0000"',
    [],
    {},
    {"auth": {}},
    {"auth": None},
    {"auth": {"identity": {}}},
    {"auth": {"identity": {"methods": []}}},
    {"auth": {"identity": {"methods": "password"}}},
    {"auth": {"identity": {"methods": ["password"]}}},
    {"auth": {"identity": {"methods": ["token"]}}},
    {"auth": {"identity": {"methods": ["password"], "password": {}}}},
    {"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "demo", "password": "x"}}}}},
    {"auth": {"identity": {"methods": ["password"], "password": {"user": {"id": "demo"}}}}},
    {"auth": {"identity": {"methods": ["password"], "password": {"user": {**DEMO, "password": 5}}}}},
    {"auth": {"identity": {"methods": ["password"], "password": {"user": {**DEMO, "domain": {}}}}}},
    {"auth": {"identity": {"methods": ["password"], "password": {"user": {**DEMO, "password": "x" * 5000}}}}},
    {"auth": {"identity": {"methods": ["token"], "token": {}}}},
    {"auth": {"identity": PASSWORD, "scope": "everything"}},
    {"auth": {"identity": PASSWORD, "scope": {}}},
    {"auth": {"identity": PASSWORD, "scope": []}},
    {"auth": {"identity": PASSWORD, "scope": {"project": {}}}},
    {"auth": {"identity": PASSWORD, "scope": {"project": {"name": "demo"}}}},
    {"auth": {"identity": PASSWORD, "scope": {"project": {"name": "demo", "domain": {}}}}},
    {"auth": {"identity": PASSWORD, "scope": {"domain": {}}}},
    {"auth": {"identity": PASSWORD, "scope": {"system": {}}}},
    {"auth": {"identity": PASSWORD, "scope": {"system": {"all": False}}}},
    {"auth": {"identity": PASSWORD, "scope": {**ON_DEMO, "system": {"all": True}}}},
    {"auth": {"identity": PASSWORD, "scope": {"OS-TRUST:trust": {"id": "x"}}}},
]


def test_bodies_that_make_no_sense() -> None:
    async def story(it: Asking) -> None:
        for body in SENSELESS:
            await it.refused(400, "POST", "/auth/tokens", body, token="")

    asking(story)


def test_methods_that_are_not_there() -> None:
    async def story(it: Asking) -> None:
        for method in ("totp", "application_credential", "external", ""):
            body = {"auth": {"identity": {"methods": [method], method: {"x": 1}}}}
            assert "unsupported" in await it.refused(401, "POST", "/auth/tokens", body, token="")

    asking(story)


def test_a_token_instead_of_a_password() -> None:
    async def story(it: Asking) -> None:
        def by_token(token: str, scope: Any) -> Any:
            return {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": scope}}

        first = await it.log_in(ADMIN, "unscoped")
        token = first.headers["X-Subject-Token"]
        scoped = await it.ask("POST", "/auth/tokens", by_token(token, ON_DEMO), token="")
        assert scoped.status_code == 201
        assert scoped.json()["token"]["expires_at"] == first.json()["token"]["expires_at"]
        assert set(scoped.json()["token"]["methods"]) == {"password", "token"}
        assert scoped.json()["token"]["audit_ids"][1] == first.json()["token"]["audit_ids"][0]
        for bad in ("rubbish", "", "\u00e9" * 20, "x" * 90_000):
            assert await it.refused(404, "POST", "/auth/tokens", by_token(bad, ON_DEMO), token="")
        await it.refused(401, "POST", "/auth/tokens", by_token(token, {"project": {"id": "nowhere"}}), token="")

    asking(story)


def test_a_token_is_looked_at_and_given_back() -> None:
    async def story(it: Asking) -> None:
        issued = await it.log_in(DEMO, ON_DEMO)
        demo = issued.headers["X-Subject-Token"]
        shown = await it.ask("GET", "/auth/tokens", token=demo, X_Subject_Token=demo)
        assert shown.status_code == 200 and shown.json() == issued.json() and shown.headers["X-Subject-Token"] == demo
        assert (await it.ask("HEAD", "/auth/tokens", X_Subject_Token=demo)).status_code == 200
        bare = await it.get("/auth/tokens?nocatalog", X_Subject_Token=demo)
        assert "catalog" not in bare["token"]
        await it.refused(403, "GET", "/auth/tokens", token=demo, X_Subject_Token=it.token)
        await it.refused(403, "DELETE", "/auth/tokens", token=demo, X_Subject_Token=it.token)
        await it.refused(404, "GET", "/auth/tokens")
        await it.refused(404, "GET", "/auth/tokens", X_Subject_Token="rubbish")
        await it.refused(401, "GET", "/auth/tokens", token="", X_Subject_Token=demo)
        await it.refused(401, "GET", "/auth/tokens", token="rubbish", X_Subject_Token=demo)

        assert (await it.ask("DELETE", "/auth/tokens", token=demo, X_Subject_Token=demo)).status_code == 204
        await it.refused(404, "GET", "/auth/tokens", X_Subject_Token=demo)
        await it.refused(401, "GET", "/auth/projects", token=demo)
        await it.refused(404, "DELETE", "/auth/tokens", X_Subject_Token=demo)

    asking(story)


def test_a_service_may_look_at_tokens_and_not_take_them() -> None:
    async def story(it: Asking) -> None:
        project = (await it.make("projects", name="services"))["id"]
        service = await it.person("nova", "service", {"project": {"id": project}})
        watcher = await it.person("watch", "reader", {"system": {"all": True}})
        demo = (await it.log_in(DEMO, ON_DEMO)).headers["X-Subject-Token"]
        for token in (service, watcher):
            assert (await it.ask("GET", "/auth/tokens", token=token, X_Subject_Token=demo)).status_code == 200
            await it.refused(403, "DELETE", "/auth/tokens", token=token, X_Subject_Token=demo)

    asking(story)


def test_an_expired_token() -> None:
    async def story(it: Asking) -> None:
        it.home.clock.time += 3600
        message = await it.refused(401, "GET", "/users")
        assert "authentication" in message
        answer = await it.ask("GET", "/users")
        assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{URL}/identity"'

    asking(story)


def test_where_the_owner_may_go() -> None:
    async def story(it: Asking) -> None:
        demo = (await it.log_in(DEMO, "unscoped")).headers["X-Subject-Token"]
        projects = await it.get("/auth/projects", token=demo)
        assert [one["name"] for one in projects["projects"]] == ["demo"]
        assert projects["links"]["self"] == f"{URL}/identity/v3/auth/projects"
        assert (await it.get("/auth/domains", token=demo))["domains"] == []
        assert (await it.get("/auth/system", token=demo))["system"] == []
        assert {one["name"] for one in (await it.get("/auth/projects"))["projects"]} == {"admin", "demo"}
        assert [one["name"] for one in (await it.get("/auth/domains"))["domains"]] == ["Default"]
        assert (await it.get("/auth/system"))["system"] == [{"all": True}]
        catalog = await it.get("/auth/catalog")
        names = {"keystone", "nova", "glance", "neutron", "placement", "cinder", "cinderv3"}
        assert {entry["name"] for entry in catalog["catalog"]} == names
        await it.refused(403, "GET", "/auth/catalog", token=demo)

    asking(story)


def test_too_many_wrong_passwords_are_answered_with_the_time_to_wait() -> None:
    async def story(it: Asking) -> None:
        it.home.identity._passwords._guesses = Guesses(2)
        for _ in range(2):
            assert (await it.log_in(DEMO | {"password": "wrong"})).status_code == 401
        answer = await it.log_in(DEMO)
        assert answer.status_code == 429 and 1 <= int(answer.headers["Retry-After"]) <= 60
        assert answer.json()["error"]["code"] == 429 and "2 in a minute" in answer.json()["error"]["message"]
        assert (await it.log_in(ADMIN)).status_code == 201, "another user of the same address"

    asking(story)
