"""Standing: the roles that a user has in a scope now, by the records alone, and since when its tokens count."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.schema.tables.identity import role_assignments
from kilonova.services.identity.assignments import BY_GROUP, BY_USER, THE_SYSTEM, Grant
from kilonova.services.identity.authorization import Authorization, stand, stands_by
from kilonova.services.identity.projects import DOMAIN, PROJECT
from kilonova.services.identity.revocations import revoke
from kilonova.services.identity.tokens import DOMAIN as ON_DOMAIN
from kilonova.services.identity.tokens import PROJECT as ON_PROJECT
from kilonova.services.identity.tokens import Scope, TokenClaims
from kilonova.store import rows
from tests.unit.services.identity.home import Home, at_home

HERE, THERE = "here", "there"


class Stage:
    """eve of one domain, with roles in a project of another; bob beside her has others."""

    def __init__(self, home: Home) -> None:
        self.home, self.ids = home, dict[str, str]()

    async def begin(self) -> Stage:
        home, ids = self.home, self.ids
        for domain in (HERE, THERE):
            ids[domain] = await home.project(domain, is_domain=True)
            made = await home.identity.projects.create({"name": "p"}, ids[domain])
            ids[f"p {domain}"] = str(made["id"])
        for name in ("eve", "bob"):
            ids[name] = str((await home.identity.users.create({"name": name}, domain_id=ids[HERE]))["id"])
            ids[f"team {name}"] = str((await home.identity.groups.create({"name": name}, domain_id=ids[HERE]))["id"])
            await home.identity.groups.add(ids[f"team {name}"], ids[name])
        for role in ("admin", "manager", "member", "reader"):
            ids[role] = await home.role_id(role)
        ids["local"] = str((await home.identity.roles.create({"name": "local", "domain_id": ids[THERE]}))["id"])
        ids["shown"] = str((await home.identity.roles.create({"name": "shown"}))["id"])
        await home.identity.roles.imply(ids["local"], ids["shown"])
        for actor, target, role in (
            ("eve", "p there", "reader"),
            ("team eve", "p there", "local"),
            ("eve", "p here", "member"),
            ("eve", "system", "reader"),
            ("team eve", HERE, "manager"),
            ("bob", "p there", "admin"),
            ("team bob", "p there", "admin"),
            ("bob", "system", "admin"),
        ):
            kind = BY_GROUP if actor.startswith("team") else BY_USER
            grant = Grant(kind, ids[actor], self.scope(target), ids[role])
            await home.identity.assignments.grant(grant)
        return self

    def scope(self, target: str) -> Scope:
        if target == "system":
            return THE_SYSTEM
        if target == "":
            return Scope()
        return Scope(ON_DOMAIN if target in (HERE, THERE) else ON_PROJECT, self.ids[target])

    async def stand(self, target: str, user: str = "eve", kind: str = "") -> Authorization | None:
        await self.home.identity.look()
        scope = self.scope(target)
        scope = Scope(kind, scope.id) if kind else scope
        who = self.ids.get(user, user)
        found: Authorization | None = await self.home.store.read(
            lambda tx: stand(tx, self.home.identity.snapshot, who, scope)
        )
        return found

    async def roles(self, target: str, user: str = "eve") -> list[str]:
        standing = await self.stand(target, user)
        return [] if standing is None else [role.name for role in standing.roles]


def test_roles_are_the_users_own_and_its_groups_in_that_scope() -> None:
    async def story(home: Home) -> None:
        stage = await Stage(home).begin()
        assert await stage.roles("p there") == ["reader", "shown"], "a domain's own role is not shown"
        assert await stage.roles("p here") == ["member", "reader"]
        assert await stage.roles("system") == ["reader"]
        assert await stage.roles(HERE) == ["manager", "member", "reader"]
        assert await stage.roles("p there", "bob") == ["admin", "manager", "member", "reader"]
        for nothing in (await stage.stand(THERE), await stage.stand("p here", "bob"), await stage.stand(HERE, "bob")):
            assert nothing is None, "no role there"
        assert await stage.stand("p there", "nobody") is None

    at_home(story)


def test_whom_and_what_it_names() -> None:
    async def story(home: Home) -> None:
        stage = await Stage(home).begin()
        ids = stage.ids
        on_project = await stage.stand("p there")
        assert on_project is not None and on_project.target is not None
        eve = (on_project.user.id, on_project.user.name, on_project.user.domain_id, on_project.user.domain_name)
        assert eve == (ids["eve"], "eve", ids[HERE], HERE)
        place = (
            on_project.target.id,
            on_project.target.name,
            on_project.target.domain_id,
            on_project.target.domain_name,
        )
        assert place == (ids["p there"], "p", ids[THERE], THERE)
        on_domain = await stage.stand(HERE)
        assert on_domain is not None and on_domain.target is not None
        assert (on_domain.target.id, on_domain.target.domain_id, on_domain.target.domain_name) == (ids[HERE], "", "")
        for target in ("system", ""):
            standing = await stage.stand(target)
            assert standing is not None and standing.target is None and standing.scope == stage.scope(target)
        claims = TokenClaims(ids["eve"], stage.scope(HERE), ("password",), 1.0, 2.0, ("a", "b"))
        caller = on_domain.caller(claims)
        assert (caller.domain, caller.project, caller.system) == (on_domain.target, None, False)
        assert (caller.issued_at, caller.expires_at, caller.audit_id) == (1.0, 2.0, "a")
        assert caller.roles == ("manager", "member", "reader")
        assert on_project.caller(claims).project == on_project.target and on_project.caller(claims).domain is None

    at_home(story)


def test_a_domain_is_no_project_and_a_project_no_domain() -> None:
    async def story(home: Home) -> None:
        stage = await Stage(home).begin()
        assert await stage.stand("p there", kind=ON_DOMAIN) is None
        assert await stage.stand(HERE, kind=ON_PROJECT) is None
        await home.store.write(lambda tx: _grant(tx, stage.ids["eve"], ON_PROJECT, stage.ids[HERE], stage.ids["admin"]))
        await home.store.write(
            lambda tx: _grant(tx, stage.ids["eve"], ON_DOMAIN, stage.ids["p here"], stage.ids["admin"])
        )
        assert await stage.stand(HERE, kind=ON_PROJECT) is None and await stage.stand("p here", kind=ON_DOMAIN) is None
        assert await stage.roles(HERE) == ["manager", "member", "reader"]
        assert await stage.roles("p here") == ["member", "reader"]

    at_home(story)


async def _grant(tx: Any, actor: str, kind: str, target: str, role: str) -> None:
    values = {"actor_id": actor, "actor_kind": BY_USER, "target_kind": kind, "target_id": target, "role_id": role}
    await rows.put(tx, role_assignments, **values)


DISABLED: dict[str, set[str]] = {
    "eve": {"p there", "p here", "system", HERE, ""},
    HERE: {"p there", "p here", "system", HERE, ""},
    THERE: {"p there"},
    "p there": {"p there"},
    "p here": {"p here"},
    "bob": set(),
}


@pytest.mark.parametrize("disabled", DISABLED)
def test_what_is_disabled_ends_standing_where_it_matters(disabled: str) -> None:
    """While it lasts; and tokens from before count no more where it did."""

    async def story(home: Home) -> None:
        stage = await Stage(home).begin()
        targets = ("p there", "p here", "system", HERE, "")

        async def change(enabled: bool) -> None:
            home.clock.time += 1
            if disabled in ("eve", "bob"):
                await home.identity.users.change(stage.ids[disabled], {"enabled": enabled})
            else:
                kind = DOMAIN if disabled in (HERE, THERE) else PROJECT
                await home.identity.projects.change(kind, stage.ids[disabled], {"enabled": enabled})

        await change(False)
        disabled_at = home.clock.time
        assert {target for target in targets if await stage.stand(target) is None} == DISABLED[disabled]
        await change(True)
        for target in targets:
            standing = await stage.stand(target)
            assert standing is not None
            assert standing.tokens_from == (disabled_at if target in DISABLED[disabled] else 0.0), target

    at_home(story)


def test_a_token_counts_from_the_moment_on_and_until_it_is_revoked() -> None:
    async def story(home: Home) -> None:
        stage = await Stage(home).begin()
        home.clock.time += 1
        await home.identity.users.change(stage.ids["eve"], {"password": "new"})
        since = home.clock.time

        async def stands(issued_at: float, audit_id: str = "a", target: str = "p there") -> bool:
            await home.identity.look()
            claims = TokenClaims(stage.ids["eve"], stage.scope(target), (), issued_at, since + 9, (audit_id, "first"))
            found: Any = await home.store.read(lambda tx: stands_by(tx, home.identity.snapshot, claims))
            return found is not None

        assert [await stands(at) for at in (since - 0.001, since, since + 0.001)] == [False, True, True]
        assert not await stands(since, target=THERE)
        for audit_id in ("b", "first"):
            claims = TokenClaims(stage.ids["eve"], Scope(), (), since, since + 9, (audit_id,))
            await home.store.write(lambda tx, claims=claims: revoke(tx, claims))
        assert [await stands(since, audit_id) for audit_id in ("a", "b", "c")] == [True, False, True]

    at_home(story)
