"""Quotas: what counts against which, and what a limit of 0 and of -1 means."""

from __future__ import annotations

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.network.quotas import DEFAULTS
from kilonova.world import Tx
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, refusal


def test_limits_are_the_configured_ones_until_somebody_sets_others(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        bench.net = bench.again(quota_defaults={"router": 3})
        quotas, usual = bench.net.quotas, {**DEFAULTS, "router": 3}
        assert await quotas.show(PROJECT) == usual and await quotas.all() == {}
        await quotas.set(PROJECT, {"port": 7, "network": -1})
        await quotas.set(OTHER, {"port": 8})
        await quotas.set(PROJECT, {"port": 9})
        assert await quotas.show(PROJECT) == {**usual, "port": 9, "network": -1}
        assert await quotas.show(OTHER) == {**usual, "port": 8}
        assert await quotas.all() == {PROJECT: {**usual, "port": 9, "network": -1}, OTHER: {**usual, "port": 8}}

    bench.run(story)


@pytest.mark.parametrize(
    ("limit", "count", "fits"),
    [(-1, 1000, True), (0, 1, False), (1, 1, False), (2, 1, False), (3, 1, True), (3, 2, False), (4, 2, True)],
)
def test_what_fits_beside_two_that_are_there(bench: Kind, limit: int, count: int, fits: bool) -> None:
    async def story(bench: Bench) -> None:
        quotas = bench.net.quotas
        for project in (PROJECT, PROJECT, OTHER, OTHER, OTHER):
            await bench.one("router", project)
        await quotas.set(PROJECT, {"router": limit})

        async def charge(tx: Tx) -> None:
            await quotas.charge(tx, PROJECT, "router", count)

        if fits:
            await bench.store.write(charge)
        else:
            with pytest.raises(Refused, match=f"resources: .'router'.. {limit} are allowed") as why:
                await bench.store.write(charge)
            assert why.value.code == "over_quota"
        room = await bench.store.read(lambda tx: quotas.room(tx, PROJECT, "router", 5))
        assert room == (5 if limit < 0 else max(0, limit - 2))

    bench.run(story)


def test_the_usage_of_a_project(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        await bench.port(network)
        for project in (PROJECT, OTHER):
            await bench.one("router", project)
        used = {"network": 1, "subnet": 1, "port": 1, "router": 1, "security_group": 1, "security_group_rule": 4}
        assert await bench.net.quotas.usage(PROJECT) == {**dict.fromkeys(DEFAULTS, 0), **used}
        assert await bench.net.quotas.usage(OTHER) == {**dict.fromkeys(DEFAULTS, 0), "router": 1}

    bench.run(story)


def test_a_limit_below_the_usage_is_refused_where_that_is_checked(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        for _ in range(2):
            await bench.one("router")
        quotas = bench.net.quotas
        asked = quotas.set(PROJECT, {"port": 5, "router": 1}, check=True)
        assert await refusal(asked) == "invalid_quota"
        assert await quotas.show(PROJECT) == DEFAULTS, "all of it or nothing"
        for limit in (2, -1):
            await quotas.set(PROJECT, {"router": limit}, check=True)
            assert (await quotas.show(PROJECT))["router"] == limit
        await quotas.set(PROJECT, {"router": 1})
        assert (await quotas.show(PROJECT))["router"] == 1

    bench.run(story)
