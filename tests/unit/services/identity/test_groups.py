"""Groups and users: what they are, who is in them, and what goes with each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.identity.assignments import BY_GROUP, BY_USER, Grant
from kilonova.services.identity.login import Which
from kilonova.services.identity.tokens import ALL, SYSTEM, Scope
from tests.unit.services.identity.home import Home, at_home


async def group(home: Home, name: str, domain: str = "default") -> str:
    return str((await home.identity.groups.create({"name": name}, domain_id=domain))["id"])


async def some(home: Home) -> dict[str, str]:
    """Two groups with two users each, one of them in both."""
    ids = {name: await home.user(name) for name in ("ada", "bob", "eve")}
    ids |= {name: await group(home, name) for name in ("one", "two", "none")}
    for where, who in (("one", "ada"), ("one", "bob"), ("two", "bob"), ("two", "eve")):
        await home.identity.groups.add(ids[where], ids[who])
    return ids


def test_what_a_group_is() -> None:
    async def story(home: Home) -> None:
        made = await home.identity.groups.create(
            {"name": "g", "description": None, "color": "red"}, domain_id="default"
        )
        expected = {"id": made["id"], "name": "g", "description": "", "domain_id": "default", "color": "red"}
        assert made == expected == await home.identity.groups.find(str(made["id"]))
        described = await home.identity.groups.change(str(made["id"]), {"description": "d"})
        assert described == expected | {"description": "d"}
        assert await home.identity.groups.change(str(made["id"]), {"name": "h"}) == described | {"name": "h"}
        assert await home.identity.groups.change(str(made["id"]), {"description": None}) == expected | {"name": "h"}

    at_home(story)


def test_who_is_in_which_group() -> None:
    async def story(home: Home) -> None:
        ids, groups = await some(home), home.identity.groups
        in_one = {one["name"] for one in await groups.users_in(ids["one"])}
        assert in_one == {"ada", "bob"} and await groups.users_in(ids["none"]) == []
        assert {one["name"] for one in await groups.groups_of(ids["bob"])} == {"one", "two"}
        assert {one["name"] for one in await groups.groups_of(ids["eve"])} == {"two"}
        assert [await groups.has(ids["one"], ids[who]) for who in ("ada", "bob", "eve")] == [True, True, False]
        assert not await groups.has(ids["none"], ids["ada"])
        await groups.add(ids["one"], ids["ada"])  # twice is once
        before = await home.everything()
        await groups.remove(ids["one"], ids["bob"])
        gone = [row for row in before["user_group_members"] if row["user_id"] == ids["bob"]]
        after = await home.everything()
        assert [row for row in gone if row not in after["user_group_members"]] == [
            {"user_id": ids["bob"], "group_id": ids["one"]}
        ]
        assert len(after["user_group_members"]) == len(before["user_group_members"]) - 1

    at_home(story)


def test_lists_of_members_are_in_the_order_of_ids() -> None:
    async def story(home: Home) -> None:
        ids, groups = await some(home), home.identity.groups
        for name in ("ada", "eve"):
            await groups.add(ids["none"], ids[name])
            await groups.add(ids["one"], ids[name])
        for listed in (await groups.users_in(ids["one"]), await groups.groups_of(ids["ada"])):
            found = [str(one["id"]) for one in listed]
            assert found == sorted(found) and len(found) > 1

    at_home(story)


async def grant_all(home: Home, ids: dict[str, str]) -> None:
    role = await home.role_id("reader")
    for name in ("ada", "bob", "one", "two"):
        actor = BY_GROUP if name in ("one", "two") else BY_USER
        await home.identity.assignments.grant(Grant(actor, ids[name], Scope(SYSTEM, ALL), role))
    for name in ("ada", "bob"):
        await home.identity.credentials.create({"type": "cert", "blob": "x", "user_id": ids[name]})


def test_a_group_goes_with_its_members_and_roles_alone() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        await grant_all(home, ids)
        before = await home.everything()
        await home.identity.groups.delete(ids["one"])
        expected = {
            "user_groups": [row for row in before["user_groups"] if row["id"] != ids["one"]],
            "user_group_members": [row for row in before["user_group_members"] if row["group_id"] != ids["one"]],
            "role_assignments": [row for row in before["role_assignments"] if row["actor_id"] != ids["one"]],
        }
        assert await home.everything() == before | expected
        assert all(len(before[name]) > len(left) for name, left in expected.items())

    at_home(story)


def test_a_user_goes_with_what_it_has_alone() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        await grant_all(home, ids)
        before = await home.everything()
        await home.identity.users.delete(ids["ada"])
        expected = {
            "users": [row for row in before["users"] if row["id"] != ids["ada"]],
            "user_group_members": [row for row in before["user_group_members"] if row["user_id"] != ids["ada"]],
            "role_assignments": [row for row in before["role_assignments"] if row["actor_id"] != ids["ada"]],
            "credentials": [row for row in before["credentials"] if row["user_id"] != ids["ada"]],
        }
        assert await home.everything() == before | expected
        assert all(len(before[name]) > len(left) for name, left in expected.items())

    at_home(story)


Act = Callable[[Home, dict[str, str]], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "name taken": (lambda home, ids: group(home, "one"), "exists", "There is already a group one in domain default."),
    "no domain": (lambda home, ids: group(home, "x", "nowhere"), "not_found", "nowhere"),
    "another's name": (
        lambda home, ids: home.identity.groups.change(ids["one"], {"name": "two"}),
        "exists",
        "There is already a group two",
    ),
    "another domain": (
        lambda home, ids: home.identity.groups.change(ids["one"], {"domain_id": "abroad"}),
        "bad_request",
        "The domain_id of a group cannot be changed.",
    ),
    "delete none": (lambda home, ids: home.identity.groups.delete("x"), "not_found", "Could not find group: x."),
    "add to none": (
        lambda home, ids: home.identity.groups.add("x", ids["ada"]),
        "not_found",
        "Could not find group: x.",
    ),
    "add nobody": (lambda home, ids: home.identity.groups.add(ids["one"], "x"), "not_found", "Could not find user: x."),
    "remove": (lambda home, ids: home.identity.groups.remove(ids["one"], ids["eve"]), "not_found", "is not in group"),
    "users in none": (lambda home, ids: home.identity.groups.users_in("x"), "not_found", "Could not find group: x."),
    "groups of nobody": (lambda home, ids: home.identity.groups.groups_of("x"), "not_found", "Could not find user: x."),
    "user's name taken": (
        lambda home, ids: home.user("ada"),
        "exists",
        "There is already a user ada in domain default.",
    ),
    "another user's name": (
        lambda home, ids: home.identity.users.change(ids["ada"], {"name": "bob"}),
        "exists",
        "There is already a user bob",
    ),
    "a domain as default project": (
        lambda home, ids: home.user("new", default_project_id="default"),
        "bad_request",
        "default is a domain and cannot be a default project.",
    ),
    "change to a domain as default project": (
        lambda home, ids: home.identity.users.change(ids["ada"], {"default_project_id": "default"}),
        "bad_request",
        "default is a domain and cannot be a default project.",
    ),
    "delete nobody": (lambda home, ids: home.identity.users.delete("x"), "not_found", "Could not find user: x."),
    "no own password": (
        lambda home, ids: home.identity.users.change_own_password(ids["ada"], "", "new"),
        "unauthorized",
        "The user or the original password is wrong.",
    ),
    "password of nobody": (
        lambda home, ids: home.identity.users.change_own_password("x", "old", "new"),
        "unauthorized",
        "The user or the original password is wrong.",
    ),
    "password of a disabled user": (
        lambda home, ids: home.identity.users.change_own_password(ids["off"], "of off", "new"),
        "unauthorized",
        "The user or the original password is wrong.",
    ),
    "the same password": (
        lambda home, ids: home.identity.users.change_own_password(ids["on"], "of on", "of on"),
        "bad_request",
        "The new password is the same as the old one.",
    ),
    "endless password": (
        lambda home, ids: home.user("new", password="x" * 4097),
        "bad_request",
        "the password has 4097 characters; at most 4096 are allowed",
    ),
}


def test_what_is_refused_changes_nothing() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        ids["off"] = await home.user("off", password="of off", enabled=False)
        ids["on"] = await home.user("on", password="of on")
        before = await home.everything()
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(home, ids)
            assert (why.value.code, await home.everything()) == (code, before), name
        await home.user("new", default_project_id="not there yet", password="x" * 4096)
        await home.user("newer", default_project_id=await home.identity.project_named("demo"))

    at_home(story)


def test_what_a_user_is() -> None:
    async def story(home: Home) -> None:
        made = await home.identity.users.create({"name": "u", "password": "p", "email": "e"}, domain_id="default")
        expected = {
            "id": made["id"],
            "name": "u",
            "domain_id": "default",
            "description": None,
            "enabled": True,
            "default_project_id": None,
            "options": {},
            "email": "e",
        }
        shown = {name: value for name, value in made.items() if name != "password"}
        assert shown == expected

    at_home(story)


def test_a_change_is_of_one_user_and_says_since_when_tokens_count() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        begin = {row["id"]: row for row in (await home.everything())["users"]}

        async def changed(**change: object) -> dict[str, object]:
            """Columns of the one row that is another one now."""
            home.clock.time += 1
            before = {row["id"]: row for row in (await home.everything())["users"]}
            await home.identity.users.change(ids["ada"], change)
            after = {row["id"]: row for row in (await home.everything())["users"]}
            assert [id_ for id_ in after if after[id_] != before[id_]] in ([], [ids["ada"]])
            return {name: value for name, value in after[ids["ada"]].items() if value != before[ids["ada"]][name]}

        assert begin[ids["ada"]]["tokens_from"] == 0.0
        assert await changed(description="d", enabled=True) == {"description": "d"}
        assert await changed(enabled=False) == {"enabled": 0, "tokens_from": home.clock.time}
        assert await changed(enabled=False) == {}
        assert await changed(enabled=True) == {"enabled": 1}
        new = await changed(password="new")
        assert new.keys() == {"password", "tokens_from"} and new["tokens_from"] == home.clock.time
        assert (await changed(password=None)).keys() == {"password", "tokens_from"}

    at_home(story)


def test_a_password_that_was_changed_meanwhile_is_not_changed_again() -> None:
    async def story(home: Home) -> None:
        user = await home.user("ada", password="old")
        checking = home.identity._passwords
        real = checking.matches

        async def slow(*arguments: Any) -> bool:
            is_right = await real(*arguments)
            await home.another().users.change(user, {"password": "meanwhile"})
            return is_right

        checking.matches = slow  # type: ignore[method-assign]
        before = await home.everything()
        with pytest.raises(Refused, match="The password was modified concurrently; retry") as why:
            await home.identity.users.change_own_password(user, "old", "new")
        assert why.value.code == "exists"
        checking.matches = real  # type: ignore[method-assign]
        assert await home.identity.is_password(Which(id=user), "meanwhile")
        after = await home.everything()
        assert [row["id"] for row in after["users"] if row not in before["users"]] == [user]

    at_home(story)


def test_an_own_password_is_changed_for_one_user_from_that_moment() -> None:
    async def story(home: Home) -> None:
        ids = {name: await home.user(name, password="old") for name in ("ada", "bob")}
        before = await home.everything()
        home.clock.time += 5
        await home.identity.users.change_own_password(ids["ada"], "old", "new", "192.0.2.1")
        after = await home.everything()
        (changed,) = [row for row in after["users"] if row not in before["users"]]
        assert (changed["id"], changed["tokens_from"]) == (ids["ada"], home.clock.time)
        assert await home.identity.is_password(Which(id=ids["ada"]), "new")
        assert await home.identity.is_password(Which(id=ids["bob"]), "old")

    at_home(story)


def test_own_passwords_are_guessed_as_slowly_as_others() -> None:
    async def story(home: Home) -> None:
        user = await home.user("ada", password="old")
        home.identity = home.another(failed_logins=2)
        for address, code in (
            ("a", "unauthorized"),
            ("a", "unauthorized"),
            ("a", "too_many_logins"),
            ("b", "unauthorized"),
        ):
            with pytest.raises(Refused) as why:
                await home.identity.users.change_own_password(user, "wrong", "new", address)
            assert why.value.code == code

    at_home(story)
