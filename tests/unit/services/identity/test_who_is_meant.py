"""Users, projects and domains that are called alike: a login means one of them, by its id or by its names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.identity.login import Login, Which, find_scope, find_user, has_password, settle
from kilonova.services.identity.projects import PROJECT as PROJECT_KIND
from kilonova.services.identity.seed import admin_project
from kilonova.services.identity.tokens import DOMAIN, PROJECT, SYSTEM, UNSCOPED, Scope
from tests.unit.services.identity.home import Home, at_home


async def alike(home: Home) -> dict[str, str]:
    """In two domains a user and a project `x` each, and a third domain called `x`."""
    ids: dict[str, str] = {}
    for name in ("one", "two", "x"):
        ids[name] = await home.project(name, is_domain=True)
    for domain in ("one", "two"):
        ids[f"user {domain}"] = str(
            (await home.identity.users.create({"name": "x", "password": domain}, domain_id=ids[domain]))["id"]
        )
        ids[f"project {domain}"] = str((await home.identity.projects.create({"name": "x"}, ids[domain]))["id"])
        await home.identity.users.create({"name": "y", "password": domain}, domain_id=ids[domain])
        await home.identity.projects.create({"name": "y"}, ids[domain])
    return ids


def by(ids: dict[str, str], domain: str) -> list[Which]:
    return [Which(name="x", domain_id=ids[domain]), Which(name="x", domain_name=domain)]


def test_a_user_is_meant_by_its_id_or_its_names() -> None:
    async def story(home: Home) -> None:
        ids = await alike(home)

        async def found(which: Which) -> str | None:
            row = await home.store.read(lambda tx: find_user(tx, which))
            return None if row is None else str(row["id"])

        for domain in ("one", "two"):
            for which in (*by(ids, domain), Which(id=ids[f"user {domain}"], name="y", domain_id="z")):
                assert await found(which) == ids[f"user {domain}"]
        for nobody in (Which(), Which(name="x"), Which(name="x", domain_name="x"), Which(name="x", domain_id="one")):
            assert await found(nobody) is None

    at_home(story)


def test_a_scope_is_meant_by_its_id_or_its_names() -> None:
    async def story(home: Home) -> None:
        ids = await alike(home)

        async def found(kind: str, which: Which) -> Scope:
            scope: Scope = await home.store.read(lambda tx: find_scope(tx, kind, which))
            return scope

        for domain in ("one", "two"):
            for which in (*by(ids, domain), Which(id=ids[f"project {domain}"])):
                assert await found(PROJECT, which) == Scope(PROJECT, ids[f"project {domain}"])
            for which in (Which(name=domain), Which(id=ids[domain])):
                assert await found(DOMAIN, which) == Scope(DOMAIN, ids[domain])
        assert await found(DOMAIN, Which(name="x")) == Scope(DOMAIN, ids["x"])
        assert await found(SYSTEM, Which(name="x")) == Scope(SYSTEM, "all")
        assert await found(UNSCOPED, Which(name="x")) == Scope()
        for kind, nowhere in (
            (DOMAIN, Which(name="y")),
            (DOMAIN, Which(name="x", domain_id=ids["one"])),
            (PROJECT, Which(name="one")),
            (PROJECT, Which(name="x", domain_name="x")),
            (PROJECT, Which(name="x", domain_id=ids["x"])),
        ):
            if kind == DOMAIN and nowhere.domain_id:
                assert await found(kind, nowhere) == Scope(DOMAIN, ids["x"]), "a domain is in none"
                continue
            with pytest.raises(Refused, match="requires authentication"):
                await found(kind, nowhere)

    at_home(story)


def test_a_project_is_named_in_its_domain() -> None:
    async def story(home: Home) -> None:
        ids = await alike(home)
        named = home.identity.project_named
        assert [await named("x", ids[domain]) for domain in ("one", "two", "x")] == [
            ids["project one"],
            ids["project two"],
            "",
        ]
        assert await named("x") == "" and await named("demo") != ""
        assert await admin_project(home.store) == await named("admin")
        await home.identity.projects.create({"name": "admin"}, ids["one"])
        assert await admin_project(home.store) == await named("admin")
        await home.identity.projects.delete(PROJECT_KIND, await named("admin"))
        assert await admin_project(home.store) == ""

    at_home(story)


def test_a_password_is_of_one_user() -> None:
    async def story(home: Home) -> None:
        ids = await alike(home)
        one, two = [{row["id"]: row for row in await users(home)}[ids[f"user {name}"]] for name in ("one", "two")]

        async def has(user_id: str, stored_hash: str) -> bool:
            answer: bool = await home.store.read(lambda tx: has_password(tx, user_id, stored_hash))
            return answer

        assert await has(one["id"], one["password"]) and await has(two["id"], two["password"])
        assert not await has(one["id"], two["password"]) and not await has("nobody", one["password"])

    at_home(story)


async def users(home: Home) -> list[dict[str, Any]]:
    return (await home.everything())["users"]


Prepare = Callable[[Home, str], Awaitable[object]]


async def nothing(home: Home, user: str) -> None: ...


async def wish_for(home: Home, user: str, project: str) -> None:
    await home.identity.users.change(user, {"default_project_id": project})


DEFAULTS: list[tuple[Prepare, str]] = [
    (nothing, UNSCOPED),
    (lambda home, user: _with_default(home, user), PROJECT),
    (lambda home, user: wish_for(home, user, "nowhere"), UNSCOPED),
]


async def _with_default(home: Home, user: str) -> None:
    place = await home.identity.project_named("demo")
    await wish_for(home, user, place)
    await home.give(user, "reader", Scope(PROJECT, place))


@pytest.mark.parametrize(("prepare", "kind"), DEFAULTS, ids=["none", "with a role", "gone"])
def test_without_a_scope_the_users_own_default_is_tried(prepare: Prepare, kind: str) -> None:
    async def story(home: Home) -> None:
        user = await home.user("eve")
        other = await home.user("0", default_project_id=await home.identity.project_named("demo"))
        await home.give(other, "reader", Scope(PROJECT, await home.identity.project_named("demo")))
        await prepare(home, user)
        await home.identity.look()

        async def settled(login: Login, who: str = user) -> Any:
            return await home.store.read(lambda tx: settle(tx, home.identity.snapshot, who, login))

        standing = await settled(Login())
        assert standing.scope.kind == kind and standing.user.name == "eve"
        with pytest.raises(Refused):
            await settled(Login(scope=SYSTEM))
        with pytest.raises(Refused, match="requires authentication"):
            await settled(Login(), "deleted meanwhile")

    at_home(story)


REFUSED: list[tuple[Login, str]] = [
    (Login(Which(name="x", domain_id="d"), "wrong", address="192.0.2.1"), "user='x' domain='d' address=192.0.2.1"),
    (Login(Which(id="i", name="x", domain_id="d", domain_name="n"), "wrong"), "user='i' domain='d' address= "),
    (Login(Which(name="y" * 90, domain_name="n" * 90), "wrong"), f"user='{'y' * 80}' domain='{'n' * 80}' address= "),
    (Login(token="rubbish"), "user='' domain='' address= "),
]


def test_each_refused_login_is_logged_with_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    """But for the password, and in bounded length."""

    async def story(home: Home) -> None:
        for login, said in REFUSED:
            caplog.clear()
            with pytest.raises(Refused) as why:
                await home.identity.authenticate(login)
            (record,) = caplog.records
            assert f"login refused: {said}".strip() in record.getMessage()
            assert record.getMessage().endswith(f"reason={why.value.code}") and "wrong" not in record.getMessage()
        caplog.clear()
        await home.log_in()
        assert caplog.text == ""

    at_home(story)


def test_a_token_is_good_at_a_process_that_has_just_started() -> None:
    async def story(home: Home) -> None:
        first = await home.log_in()
        again = await home.another().authenticate(Login(token=first.token, scope=UNSCOPED))
        assert again.claims.user_id == first.claims.user_id
        assert await home.another().inspect(first.token) is not None

    at_home(story)
