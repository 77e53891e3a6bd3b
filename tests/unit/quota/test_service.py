"""Setting limits: never below what is used or promised, unless forced; all of a request or nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.quota.resources import RESOURCES
from kilonova.quota.service import Quotas
from tests.unit.quota.test_check import NOVAS, have

Run = Callable[[Any], None]


async def refused(work: Any) -> str:
    with pytest.raises(Refused) as why:
        await work
    return why.value.message


def test_not_below_what_is_used_unless_forced(control: Run) -> None:
    async def story(store: Any) -> None:
        quotas = Quotas(store, NOVAS)
        await have(store, 3)
        said = await refused(quotas.set("lab", {"ram": 9, "instances": 2}))
        assert said == "Quota limit 9 for ram must be greater than or equal to already used and reserved 1536."
        assert "instances" in await refused(quotas.set("lab", {"ram": 4000, "instances": 2}))
        assert await quotas.limit("ram", "lab") == 51200  # nothing of the request was taken
        await quotas.set("lab", {"instances": 2}, force=True)
        await quotas.set("lab", {"cores": 6, "ram": -1})
        shown = await quotas.show("lab", counted=True)
        assert [(shown[name].limit, shown[name].in_use) for name in NOVAS] == [(2, 3), (6, 6), (-1, 1536)]
        assert tuple(shown) == RESOURCES

    control(story)


def test_what_users_get_is_taken_from_the_project(control: Run) -> None:
    async def story(store: Any) -> None:
        quotas = Quotas(store, NOVAS)
        await quotas.set("lab", {"instances": 4}, "bob")
        await quotas.set("lab", {"instances": 6}, "eve")
        assert await refused(quotas.set("lab", {"instances": 5}, "bob")) == (
            "Quota limit 5 for instances must be less than or equal to 4."
        )
        assert "less than or equal to 4" in await refused(quotas.set("lab", {"instances": -1}, "bob"))
        assert "already used and reserved 10" in await refused(quotas.set("lab", {"instances": 9}))
        assert await quotas.limit("instances", "lab", "bob") == 4
        assert await quotas.limit("instances", "lab", "dave") == 10
        await quotas.reset("lab", "bob")
        await quotas.set("lab", {"instances": 8})
        assert [await quotas.limit("instances", "lab", user) for user in ("bob", "eve", "")] == [8, 6, 8]
        await quotas.reset("lab")
        assert [await quotas.limit("instances", "lab", user) for user in ("bob", "eve", "")] == [10, 10, 10]

    control(story)


def test_an_unlimited_project_promises_without_end(control: Run) -> None:
    async def story(store: Any) -> None:
        quotas = Quotas(store, {})
        await quotas.set("lab", {"cores": 1000}, "bob")
        await quotas.set("lab", {"cores": -1}, "eve")
        assert await quotas.limit("cores", "lab", "bob") == 1000

    control(story)


def test_some_limits_are_never_one_users(control: Run) -> None:
    async def story(store: Any) -> None:
        quotas = Quotas(store, NOVAS)
        await quotas.set("lab", {"floating_ips": 3}, "bob")
        assert [await quotas.limit("floating_ips", "lab", user) for user in ("bob", "eve", "")] == [3, 3, 3]

    control(story)


def test_limits_set_at_once_are_set_once(control: Run) -> None:
    async def story(store: Any) -> None:
        quotas = Quotas(store, NOVAS)
        await asyncio.gather(*(quotas.set("lab", {"cores": n}) for n in range(4)))
        await asyncio.gather(*(quotas.set_class("default", {"ram": n}) for n in range(4)))
        assert await quotas.limit("cores", "lab") in range(4) and (await quotas.defaults())["ram"] in range(4)

    control(story)


def test_metadata_of_a_server(control: Run) -> None:
    caller = Caller(user=IdentityRef("bob", "bob"), project=IdentityRef("lab", "lab"))

    async def story(store: Any) -> None:
        quotas = Quotas(store, {"metadata_items": 2})
        await quotas.check_metadata(caller, 0)
        await quotas.check_metadata(caller, 2)
        assert await refused(quotas.check_metadata(caller, 3)) == "Maximum number of metadata items exceeds 2"
        await quotas.set("lab", {"metadata_items": -1})
        await quotas.check_metadata(caller, 3000)

    control(story)
