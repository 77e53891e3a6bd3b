"""The first cloud: made once, whole or not at all, whoever is first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import CommitFailed, CommitUnknown
from kilonova.services.identity.assignments import AssignmentFilter
from kilonova.services.identity.login import Which
from kilonova.services.identity.names import names_of
from kilonova.services.identity.projects import DOMAIN, PROJECT
from kilonova.services.identity.roles import ROLE
from kilonova.services.identity.seed import FirstCloud
from kilonova.services.identity.users import USER
from tests.support.locks import Locking
from tests.unit.services.identity.home import FIRST, Home, at_home


async def names(home: Home) -> dict[str, list[str]]:
    pages = {
        "domains": (DOMAIN, {"is_domain": 1}),
        "projects": (PROJECT, {"is_domain": 0}),
        "users": (USER, {}),
        "roles": (ROLE, {}),
    }
    return {
        what: sorted(one["name"] for one in await home.identity.records.page(kind, by))
        for what, (kind, by) in pages.items()
    }


WHOLE = {
    "domains": ["Default"],
    "projects": ["admin", "demo"],
    "users": ["admin", "demo"],
    "roles": ["admin", "manager", "member", "reader", "service"],
}
NOTHING: dict[str, list[str]] = {what: [] for what in WHOLE}


def test_what_it_is(anywhere: Callable[..., None]) -> None:
    async def story(home: Home) -> None:
        assert await names(home) == WHOLE
        grants = await home.identity.assignments.list(AssignmentFilter())
        named = await names_of(
            home.identity.records, [one for g in grants for one in (g.actor_id, g.role_id, g.target.id)]
        )
        told = {
            (named[g.actor_id].name, named[g.role_id].name, g.target.kind, getattr(named.get(g.target.id), "name", ""))
            for g in grants
        }
        assert told == {
            ("admin", "admin", "project", "admin"),
            ("admin", "admin", "project", "demo"),
            ("admin", "admin", "domain", "Default"),
            ("admin", "admin", "system", ""),
            ("demo", "member", "project", "demo"),
        }
        await home.log_in("admin")
        await home.log_in("demo")

    anywhere(story)


def test_a_second_start_changes_nothing() -> None:
    async def story(home: Home) -> None:
        token, keys = (await home.log_in("admin")).token, list(await home.identity.keys())
        again = home.another()
        assert not await again.prepare(FirstCloud(admin_password="other", demo_password="other"))
        assert await names(home) == WHOLE and len(await again.keys()) == len(keys)
        assert await again.is_password(Which(name="admin", domain_id="default"), "of admin")
        assert await again.check(token) is not None

    at_home(story)


def test_what_was_deleted_is_not_made_again() -> None:
    async def story(home: Home) -> None:
        await home.identity.users.delete(await home.user_id("demo"))
        assert not await home.another().prepare(FIRST)
        assert (await names(home))["users"] == ["admin"]

    at_home(story)


def test_two_at_once_make_it_once(anywhere: Callable[..., None]) -> None:
    async def story(home: Home) -> None:
        several = [home.another() for _ in range(3)]
        wishes = [FirstCloud(admin_password=f"of {number}", demo_password="of demo") for number in range(3)]
        made = await asyncio.gather(*(one.prepare(wish) for one, wish in zip(several, wishes, strict=True)))
        assert sorted(made) == [False, False, True]
        assert await names(home) == WHOLE and len(await home.identity.keys()) == 1
        winner = made.index(True)
        for number in range(3):
            right = await several[0].is_password(Which(name="admin", domain_id="default"), f"of {number}")
            assert right == (number == winner)

    anywhere(story, prepared=False)


@pytest.mark.parametrize("error", [CommitFailed, CommitUnknown])
def test_a_start_that_dies_at_the_commit_is_completed_by_the_next(error: type[Exception]) -> None:
    async def story(home: Home) -> None:
        real_write = home.store.write

        async def dying_write(body: Any) -> Any:
            if error is CommitUnknown:
                await real_write(body)  # it was in after all
            raise error("the process died")

        home.store.write = dying_write
        with pytest.raises(error):
            await home.identity.prepare(FIRST)
        home.store.write = real_write
        assert await names(home) == (WHOLE if error is CommitUnknown else NOTHING)
        assert await home.another().prepare(FIRST) == (error is CommitFailed)
        assert await names(home) == WHOLE
        await home.log_in("admin")

    at_home(story, prepared=False)


def test_a_start_that_dies_in_the_middle_leaves_nothing() -> None:
    async def story(home: Home) -> None:
        real_write = home.store.write

        async def dying_write(body: Any) -> Any:
            async def cut_short(tx: Any) -> Any:
                await body(tx)
                raise RuntimeError("killed")

            return await real_write(cut_short)

        home.store.write = dying_write
        with pytest.raises(RuntimeError):
            await home.identity.prepare(FIRST)
        home.store.write = real_write
        assert await names(home) == NOTHING
        assert await home.identity.prepare(FIRST)

    at_home(story, prepared=False)


def test_two_first_starts_wait_for_each_other() -> None:
    async def story(home: Home) -> None:
        locking: Any = Locking(home.store)
        home.store = locking
        assert await home.another().prepare(FIRST)
        assert locking.locked == [("identity_state", {"id": 1})]
        assert not await home.another().prepare(FIRST) and await home.another().is_prepared()

    at_home(story, prepared=False)


def test_the_first_cloud_is_complete_and_its_roles_stay() -> None:
    async def story(home: Home) -> None:
        cloud = await home.everything()
        domain, *projects = sorted(cloud["projects"], key=lambda row: -row["is_domain"])
        assert (domain["id"], domain["name"], domain["domain_id"], domain["parent_id"]) == (
            "default",
            "Default",
            "",
            "",
        )
        assert {(row["name"], row["domain_id"], row["parent_id"]) for row in projects} == {
            ("admin", "default", "default"),
            ("demo", "default", "default"),
        }
        assert all(row["enabled"] and row["tokens_from"] == 0.0 for row in (*cloud["projects"], *cloud["users"]))
        assert {row["options"] for row in cloud["roles"]} == {'{"immutable":true}'}
        names = {row["id"]: row["name"] for row in cloud["roles"]}
        assert {(names[row["prior_id"]], names[row["implied_id"]]) for row in cloud["implied_roles"]} == {
            ("admin", "manager"),
            ("manager", "member"),
            ("member", "reader"),
        }
        assert len(cloud["token_keys"]) == 1

    at_home(story)


def test_without_a_first_cloud_there_is_no_key() -> None:
    async def story(home: Home) -> None:
        for _ in range(2):
            assert not await home.identity.prepare() and await home.identity.keys() == []
        assert not await home.identity.is_prepared()
        assert await home.identity.prepare(FIRST) and len(await home.identity.keys()) == 1

    at_home(story, prepared=False)
