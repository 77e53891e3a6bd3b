"""Roles: made for all domains or one, immutable until they are not, and which of them imply which others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.identity.assignments import BY_USER, Grant
from kilonova.services.identity.tokens import PROJECT, Scope
from tests.unit.services.identity.home import Home, at_home


async def some(home: Home) -> dict[str, str]:
    """a, b, c for all domains; x and y of a domain."""
    ids = {"domain": await home.project("abroad", is_domain=True)}
    for name in "abc":
        ids[name] = str((await home.identity.roles.create({"name": name}))["id"])
    for name in "xy":
        ids[name] = str((await home.identity.roles.create({"name": name, "domain_id": ids["domain"]}))["id"])
    return ids


async def implied(home: Home, prior: str = "") -> dict[str, set[str]]:
    found = await home.identity.roles.inferences(prior)
    return {str(role["name"]): {str(one["name"]) for one in roles} for role, roles in found}


SEEDED = {"admin": {"manager"}, "manager": {"member"}, "member": {"reader"}}


def test_what_a_role_is() -> None:
    async def story(home: Home) -> None:
        made = await home.identity.roles.create({"name": "r", "domain_id": None})
        assert made == {"id": made["id"], "name": "r", "domain_id": "", "description": None, "options": {}}
        domain = await home.project("abroad", is_domain=True)
        of_domain = await home.identity.roles.create({"name": "r", "domain_id": domain, "description": "d"})
        assert (of_domain["domain_id"], of_domain["description"]) == (domain, "d")
        assert await home.identity.roles.find(str(of_domain["id"])) == of_domain
        assert await home.identity.roles.find("nothing") is None
        changed = await home.identity.roles.change(str(made["id"]), {"name": "s", "domain_id": None})
        assert changed == made | {"name": "s"}

    at_home(story)


def test_one_role_goes_with_what_names_it_alone() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        user, place = await home.user_id("demo"), Scope(PROJECT, await home.identity.project_named("demo"))
        before = await home.everything()
        made = str((await home.identity.roles.create({"name": "new"}))["id"])
        for prior, role in (("a", "b"), ("b", "c")):
            await home.identity.roles.imply(ids[prior], ids[role])
        kept = (await home.everything())["implied_roles"]
        await home.identity.roles.imply(made, ids["a"])
        await home.identity.roles.imply(ids["x"], made)
        await home.identity.assignments.grant(Grant(BY_USER, user, place, made))
        await home.identity.roles.delete(made)
        assert await home.everything() == before | {"implied_roles": kept}

    at_home(story)


def test_what_implies_what() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        roles = home.identity.roles
        for prior, role in (("a", "b"), ("a", "c"), ("b", "c"), ("x", "y"), ("x", "a"), ("a", "b")):
            await roles.imply(ids[prior], ids[role])
        assert await implied(home) == SEEDED | {"a": {"b", "c"}, "b": {"c"}, "x": {"y", "a"}}
        assert await implied(home, ids["a"]) == {"a": {"b", "c"}}
        assert await implied(home, ids["c"]) == {"c": set()}
        await roles.imply_no_more(ids["a"], ids["b"])
        assert await implied(home) == SEEDED | {"a": {"c"}, "b": {"c"}, "x": {"y", "a"}}

    at_home(story)


Act = Callable[[Home, dict[str, str]], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "name taken": (lambda home, ids: home.identity.roles.create({"name": "a"}), "exists", "There is already a role a."),
    "name of a seeded one": (
        lambda home, ids: home.identity.roles.create({"name": "admin"}),
        "exists",
        "a role admin.",
    ),
    "name taken in a domain": (
        lambda home, ids: home.identity.roles.create({"name": "x", "domain_id": ids["domain"]}),
        "exists",
        "There is already a role x in domain",
    ),
    "no domain": (
        lambda home, ids: home.identity.roles.create({"name": "z", "domain_id": "nowhere"}),
        "not_found",
        "nowhere",
    ),
    "a project as its domain": (
        lambda home, ids: home.identity.roles.create({"name": "z", "domain_id": ids["project"]}),
        "not_found",
        "Could not find domain",
    ),
    "another's name": (
        lambda home, ids: home.identity.roles.change(ids["a"], {"name": "b"}),
        "exists",
        "There is already a role b.",
    ),
    "into a domain": (
        lambda home, ids: home.identity.roles.change(ids["a"], {"domain_id": ids["domain"]}),
        "bad_request",
        "The domain_id of a role cannot be changed.",
    ),
    "out of a domain": (
        lambda home, ids: home.identity.roles.change(ids["x"], {"domain_id": None}),
        "bad_request",
        "The domain_id of a role cannot be changed.",
    ),
    "change none": (lambda home, ids: home.identity.roles.change("z", {}), "not_found", "Could not find role: z."),
    "delete none": (lambda home, ids: home.identity.roles.delete("z"), "not_found", "Could not find role: z."),
    "change immutable": (
        lambda home, ids: home.identity.roles.change(ids["admin"], {"name": "root"}),
        "forbidden",
        "The role admin is immutable",
    ),
    "delete immutable": (
        lambda home, ids: home.identity.roles.delete(ids["admin"]),
        "forbidden",
        "The role admin is immutable",
    ),
    "imply admin": (
        lambda home, ids: home.identity.roles.imply(ids["a"], ids["admin"]),
        "forbidden",
        "No role may imply admin.",
    ),
    "imply a domain's": (
        lambda home, ids: home.identity.roles.imply(ids["a"], ids["x"]),
        "forbidden",
        "a is for all domains and cannot imply a role of one.",
    ),
    "imply back": (
        lambda home, ids: home.identity.roles.imply(ids["c"], ids["a"]),
        "bad_request",
        "a already implies c.",
    ),
    "imply itself": (
        lambda home, ids: home.identity.roles.imply(ids["c"], ids["c"]),
        "bad_request",
        "c already implies c.",
    ),
    "imply none": (lambda home, ids: home.identity.roles.imply(ids["a"], "z"), "not_found", "Could not find role: z."),
    "none implies": (
        lambda home, ids: home.identity.roles.imply("z", ids["a"]),
        "not_found",
        "Could not find role: z.",
    ),
    "no more": (
        lambda home, ids: home.identity.roles.imply_no_more(ids["a"], ids["c"]),
        "not_found",
        "does not imply",
    ),
    "inferences of none": (
        lambda home, ids: home.identity.roles.inferences("z"),
        "not_found",
        "Could not find role: z.",
    ),
}


def test_what_is_refused_changes_nothing() -> None:
    async def story(home: Home) -> None:
        ids = await some(home) | {name: await home.role_id(name) for name in ("admin", "reader")}
        ids["project"] = await home.project("p")
        for prior, role in (("a", "b"), ("b", "c")):
            await home.identity.roles.imply(ids[prior], ids[role])
        before = await home.everything()
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(home, ids)
            assert (why.value.code, await home.everything()) == (code, before), name

    at_home(story)


def test_a_domain_may_have_an_admin_that_others_imply() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        admin = str((await home.identity.roles.create({"name": "admin", "domain_id": ids["domain"]}))["id"])
        await home.identity.roles.imply(ids["x"], admin)
        assert (await implied(home))["x"] == {"admin"}

    at_home(story)


def test_the_mark_is_removed_first() -> None:
    async def story(home: Home) -> None:
        service = await home.role_id("service")
        changed = await home.identity.roles.change(service, {"options": {"immutable": False}})
        assert changed["options"] == {"immutable": False}
        assert (await home.identity.roles.change(service, {"description": "for services"}))["name"] == "service"
        await home.identity.roles.delete(service)
        assert await home.identity.roles.find(service) is None

    at_home(story)
