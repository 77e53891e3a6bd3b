"""Projects and domains: a tree, whose parts change and go one at a time, and a domain with all that is in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.identity import projects
from kilonova.services.identity.assignments import BY_GROUP, BY_USER, Grant
from kilonova.services.identity.groups import GROUP
from kilonova.services.identity.projects import DEEPEST, DOMAIN, PROJECT
from kilonova.services.identity.tokens import DOMAIN as ON_DOMAIN
from kilonova.services.identity.tokens import PROJECT as ON_PROJECT
from kilonova.services.identity.tokens import Scope
from kilonova.store import rows
from tests.unit.services.identity.home import Home, at_home


async def tree(home: Home) -> dict[str, str]:
    """Two domains with a project below a project in each."""
    ids: dict[str, str] = {}
    for name in ("one", "two"):
        ids[name] = await home.project(name, is_domain=True)
        top = await home.identity.projects.create({"name": "top"}, ids[name])
        below = await home.identity.projects.create({"name": "below", "parent_id": top["id"]}, ids[name])
        ids |= {f"{name} top": str(top["id"]), f"{name} below": str(below["id"])}
    return ids


def test_what_a_new_project_is() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        made = await home.identity.projects.create(
            {"name": "p", "parent_id": ids["one top"], "description": None, "email": "e", "tags": ["t"]}, ids["one"]
        )
        assert made == {
            "id": made["id"],
            "name": "p",
            "description": "",
            "enabled": True,
            "tags": ["t"],
            "options": {},
            "domain_id": ids["one"],
            "parent_id": ids["one top"],
            "is_domain": False,
            "email": "e",
        }
        assert await home.identity.records.find(PROJECT, str(made["id"])) == made
        at_the_top = await home.identity.projects.create({"name": "p2"}, ids["one"], given_id="mine")
        assert (at_the_top["id"], at_the_top["parent_id"]) == ("mine", ids["one"])
        domain = await home.identity.projects.create({"name": "d", "is_domain": True, "enabled": False}, "")
        shown = [domain[name] for name in ("domain_id", "parent_id", "is_domain", "enabled")]
        assert shown == ["", "", True, False]
        by_parent = await home.identity.projects.create({"name": "p3", "parent_id": ids["two"]}, "")
        assert (by_parent["domain_id"], by_parent["parent_id"]) == (ids["two"], ids["two"])

    at_home(story)


def test_names_are_taken_once_in_a_domain() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        projects = home.identity.projects
        await projects.create({"name": "new"}, ids["one"])
        await projects.create({"name": "new"}, ids["two"])
        for act, text in (
            (lambda: projects.create({"name": "top"}, ids["one"]), "There is already a project top in domain"),
            (lambda: projects.create({"name": "one", "is_domain": True}, ""), "There is already a domain one."),
            (lambda: projects.change(PROJECT, ids["one below"], {"name": "top"}), "already a project top in domain"),
            (lambda: projects.change(DOMAIN, ids["one"], {"name": "two"}), "There is already a domain two."),
        ):
            before = await home.everything()
            with pytest.raises(Refused, match=text) as why:
                await act()
            assert why.value.code == "exists" and await home.everything() == before
        assert (await projects.change(PROJECT, ids["one top"], {"name": "top"}))["name"] == "top", "its own"
        assert (await projects.change(PROJECT, ids["one top"], {"name": "demo"}))["name"] == "demo", "another domain's"

    at_home(story)


def test_a_change_is_of_one_project() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        before = {row["id"]: row for row in (await home.everything())["projects"]}
        changed = await home.identity.projects.change(
            PROJECT, ids["one below"], {"description": None, "name": "b", "email": "e"}
        )
        assert (changed["name"], changed["description"], changed["email"]) == ("b", "", "e")
        again = await home.identity.projects.change(PROJECT, ids["one below"], {"phone": "1"})
        assert (again["email"], again["phone"]) == ("e", "1")
        cleared = await home.identity.projects.change(PROJECT, ids["one below"], {"description": "d", "email": None})
        assert (cleared["description"], cleared["email"], cleared["phone"]) == ("d", None, "1")
        after = {row["id"]: row for row in (await home.everything())["projects"]}
        assert [id_ for id_ in after if after[id_] != before[id_]] == [ids["one below"]]
        tags = await home.identity.projects.edit_tags(ids["two top"], lambda old: [*old, "t"])
        assert tags == ["t"]
        assert await home.identity.projects.edit_tags(ids["two top"], lambda old: [*old, "u"]) == ["t", "u"]
        last = {row["id"]: row for row in (await home.everything())["projects"]}
        assert [id_ for id_ in last if last[id_] != after[id_]] == [ids["two top"]]

    at_home(story)


def test_tokens_are_void_from_the_moment_a_project_is_disabled_and_only_then() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)

        async def since() -> float:
            (row,) = await home.store.read(lambda tx: _project(tx, ids["one below"]))
            return float(row["tokens_from"])

        projects = home.identity.projects
        home.clock.time += 1
        await projects.change(PROJECT, ids["one below"], {"description": "x"})
        await projects.change(PROJECT, ids["one below"], {"enabled": True})
        assert await since() == 0.0
        await projects.change(PROJECT, ids["one below"], {"enabled": False})
        disabled = await since()
        assert disabled == home.clock.time
        home.clock.time += 1
        await projects.change(PROJECT, ids["one below"], {"enabled": False})
        assert await since() == disabled, "it was disabled before"

    at_home(story)


async def _project(tx: Any, project_id: str) -> Any:
    return await rows.fetch_all(tx, projects, id=project_id)


def test_a_project_goes_after_those_below_it() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        projects = home.identity.projects
        with pytest.raises(Refused, match="has enabled projects below it; disable those first"):
            await projects.change(PROJECT, ids["one top"], {"enabled": False})
        with pytest.raises(Refused, match="has projects below it; delete those first"):
            await projects.delete(PROJECT, ids["one top"])
        await projects.change(PROJECT, ids["one below"], {"enabled": False})
        assert not (await projects.change(PROJECT, ids["one top"], {"enabled": False}))["enabled"]
        with pytest.raises(Refused, match="has projects below it"):
            await projects.delete(PROJECT, ids["one top"])
        await projects.delete(PROJECT, ids["one below"])
        await projects.delete(PROJECT, ids["one top"])
        assert (await projects.change(DOMAIN, ids["two"], {"enabled": False}))["enabled"] is False, "with those in it"

    at_home(story)


async def fill(home: Home, domain: str, project: str, name: str) -> None:
    """Something of each kind that belongs to the domain, or names what does."""
    identity = home.identity
    user = str((await identity.users.create({"name": f"{name} user"}, domain_id=domain))["id"])
    group = str((await identity.groups.create({"name": f"{name} group"}, domain_id=domain))["id"])
    role = str((await identity.roles.create({"name": f"{name} role", "domain_id": domain}))["id"])
    other = str((await identity.roles.create({"name": f"{name} other", "domain_id": domain}))["id"])
    await identity.groups.add(group, user)
    await identity.groups.add(group, await home.user_id("demo"))
    await identity.groups.add(await shared_group(home), user)
    await identity.roles.imply(role, other)
    await identity.roles.imply(other, await home.role_id("reader"))
    reader = await home.role_id("reader")
    targets = (Scope(ON_PROJECT, project), Scope(ON_DOMAIN, domain), Scope(ON_PROJECT, await demo(home)))
    for target in targets:
        for actor, actor_id in ((BY_USER, user), (BY_GROUP, group), (BY_USER, await home.user_id("demo"))):
            await identity.assignments.grant(Grant(actor, actor_id, target, reader))
    for target in targets[:2]:
        await identity.assignments.grant(Grant(BY_USER, await home.user_id("admin"), target, role))
    for owner, place in ((user, None), (await home.user_id("demo"), project)):
        blob = {"type": "cert", "blob": "secret", "user_id": owner, "project_id": place}
        await identity.credentials.create(blob)


async def demo(home: Home) -> str:
    return await home.identity.project_named("demo")


async def shared_group(home: Home) -> str:
    found = await home.identity.records.page(GROUP, {"name": "shared"})
    return str(
        found[0]["id"] if found else (await home.identity.groups.create({"name": "shared"}, domain_id="default"))["id"]
    )


def test_a_domain_goes_with_all_that_is_in_it_and_nothing_else() -> None:
    async def story(home: Home) -> None:
        await shared_group(home)
        one = await home.project("one", is_domain=True)
        project = str((await home.identity.projects.create({"name": "p"}, one))["id"])
        await fill(home, one, project, "one")
        before = await home.everything()
        two = await home.project("two", is_domain=True)
        top = str((await home.identity.projects.create({"name": "p"}, two))["id"])
        await home.identity.projects.create({"name": "q", "parent_id": top}, two)
        await fill(home, two, top, "two")
        filled = await home.everything()
        assert all(len(filled[name]) > len(before[name]) for name in WITH_DOMAIN)
        with pytest.raises(Refused, match="Domain two is enabled; disable it first, then delete it"):
            await home.identity.projects.delete(DOMAIN, two)
        await home.identity.projects.change(DOMAIN, two, {"enabled": False})
        await home.identity.projects.delete(DOMAIN, two)
        assert await home.everything() == before

    at_home(story)


WITH_DOMAIN = (
    "projects",
    "users",
    "user_groups",
    "user_group_members",
    "roles",
    "implied_roles",
    "role_assignments",
    "credentials",
)


def test_a_project_goes_with_its_assignments_and_credentials_alone() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        await shared_group(home)
        for name in ("one", "two"):
            await fill(home, ids[name], ids[f"{name} below"], name)
        before = await home.everything()
        await home.identity.projects.delete(PROJECT, ids["one below"])
        expected = {
            "projects": [row for row in before["projects"] if row["id"] != ids["one below"]],
            "role_assignments": [row for row in before["role_assignments"] if row["target_id"] != ids["one below"]],
            "credentials": [row for row in before["credentials"] if row["project_id"] != ids["one below"]],
        }
        assert await home.everything() == before | expected
        assert all(len(before[name]) > len(left) for name, left in expected.items())

    at_home(story)


async def chain(home: Home, ids: dict[str, str], levels: int) -> str:
    above = ids["one"]
    for number in range(levels):
        made = await home.identity.projects.create({"name": f"level {number}", "parent_id": above}, ids["one"])
        above = str(made["id"])
    return above


def test_projects_are_nested_so_deep_and_no_deeper() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        last = await chain(home, ids, DEEPEST)
        with pytest.raises(Refused, match="nested 5 levels deep; level 4 is on the last level"):
            await home.identity.projects.create({"name": "deeper", "parent_id": last}, ids["one"])

    at_home(story)


Act = Callable[[Home, dict[str, str]], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "no parent": (
        lambda home, ids: home.identity.projects.create({"name": "x", "parent_id": "nowhere"}, ids["one"]),
        "bad_request",
        "Could not find the parent project or domain: nowhere.",
    ),
    "no domain": (
        lambda home, ids: home.identity.projects.create({"name": "x"}, "nowhere"),
        "bad_request",
        "Could not find the parent project or domain: nowhere.",
    ),
    "parent in another domain": (
        lambda home, ids: home.identity.projects.create({"name": "x", "parent_id": ids["two top"]}, ids["one"]),
        "bad_request",
        "is in domain .*, not in",
    ),
    "another domain as parent": (
        lambda home, ids: home.identity.projects.create({"name": "x", "parent_id": ids["two"]}, ids["one"]),
        "bad_request",
        "is in domain .*, not in",
    ),
    "disabled parent": (
        lambda home, ids: home.identity.projects.create({"name": "x", "parent_id": ids["off"]}, ids["one"]),
        "forbidden",
        "off is disabled; nothing can be created below it.",
    ),
    "change none": (
        lambda home, ids: home.identity.projects.change(PROJECT, "x", {"name": "y"}),
        "not_found",
        "Could not find project: x.",
    ),
    "a project as a domain": (
        lambda home, ids: home.identity.projects.change(DOMAIN, ids["one top"], {"name": "y"}),
        "not_found",
        "Could not find domain:",
    ),
    "delete a project as a domain": (
        lambda home, ids: home.identity.projects.delete(DOMAIN, ids["one below"]),
        "not_found",
        "Could not find domain:",
    ),
    "delete none": (
        lambda home, ids: home.identity.projects.delete(PROJECT, "x"),
        "not_found",
        "Could not find project",
    ),
    "into another domain": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["one top"], {"domain_id": ids["two"]}),
        "bad_request",
        "The domain_id of a project cannot be changed.",
    ),
    "below another": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["one below"], {"parent_id": ids["one"]}),
        "bad_request",
        "The parent_id of a project cannot be changed.",
    ),
    "out of a domain": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["one below"], {"parent_id": None}),
        "bad_request",
        "The parent_id of a project cannot be changed.",
    ),
    "into a domain": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["one below"], {"is_domain": True}),
        "bad_request",
        "The is_domain of a project cannot be changed.",
    ),
    "the cloud's domain": (
        lambda home, ids: home.identity.projects.delete(DOMAIN, "default"),
        "forbidden",
        "The domain default belongs to the cloud itself and cannot be deleted.",
    ),
    "tags of none": (
        lambda home, ids: home.identity.projects.edit_tags("x", list),
        "not_found",
        "Could not find project: x.",
    ),
    "change what is immutable": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["fixed"], {"name": "y"}),
        "forbidden",
        "The project fixed is immutable; set its option immutable to false first.",
    ),
    "more than the mark": (
        lambda home, ids: home.identity.projects.change(
            PROJECT, ids["fixed"], {"options": {"immutable": False}, "name": "y"}
        ),
        "forbidden",
        "The project fixed is immutable",
    ),
    "another option": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["fixed"], {"options": {}}),
        "forbidden",
        "The project fixed is immutable",
    ),
    "the mark again": (
        lambda home, ids: home.identity.projects.change(PROJECT, ids["fixed"], {"options": {"immutable": True}}),
        "forbidden",
        "The project fixed is immutable",
    ),
    "delete what is immutable": (
        lambda home, ids: home.identity.projects.delete(PROJECT, ids["fixed"]),
        "forbidden",
        "The project fixed is immutable",
    ),
    "tags of what is immutable": (
        lambda home, ids: home.identity.projects.edit_tags(ids["fixed"], lambda old: ["t"]),
        "forbidden",
        "The project fixed is immutable",
    ),
}


def test_what_is_refused_changes_nothing() -> None:
    async def story(home: Home) -> None:
        ids = await tree(home)
        for name, more in (("off", {"enabled": False}), ("fixed", {"options": {"immutable": True}})):
            ids[name] = str((await home.identity.projects.create({"name": name, **more}, ids["one"]))["id"])
        before = await home.everything()
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(home, ids)
            assert (why.value.code, await home.everything()) == (code, before), name
        changed = await home.identity.projects.change(PROJECT, ids["fixed"], {"options": {"immutable": False}})
        assert changed["options"] == {"immutable": False}
        await home.identity.projects.delete(PROJECT, ids["fixed"])
        same = {"domain_id": ids["one"], "parent_id": ids["one"], "is_domain": False, "name": "other"}
        assert (await home.identity.projects.change(PROJECT, ids["one top"], same))["name"] == "other"
        assert (await home.identity.projects.change(DOMAIN, ids["one"], {"domain_id": None}))["name"] == "one"

    at_home(story)
