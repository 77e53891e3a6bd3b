"""What a project may have and has: charged, given back, shown, and what is refused in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import volume_usage
from kilonova.services.volume.quotas import DEFAULTS
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.shop import PROJECT, Story

Control = Callable[[Story], None]


async def charge(here: Ledger, type_id: str = "t", project_id: str = PROJECT, **delta: int) -> None:
    await here.store.write(lambda tx: here.volumes.quotas.charge(tx, project_id, type_id, delta))


async def check_size(here: Ledger, size: int) -> None:
    await here.store.read(lambda tx: here.volumes.quotas.check_size(tx, PROJECT, size))


@pytest.mark.parametrize(
    ("limits", "delta", "why"),
    [
        ({"volumes": 3}, {"volumes": 1}, ""),
        ({"volumes": 2}, {"volumes": 1}, "maximum number of volumes allowed (2) exceeded for quota 'volumes'."),
        ({"volumes": 0}, {"volumes": 1}, "maximum number of volumes allowed (0) exceeded for quota 'volumes'."),
        ({"volumes_t": 2}, {"volumes": 1}, "maximum number of volumes allowed (2) exceeded for quota 'volumes_t'."),
        ({"volumes_plain": 2}, {"volumes": 1}, ""),
        ({"snapshots": 0}, {"snapshots": 1}, "maximum number of snapshots allowed (0) exceeded for quota 'snapshots'."),
        ({"gigabytes": 7}, {"gigabytes": 2}, ""),
        (
            {"gigabytes": 6},
            {"gigabytes": 2},
            "exceeds allowed gigabytes quota. requested 2g, quota is 6g and 5g has been consumed.",
        ),
        (
            {"gigabytes_t": 6},
            {"gigabytes": 2},
            "exceeds allowed gigabytes_t quota. requested 2g, quota is 6g and 5g has been consumed.",
        ),
        ({"volumes": -1}, {"volumes": 1000}, ""),
    ],
)
def test_no_more_is_taken_than_allowed(control: Control, limits: Any, delta: Any, why: str) -> None:
    async def story(here: Ledger) -> None:
        await charge(here, volumes=2, gigabytes=5)
        await charge(here, project_id="bolt", volumes=9, gigabytes=99)
        for resource, limit in limits.items():
            await here.store.write(lambda tx, r=resource, n=limit: here.volumes.quotas._limits.put(tx, PROJECT, r, n))
        before = await here.rows(volume_usage)
        if why:
            assert (await refused(charge(here, **delta))).lower().endswith(why)
            assert await here.rows(volume_usage) == before
            return
        await charge(here, **delta)
        used = {"volumes": 2, "gigabytes": 5}
        assert await here.used("t") == {**used, **{name: used.get(name, 0) + more for name, more in delta.items()}}

    ledger(control, story)


def test_what_is_given_back_is_never_refused(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await charge(here, volumes=2, gigabytes=5)
        for resource in ("volumes", "gigabytes"):
            await here.store.write(lambda tx, r=resource: here.volumes.quotas._limits.put(tx, PROJECT, r, 0))
        await charge(here, volumes=-1, gigabytes=-2)
        assert await here.used() == {"volumes": 1, "gigabytes": 3} == await here.used("t")
        assert await code(charge(here, volumes=1, gigabytes=-1)) == "over_quota"
        assert await here.used() == {"volumes": 1, "gigabytes": 3}
        await here.store.write(lambda tx: here.volumes.quotas._limits.put(tx, PROJECT, "volumes", -1))
        await charge(here, volumes=1, gigabytes=-1)
        assert await here.used() == {"volumes": 2, "gigabytes": 2}, "also with something that is taken"

    ledger(control, story)


def test_the_limit_of_a_type_is_found_by_its_name(control: Control) -> None:
    async def story(here: Ledger) -> None:
        for name in ("plain", "shared"):
            await here.volumes.quotas.set(PROJECT, {f"volumes_{name}": 0})
            assert f"for quota 'volumes_{name}'" in await refused(charge(here, name, volumes=1))
        await charge(here, "t", volumes=1)
        await charge(here, "gone", volumes=1)

    ledger(control, story)


def test_a_resource_that_is_not_concerned_is_not_counted(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await charge(here, volumes=1, gigabytes=0)
        assert {(one["resource"], one["type_id"]) for one in await here.rows(volume_usage)} == {
            ("volumes", ""),
            ("volumes", "t"),
        }

    ledger(control, story)


def test_the_size_of_one_volume(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await check_size(here, 10**6)
        await here.volumes.quotas.set(PROJECT, {"per_volume_gigabytes": 5})
        await check_size(here, 5)
        assert (await refused(check_size(here, 6))).endswith("6G is larger than maximum allowed limit 5G.")
        await here.volumes.quotas.set(PROJECT, {"per_volume_gigabytes": 0})
        assert await code(check_size(here, 1)) == "volume_too_large"

    ledger(control, story)


def test_what_is_shown(control: Control) -> None:
    """All resources, those of each type too, with what is used; of a type that is gone nothing."""

    async def story(here: Ledger) -> None:
        quotas = here.volumes.quotas
        await charge(here, volumes=2, gigabytes=5)
        await charge(here, "gone", volumes=1)
        await quotas.set(PROJECT, {"volumes": 7, "volumes_shared": 8})
        shown = await quotas.show(PROJECT)
        counted = {
            f"{name}_{kind}" for name in ("volumes", "snapshots", "gigabytes") for kind in ("t", "plain", "shared")
        }
        assert shown.keys() == DEFAULTS.keys() | counted
        assert {name: (one.limit, one.in_use) for name, one in shown.items() if one.in_use or one.limit in (7, 8)} == {
            "volumes": (7, 3),
            "gigabytes": (1000, 5),
            "volumes_t": (-1, 2),
            "gigabytes_t": (-1, 5),
            "volumes_shared": (8, 0),
        }
        assert (await quotas.show("nobody"))["volumes"].in_use == 0 and shown["groups"].limit == 10

    ledger(control, story)


def test_limits_are_set_all_or_none(control: Control) -> None:
    async def story(here: Ledger) -> None:
        quotas = here.volumes.quotas
        await charge(here, volumes=2)
        await quotas.set(PROJECT, {"volumes": 2})
        told = await refused(quotas.set(PROJECT, {"snapshots": 5, "volumes": 1}))
        assert told.endswith("Current usage is 2 and the requested limit is 1.")
        told = await refused(quotas.set(PROJECT, {"snapshots": 5, "zebras": 1, "apes": 1}))
        assert told == "Bad key(s) in quota set: apes, zebras"
        assert len(await refused(quotas.set(PROJECT, {"x" * 300: 1}))) == len("Bad key(s) in quota set: ") + 200
        assert (await quotas.show(PROJECT))["snapshots"].limit == 10
        await quotas.set(PROJECT, {"volumes": -1, "volumes_t": 2})
        assert (await quotas.show(PROJECT))["volumes"].limit == -1

    ledger(control, story)


def test_the_limits_of_a_class(control: Control) -> None:
    async def story(here: Ledger) -> None:
        quotas = here.volumes.quotas
        assert (await quotas.defaults())["volumes"] == 4 and (await quotas.defaults())["volumes_t"] == -1
        await quotas.set_class("default", {"volumes": 5, "volumes_t": 3})
        assert ((await quotas.defaults())["volumes"], (await quotas.of_class("other"))["volumes"]) == (5, 5)
        assert (await quotas.show(PROJECT))["volumes_t"].limit == 3
        for name in ("default", "other"):
            assert await refused(quotas.set_class(name, {"zebras": 1})) == "Bad key(s) in quota set: zebras"
        await quotas.set_class("other", {"volumes": 6})
        assert (await quotas.of_class("other"))["volumes"] == 6 and (await quotas.defaults())["volumes"] == 5

    ledger(control, story, quota_defaults={"volumes": 4})


def test_a_refusal_is_one_of_the_quota(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.volumes.quotas.set(PROJECT, {"volumes": 0})
        with pytest.raises(Refused) as why:
            await charge(here, volumes=1)
        assert why.value.code == "over_quota" and why.value.message.startswith("VolumeLimitExceeded: ")

    ledger(control, story)
