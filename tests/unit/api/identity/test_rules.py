"""Who may do what: the table rule by rule, and every route without a token, as a member, and with strange input."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from kilonova.api.identity.routes import ROUTES
from kilonova.api.identity.rules import PolicyTarget, name_of
from kilonova.api.routes import PUBLIC
from kilonova.domain.caller import Caller, IdentityRef
from kilonova.policy.enforcer import Policy
from kilonova.policy.identity import IDENTITY, with_aliases
from tests.unit.api.identity.asking import Asking, asking

USER = IdentityRef("u1", "user", "d1", "one")
PROJECT, DOMAIN = IdentityRef("p1", "project", "d1", "one"), IdentityRef("d1", "one")
ALL_ROLES = ("admin", "manager", "member", "reader")


def caller(*roles: str, on: str = "project") -> Caller:
    place: dict[str, Any] = {
        "project": {"project": PROJECT},
        "domain": {"domain": DOMAIN},
        "system": {"system": True},
        "nothing": {},
    }[on]
    return Caller(user=USER, roles=roles, **place)


CALLERS = {
    "admin of a project": caller(*ALL_ROLES),
    "admin of the system": caller(*ALL_ROLES, on="system"),
    "member of a project": caller("member", "reader"),
    "reader of the system": caller("reader", on="system"),
    "reader of the domain": caller("reader", on="domain"),
    "manager of the domain": caller("manager", "member", "reader", on="domain"),
    "manager of a project": caller("manager", "member", "reader"),
    "a service": caller("service"),
    "unscoped": caller(on="nothing"),
}
ADMINS = {"admin of a project", "admin of the system"}
SYSTEM = {*ADMINS, "reader of the system"}
DOMAINS = {*SYSTEM, "reader of the domain", "manager of the domain"}
MANAGERS = {*ADMINS, "manager of the domain"}
EVERYBODY = set(CALLERS)

# Asked about something in the callers' own domain that is somebody else's: who may.
ELSES = {
    "validate_token": {*SYSTEM, "a service"},
    "revoke_token": ADMINS,
    "get_domain": EVERYBODY - {"unscoped"},
    "list_domains": DOMAINS,
    "manage_domains": ADMINS,
    "get_project": DOMAINS,
    "list_projects": DOMAINS,
    "list_user_projects": DOMAINS,
    "manage_projects": MANAGERS,
    "get_user": DOMAINS,
    "list_users": DOMAINS,
    "manage_users": MANAGERS,
    "get_group": DOMAINS,
    "list_groups": DOMAINS,
    "list_groups_for_user": DOMAINS,
    "manage_groups": MANAGERS,
    "get_members": DOMAINS,
    "manage_members": MANAGERS,
    "get_role": {*SYSTEM, "manager of the domain"},
    "list_roles": {*SYSTEM, "manager of the domain"},
    "manage_roles": ADMINS,
    "get_implied_roles": SYSTEM,
    "list_grants": DOMAINS,
    "manage_grants": MANAGERS,
    "list_system_grants": SYSTEM,
    "manage_system_grants": ADMINS,
    "list_role_assignments": DOMAINS,
    "list_catalog": SYSTEM,
    "list_regions": EVERYBODY,
    "manage_catalog": ADMINS,
    "get_credential": SYSTEM,
    "manage_credentials": ADMINS,
    "get_policy": SYSTEM,
    "manage_policies": ADMINS,
}
HERE = PolicyTarget(domain_id="d1", project_id="p2", user_id="u2", actor_domain_id="d1", role="member")
# In another domain: nobody of a domain has anything to say.
THERE = PolicyTarget(domain_id="d2", project_id="p3", user_id="u3", actor_domain_id="d2", role="member")
OWN = {"validate_token", "revoke_token", "list_user_projects", "get_user", "list_groups_for_user"}
OWN |= {"get_credential", "manage_credentials"}


POLICY = Policy()


def names_of(rule: str) -> set[str]:
    """All of Keystone's that a handler's rule stands for, whichever route asks it."""
    asked = {(route.method, route.path) for route in ROUTES}
    if rule in ("get_role", "get_policy", "get_credential", "list_catalog", "list_regions", "get_implied_roles"):
        asked = {(method, path) for method, path in asked if method == "GET"}
    first = {"manage_catalog": CATALOG, "list_catalog": CATALOG[:2], "list_regions": CATALOG[2:]}
    first |= {"get_policy": ("policies",), "get_credential": ("credentials",)}
    if rule in first:
        asked = {(method, path) for method, path in asked if path.split("/")[1] in first[rule]}
    if rule.startswith("manage_"):
        asked = {(method, path) for method, path in asked if method in ("POST", "PATCH", "PUT", "DELETE")}
    if rule.endswith("grants"):
        asked = {(method, path) for method, path in asked if "/roles" in path}
    if rule.endswith(("grants", "members")):
        is_write = rule.startswith("manage")
        asked = {(method, path) for method, path in asked if (method in ("PUT", "DELETE")) is is_write}
    return {f"identity:{name_of(rule, *each)}" for each in asked}


CATALOG = ("services", "endpoints", "regions")


def allowed(rule: str, target: PolicyTarget) -> set[str]:
    told = [
        {name for name, one in CALLERS.items() if POLICY.allows_on(asked, one, with_aliases(target.attributes()))}
        for asked in sorted(names_of(rule))
    ]
    assert all(each == told[0] for each in told), (rule, told)
    return told[0]


def test_the_table_is_whole() -> None:
    assert set().union(*(names_of(rule) for rule in ELSES)) == set(IDENTITY)


@pytest.mark.parametrize("rule", ELSES)
def test_each_rule_for_each_caller(rule: str) -> None:
    assert allowed(rule, HERE) == ELSES[rule]
    own = PolicyTarget(domain_id="d1", project_id="p2", user_id="u1", actor_domain_id="d1", role="member")
    assert allowed(rule, own) == (EVERYBODY if rule in OWN else ELSES[rule])
    of_a_domain = {"reader of the domain", "manager of the domain"}
    if rule == "get_role":
        assert allowed(rule, THERE) == ELSES[rule], "a role for all domains"
    elif rule == "get_domain":
        assert allowed(rule, THERE) == SYSTEM
    else:
        assert allowed(rule, THERE) == ELSES[rule] - (of_a_domain if ELSES[rule] != EVERYBODY else set())
    assert allowed(rule, PolicyTarget()) >= ELSES[rule] & ADMINS, "an administrator need not be looked up"


def test_one_sees_the_project_one_is_in() -> None:
    inside = {name for name, one in CALLERS.items() if one.project is not None}
    assert allowed("get_project", PolicyTarget(domain_id="d9", project_id="p1")) == inside | SYSTEM


@pytest.mark.parametrize("role", ["admin", "service", "pilot", None])
def test_a_domains_manager_does_not_make_administrators(role: str | None) -> None:
    target = PolicyTarget(domain_id="d1", actor_domain_id="d1", role=role)
    assert allowed("manage_grants", target) == ADMINS
    assert allowed("get_role", target) == SYSTEM


def test_a_domains_manager_gives_roles_inside_the_domain_only() -> None:
    assert allowed("manage_grants", PolicyTarget(domain_id="d1", actor_domain_id="d2", role="member")) == ADMINS
    assert allowed("manage_grants", PolicyTarget(domain_id="d2", actor_domain_id="d1", role="member")) == ADMINS
    assert allowed("list_grants", PolicyTarget(domain_id="d1", actor_domain_id="d2", role="member")) == SYSTEM


def test_a_group_and_who_joins_it_are_of_one_domain() -> None:
    for home, of_user in (("d1", "d2"), ("d2", "d1"), ("d1", None), (None, "d1")):
        target = PolicyTarget(domain_id=home, actor_domain_id=of_user)
        assert allowed("manage_members", target) == ADMINS
        assert allowed("get_members", target) == SYSTEM


# -- over HTTP --------------------------------------------------------------------------------------------------------

# For everybody with a token: about themselves, or about what is no secret.
MEMBERS = {
    "/auth/tokens",
    "/auth/catalog",
    "/auth/projects",
    "/auth/domains",
    "/auth/system",
    "/credentials",
    "/regions",
    "/regions/{id}",
}
BODIES: dict[str, Any] = {
    "domain": {"name": "x"},
    "project": {"name": "x"},
    "user": {"name": "x"},
    "group": {"name": "x"},
    "role": {"name": "x"},
    "service": {"type": "x"},
    "endpoint": {"service_id": "x", "interface": "public", "url": "http://x"},
    "region": {"description": "x"},
    "credential": {"user_id": "somebody", "type": "x", "blob": "x"},
    "policy": {"type": "x", "blob": "x"},
}


def body_of(path: str, method: str) -> Any:
    if method not in ("POST", "PUT", "PATCH"):
        return None
    if path.endswith("/tags"):
        return {"tags": ["x"]}
    words = path.split("/")[1]
    word = {"policies": "policy"}.get(words, words.removesuffix("s"))
    return {word: BODIES[word]} if word in BODIES and path.count("/") <= 2 else None


def test_every_route_wants_a_token_and_most_an_administrator() -> None:
    async def story(it: Asking) -> None:
        demo = (await it.home.log_in()).token
        for route in ROUTES:
            path = re.sub(r"\{\w+\}", "default", route.path)
            body = body_of(path, route.method)
            if route.rule == PUBLIC:
                continue
            for token in ("", "rubbish"):
                answer = await it.ask(route.method, path, body, token=token)
                assert answer.status_code == 401, (route.method, path, answer.text)
            if route.path in MEMBERS and route.method in ("GET", "HEAD", "DELETE"):
                continue
            answer = await it.ask(route.method, path, body, token=demo)
            expected = 200 if (route.method, route.path) in MAY else 403
            assert answer.status_code == expected, (route.method, path, answer.status_code, answer.text)

    asking(story)


MAY = {("GET", "/domains/{domain}"), ("HEAD", "/domains/{domain}")}  # the domain of one's own project


def test_a_reader_of_a_domain_sees_that_domain_alone() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other"))["id"]
        project = await it.make("projects", name="theirs", domain_id=home)
        await it.make("users", name="their user", domain_id=home)
        await it.make("groups", name="their group", domain_id=home)
        reader = await it.person("watch", "reader", {"domain": {"id": home}})
        for words, names in (
            ("projects", ["theirs"]),
            ("users", ["their user"]),
            ("groups", ["their group"]),
            ("domains", ["other"]),
        ):
            assert [one["name"] for one in (await it.get(f"/{words}", token=reader))[words]] == names
            if words != "domains":
                assert (await it.get(f"/{words}?domain_id=default", token=reader))[words] == []
        found = (await it.get("/role_assignments", token=reader))["role_assignments"]
        assert [one["scope"] for one in found] == [{"domain": {"id": home}}]
        assert (await it.get(f"/projects/{project['id']}", token=reader))["project"] == project
        await it.refused(403, "GET", "/projects/default", token=reader)
        await it.refused(403, "PATCH", f"/projects/{project['id']}", {"project": {"name": "x"}}, token=reader)

    asking(story)


def test_a_manager_of_a_domain_manages_it() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other"))["id"]
        demo = await it.home.identity.project_named("demo")
        it.token = await it.person("boss", "manager", {"domain": {"id": home}})
        project = await it.make("projects", name="ours")
        assert project["domain_id"] == home, "where else"
        below = await it.make("projects", name="below", parent_id=project["id"])
        user = await it.make("users", name="worker", password="x")
        group = await it.make("groups", name="crew")
        await it.done("PUT", f"/groups/{group['id']}/users/{user['id']}")
        roles = {one["name"]: one["id"] for one in (await it.get("/roles"))["roles"]}
        await it.done("PUT", f"/projects/{below['id']}/users/{user['id']}/roles/{roles['member']}")
        await it.refused(403, "PUT", f"/projects/{below['id']}/users/{user['id']}/roles/{roles['admin']}")
        await it.refused(403, "PUT", f"/projects/{demo}/users/{user['id']}/roles/{roles['member']}")
        await it.refused(403, "PUT", f"/system/users/{user['id']}/roles/{roles['member']}")
        for words, wish in (
            ("projects", {"name": "x", "domain_id": "default"}),
            ("projects", {"name": "x", "parent_id": demo}),
            ("projects", {"name": "x", "is_domain": True}),
            ("users", {"name": "x", "domain_id": "default"}),
            ("domains", {"name": "x"}),
            ("roles", {"name": "x"}),
        ):
            await it.refused(403, "POST", f"/{words}", {words.removesuffix("s"): wish})
        await it.change("users", user["id"], enabled=False)
        await it.done("DELETE", f"/projects/{below['id']}")

    asking(story)


def test_a_manager_of_a_domain_brings_nobody_else_into_its_groups() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other"))["id"]
        admin_token, demo = it.token, await it.home.user_id("demo")
        foreign = (await it.make("groups", name="theirs", domain_id="default"))["id"]
        place = await it.home.identity.project_named("demo")
        it.token = await it.person("boss", "manager", {"domain": {"id": home}})
        group = (await it.make("groups", name="crew"))["id"]
        project = (await it.make("projects", name="ours"))["id"]
        roles = {one["name"]: one["id"] for one in (await it.get("/roles"))["roles"]}
        for method in ("PUT", "GET", "HEAD", "DELETE"):
            for user in (demo, "nobody"):
                answer = await it.ask(method, f"/groups/{group}/users/{user}")
                assert answer.status_code == 403, (method, user, answer.text)
        assert (await it.get(f"/groups/{group}/users"))["users"] == []
        for where, actor in ((project, foreign), (place, group), (place, foreign)):
            await it.refused(403, "PUT", f"/projects/{where}/groups/{actor}/roles/{roles['member']}")
        await it.refused(403, "PATCH", f"/groups/{foreign}", {"group": {"domain_id": home}})
        await it.refused(400, "PATCH", f"/groups/{group}", {"group": {"domain_id": "default"}})

        boss, it.token = it.token, admin_token
        await it.done("PUT", f"/groups/{group}/users/{demo}")  # an administrator may, and still its record stays unseen
        assert [user["id"] for user in (await it.get(f"/groups/{group}/users"))["users"]] == [demo]
        assert (await it.get(f"/groups/{group}/users", token=boss))["users"] == []
        await it.refused(403, "DELETE", f"/groups/{group}/users/{demo}", token=boss)
        default = await it.person("watch", "reader", {"domain": {"id": "default"}})
        assert (await it.get(f"/users/{demo}/groups", token=default))["groups"] == []
        assert await it.refused(404, "PUT", f"/groups/{group}/users/nobody") == "Could not find user: nobody."

    asking(story)


STRANGE = [
    "..",
    "%2e%2e",
    "%00",
    "a%2Fb",
    "%F0%9F%94%91",
    "x" * 3000,
    "'; DROP TABLE users; --",
    "default",
    "%FF",
    "-1",
]
VALUES: list[Any] = [None, 0, -1, 1e308, True, "", "x" * 300, "\u0007", "🔑", [], {}, [[]], {"id": "x"}, "default"]


@pytest.mark.parametrize("seed", range(3))
def test_strange_input_is_never_our_fault(seed: int) -> None:
    chance = random.Random(seed)

    def body(word: str) -> Any:
        wish = dict(BODIES.get(word, {}))
        for _ in range(chance.randrange(3)):
            wish[chance.choice([*wish, "name", "enabled", "options", "tags", "domain_id", "parent_id", "extra"])] = (
                chance.choice(VALUES)
            )
        return chance.choice([{word: wish}, {word: wish}, {word: chance.choice(VALUES)}, chance.choice(VALUES)])

    async def story(it: Asking) -> None:
        statuses: dict[int, int] = {}
        for route in ROUTES:
            if route.method == "HEAD" or route.path == "/":
                continue
            path = re.sub(r"\{\w+\}", lambda _: chance.choice(STRANGE), route.path)
            word = {"policies": "policy"}.get(route.path.split("/")[1], route.path.split("/")[1].removesuffix("s"))
            query = f"?limit={chance.choice(STRANGE[:4])}&marker={chance.choice(STRANGE)}&name={chance.choice(STRANGE)}"
            given = body(word) if route.method in ("POST", "PUT", "PATCH") else None
            address = path + (query if route.method == "GET" and chance.random() < 0.5 else "")
            answer = await it.ask(route.method, address, given, X_Subject_Token=chance.choice(["x", "kn1.x"]))
            assert answer.status_code < 500, (route.method, address, given, answer.text)
            assert "Traceback" not in answer.text and "sqlite" not in answer.text.lower()
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        assert statuses.get(400) and statuses.get(404), statuses

    asking(story)
