"""Role assignments: given, checked and taken back one at a time, and listed by every filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.identity import role_assignments
from kilonova.services.identity.assignments import ANYWHERE, BY_GROUP, BY_USER, THE_SYSTEM, AssignmentFilter, Grant
from kilonova.services.identity.projects import PROJECT
from kilonova.services.identity.tokens import DOMAIN as ON_DOMAIN
from kilonova.services.identity.tokens import PROJECT as ON_PROJECT
from kilonova.services.identity.tokens import Scope
from kilonova.store import rows
from tests.unit.services.identity.home import Home, at_home

# actor, target, role: on a project, on a domain, on the system; by users and by a group
GRANTS = (
    ("ada", "lab", "manager"),
    ("ada", "abroad", "reader"),
    ("bob", "lab", "reader"),
    ("bob", "system", "reader"),
    ("team", "field", "member"),
    ("team", "system", "member"),
    ("team", "lab", "reader"),
    ("crew", "abroad", "manager"),
)


class Cast:
    """People, places and roles by name; of the seeded ones only the roles."""

    def __init__(self, home: Home) -> None:
        self.home, self.ids = home, dict[str, str]()

    async def begin(self) -> Cast:
        home, ids = self.home, self.ids
        for user in ("admin", "demo"):
            await home.identity.users.delete(await home.user_id(user))
        for role in ("admin", "manager", "member", "reader"):
            ids[role] = await home.role_id(role)
        ids["abroad"] = await home.project("abroad", is_domain=True)
        for name in ("lab", "field"):
            ids[name] = await home.project(name)
        for name in ("ada", "bob", "eve"):
            ids[name] = await home.user(name)
        for name in ("team", "crew"):
            ids[name] = str((await home.identity.groups.create({"name": name}, domain_id="default"))["id"])
        for group, user in (("team", "bob"), ("team", "eve"), ("crew", "ada")):
            await home.identity.groups.add(ids[group], ids[user])
        ids["of abroad"] = str((await home.identity.roles.create({"name": "x", "domain_id": ids["abroad"]}))["id"])
        for grant in GRANTS:
            await home.identity.assignments.grant(self.grant(*grant))
        await home.identity.look()
        return self

    def target(self, name: str) -> Scope:
        if name == "system":
            return THE_SYSTEM
        return Scope(ON_DOMAIN if name in ("abroad", "default") else ON_PROJECT, self.ids.get(name, name))

    def grant(self, actor: str, target: str, role: str) -> Grant:
        kind = BY_GROUP if actor in ("team", "crew") else BY_USER
        return Grant(kind, self.ids.get(actor, actor), self.target(target), self.ids.get(role, role))

    def named(self, grants: list[Grant]) -> set[tuple[str, ...]]:
        """Actor, target and role; then the group by which, and the role that implies it."""
        names = {id_: name for name, id_ in self.ids.items()} | {"all": "system", "": ""}
        return {
            tuple(names[id_] for id_ in (one.actor_id, one.target.id, one.role_id, one.group_id, one.prior_id))
            for one in grants
        }


def direct(*grants: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {(*grant, "", "") for grant in grants}


# filters by name, and the numbers of GRANTS
DIRECT: list[tuple[dict[str, str], set[int]]] = [
    ({}, {0, 1, 2, 3, 4, 5, 6, 7}),
    ({"user": "ada"}, {0, 1}),
    ({"user": "bob"}, {2, 3}),
    ({"user": "eve"}, set()),
    ({"group": "team"}, {4, 5, 6}),
    ({"role": "reader"}, {1, 2, 3, 6}),
    ({"target": "lab"}, {0, 2, 6}),
    ({"target": "abroad"}, {1, 7}),
    ({"target": "system"}, {3, 5}),
    ({"user": "bob", "target": "lab"}, {2}),
    ({"group": "team", "role": "member", "target": "field"}, {4}),
    ({"user": "team"}, set()),
    ({"group": "ada"}, set()),
]


def test_lists_of_what_was_given() -> None:
    async def story(home: Home) -> None:
        cast = await Cast(home).begin()
        for by, expected in DIRECT:
            found = await home.identity.assignments.list(wanted(cast, by))
            assert cast.named(found) == direct(*(GRANTS[number] for number in expected)), by
            assert len(found) == len(expected)
        kinds = {grant.actor: grant.target.kind for grant in await home.identity.assignments.list(AssignmentFilter())}
        assert kinds.keys() == {BY_USER, BY_GROUP}
        on_projects = AssignmentFilter(target=Scope(ON_PROJECT))
        assert cast.named(await home.identity.assignments.list(on_projects)) == direct(
            *(GRANTS[number] for number in (0, 2, 4, 6))
        )

    at_home(story)


def wanted(cast: Cast, by: dict[str, str], *, effective: bool = False) -> AssignmentFilter:
    return AssignmentFilter(
        user_id=cast.ids.get(by.get("user", ""), ""),
        group_id=cast.ids.get(by.get("group", ""), ""),
        role_id=cast.ids.get(by.get("role", ""), ""),
        target=cast.target(by["target"]) if "target" in by else ANYWHERE,
        effective=effective,
    )


ADA_IN_LAB = {
    ("ada", "lab", "manager", "", ""),
    ("ada", "lab", "member", "", "manager"),
    ("ada", "lab", "reader", "", "manager"),
}
ADA_ABROAD = {
    ("ada", "abroad", "reader", "", ""),
    ("ada", "abroad", "manager", "crew", ""),
    ("ada", "abroad", "member", "crew", "manager"),
}
EVE = {
    ("eve", "field", "member", "team", ""),
    ("eve", "field", "reader", "team", "member"),
    ("eve", "system", "member", "team", ""),
    ("eve", "system", "reader", "team", "member"),
    ("eve", "lab", "reader", "team", ""),
}
EFFECTIVE: list[tuple[dict[str, str], set[tuple[str, ...]]]] = [
    ({"user": "ada"}, ADA_IN_LAB | ADA_ABROAD),
    ({"user": "eve"}, EVE),
    ({"user": "eve", "role": "reader"}, {grant for grant in EVE if grant[2] == "reader"}),
    ({"user": "ada", "target": "abroad"}, ADA_ABROAD),
    ({"user": "ada", "target": "lab", "role": "admin"}, set()),
    (
        {"target": "lab", "role": "reader"},
        {
            ("ada", "lab", "reader", "", "manager"),
            ("bob", "lab", "reader", "", ""),
            ("eve", "lab", "reader", "team", ""),
        },
    ),
]


def test_lists_of_what_it_comes_to() -> None:
    """Each role of each user once, by the first way in which the user has it."""

    async def story(home: Home) -> None:
        cast = await Cast(home).begin()
        for by, expected in EFFECTIVE:
            found = await home.identity.assignments.list(wanted(cast, by, effective=True))
            assert {(*grant[:3],) for grant in cast.named(found)} == {(*grant[:3],) for grant in expected}, by
            assert len(found) == len(expected) and all(grant.actor == BY_USER for grant in found)
            assert cast.named(found) & expected >= {grant for grant in expected if grant[0] == "eve"}
        everything = await home.identity.assignments.list(AssignmentFilter(effective=True))
        people = {grant[0] for grant in cast.named(everything)}
        assert people == {"ada", "bob", "eve"}

    at_home(story)


def test_a_users_standing_is_of_its_own_and_its_groups() -> None:
    async def story(home: Home) -> None:
        cast = await Cast(home).begin()
        assignments, ids = home.identity.assignments, cast.ids

        async def places(user: str) -> tuple[set[str], set[str], bool]:
            projects = {str(one["name"]) for one in await assignments.projects_of(ids[user])}
            domains = {str(one["name"]) for one in await assignments.domains_of(ids[user])}
            return projects, domains, await assignments.is_on_system(ids[user])

        assert await places("ada") == ({"lab"}, {"abroad"}, False)
        assert await places("bob") == ({"lab", "field"}, set(), True)
        assert await places("eve") == ({"lab", "field"}, set(), True)
        await home.identity.projects.change(PROJECT, ids["lab"], {"enabled": False})
        assert await places("bob") == ({"field"}, set(), True)
        listed = [str(one["id"]) for one in await assignments.projects_of(ids["eve"])]
        assert listed == sorted(listed)
        await home.identity.groups.remove(ids["team"], ids["eve"])
        assert await places("eve") == (set(), set(), False)
        await home.identity.groups.remove(ids["team"], ids["bob"])
        assert await places("bob") == (set(), set(), True), "of its own"

    at_home(story)


def test_roles_of_one_actor_on_one_target() -> None:
    async def story(home: Home) -> None:
        cast = await Cast(home).begin()

        async def roles(actor: str, target: str) -> set[str]:
            kind = BY_GROUP if actor in ("team", "crew") else BY_USER
            found = await home.identity.assignments.roles_on(kind, cast.ids[actor], cast.target(target))
            assert [str(one["id"]) for one in found] == sorted(str(one["id"]) for one in found)
            return {str(one["name"]) for one in found}

        assert await roles("ada", "lab") == {"manager"} and await roles("bob", "system") == {"reader"}
        assert await roles("team", "system") == {"member"} and await roles("ada", "field") == set()
        assert await roles("ada", "system") == set()
        named = {"actor_id": cast.ids["ada"], "actor_kind": BY_USER, "target_id": cast.ids["lab"]}
        strange = {**named, "target_kind": ON_DOMAIN, "role_id": cast.ids["admin"]}
        await home.store.write(lambda tx: rows.put(tx, role_assignments, **strange))
        assert await roles("ada", "lab") == {"manager"}, "what the same id has as another kind does not count"
        await home.identity.assignments.grant(cast.grant("ada", "lab", "reader"))
        assert await roles("ada", "lab") == {"manager", "reader"}

    at_home(story)


@pytest.mark.parametrize("number", range(len(GRANTS)))
def test_one_is_checked_and_taken_back_alone(number: int) -> None:
    async def story(home: Home) -> None:
        cast = await Cast(home).begin()
        assignments, grant = home.identity.assignments, cast.grant(*GRANTS[number])
        await assignments.check(grant)
        await assignments.grant(grant)  # twice is once
        before = await home.everything()
        await assignments.revoke(grant)
        (gone,) = [row for row in before["role_assignments"] if row not in await left(home)]
        assert (gone["actor_id"], gone["target_id"], gone["role_id"]) == (
            grant.actor_id,
            grant.target.id,
            grant.role_id,
        )
        for lost in (assignments.check, assignments.revoke):
            with pytest.raises(Refused, match="Could not find role assignment: role") as why:
                await lost(grant)
            where = "the system." if GRANTS[number][1] == "system" else f"{grant.target.kind} {grant.target.id}."
            assert why.value.code == "not_found" and why.value.message.endswith(f"{grant.actor_id} on {where}")
        await assignments.grant(grant)
        assert await home.everything() == before

    at_home(story)


async def left(home: Home) -> list[dict[str, object]]:
    return (await home.everything())["role_assignments"]


Act = Callable[[Cast], Awaitable[object]]


def grant(*names: str) -> Act:
    return lambda cast: cast.home.identity.assignments.grant(cast.grant(*names))


REFUSED: dict[str, tuple[Act, str, str]] = {
    "no role": (grant("ada", "lab", "none"), "not_found", "Could not find role: none."),
    "no user": (grant("nobody", "lab", "reader"), "not_found", "Could not find user: nobody."),
    "no project": (grant("ada", "nowhere", "reader"), "not_found", "Could not find project: nowhere."),
    "a domain as a project": (
        lambda cast: cast.home.identity.assignments.grant(
            Grant(BY_USER, cast.ids["ada"], Scope(ON_PROJECT, "default"), cast.ids["reader"])
        ),
        "not_found",
        "Could not find project: default. It is a domain.",
    ),
    "a project as a domain": (
        lambda cast: cast.home.identity.assignments.grant(
            Grant(BY_USER, cast.ids["ada"], Scope(ON_DOMAIN, cast.ids["lab"]), cast.ids["reader"])
        ),
        "not_found",
        "Could not find domain:",
    ),
    "a domain's role on the system": (grant("ada", "system", "of abroad"), "forbidden", "Role x is only for domain"),
    "a domain's role elsewhere": (grant("ada", "lab", "of abroad"), "forbidden", "Role x is only for domain"),
    "a domain's role on another": (grant("ada", "default", "of abroad"), "forbidden", "Role x is only for domain"),
    "roles of nobody": (
        lambda cast: cast.home.identity.assignments.roles_on(BY_USER, "nobody", THE_SYSTEM),
        "not_found",
        "Could not find user: nobody.",
    ),
    "roles nowhere": (
        lambda cast: cast.home.identity.assignments.roles_on(BY_USER, cast.ids["ada"], Scope(ON_PROJECT, "nowhere")),
        "not_found",
        "Could not find project: nowhere.",
    ),
}


def test_what_is_refused_changes_nothing() -> None:
    async def story(home: Home) -> None:
        cast = await Cast(home).begin()
        before = await home.everything()
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(cast)
            assert (why.value.code, await home.everything()) == (code, before), name

    at_home(story)


def test_a_domains_role_is_for_the_domain_and_its_projects() -> None:
    async def story(home: Home) -> None:
        cast = await Cast(home).begin()
        made = await home.identity.projects.create({"name": "p"}, cast.ids["abroad"])
        cast.ids["p"] = str(made["id"])
        for target in ("abroad", "p"):
            await home.identity.assignments.grant(cast.grant("ada", target, "of abroad"))
            await home.identity.assignments.check(cast.grant("ada", target, "of abroad"))

    at_home(story)
