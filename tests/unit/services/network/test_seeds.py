"""The networks that a new cloud begins with."""

from __future__ import annotations

import asyncio

import pytest

from kilonova.domain.errors import CommitFailed
from tests.unit.services.network.bench import ADMINS, OTHER, Bench, Kind, addresses


def test_they_are_made_once_even_by_several_processes(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        await asyncio.gather(*(bench.again().prepare(owner=ADMINS) for _ in range(4)))
        shared, public = sorted(await bench.net.networks.all(OTHER), key=lambda one: one["name"], reverse=True)
        assert (shared["name"], shared["shared"], shared["router:external"]) == ("shared", True, False)
        assert (public["name"], public["shared"], public["router:external"]) == ("public", False, True)
        assert {shared["project_id"], public["project_id"]} == {ADMINS}
        subnets = {one["name"]: one for one in await bench.net.subnets.all(None)}
        assert (subnets["shared-subnet"]["cidr"], subnets["shared-subnet"]["enable_dhcp"]) == ("10.10.0.0/16", True)
        assert (subnets["public-subnet"]["cidr"], subnets["public-subnet"]["enable_dhcp"]) == ("172.24.4.0/24", False)
        assert addresses(await bench.port(shared, OTHER)) == ["10.10.0.2"]
        await bench.net.networks.delete(None, public["id"])
        await bench.again().prepare(owner=ADMINS)
        assert [one["name"] for one in await bench.net.networks.all(None)] == ["shared"], "what was deleted stays so"

    both.run(story)


def test_a_crash_at_the_commit_leaves_nothing_and_the_next_start_makes_all(bench: Kind) -> None:
    class Crash:
        def before_commit(self, name: str) -> None:
            raise CommitFailed("crash")

        def after_commit(self, name: str) -> None: ...

    async def story(bench: Bench) -> None:
        bench.store.faults = Crash()
        with pytest.raises(CommitFailed):
            await bench.net.prepare(owner=ADMINS)
        bench.store.faults = None
        assert await bench.net.networks.all(None) == []
        await bench.net.prepare(owner=ADMINS)
        assert len(await bench.net.networks.all(None)) == 2

    bench.run(story)
