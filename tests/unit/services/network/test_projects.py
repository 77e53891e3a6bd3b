"""What a project's own lock guards: its quota and its security groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.network import port_groups, security_groups
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind

NOUNS = ["network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule"]


@pytest.mark.parametrize("noun", NOUNS)
def test_a_quota_holds_however_many_ask_at_once(both: Kind, noun: str) -> None:
    async def story(bench: Bench) -> None:
        wish = await _wish(bench, noun)
        there = {row["id"] for row in await bench.net.nouns[noun].all(None) if row["project_id"] == PROJECT}
        nets = [bench.again(quota_defaults={noun: len(there) + 5}) for _ in range(4)]

        def one(number: int) -> dict[str, Any]:
            return {"project_id": PROJECT, **{key: value(number) for key, value in wish.items()}}

        asked = [nets[number % 4].nouns[noun].create(None, [one(number)]) for number in range(20)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        refused = [error for error in told if isinstance(error, BaseException)]
        assert len(refused) == 15
        assert all(isinstance(error, Refused) and error.code == "over_quota" for error in refused), refused
        now = [row for row in await bench.net.nouns[noun].all(None) if row["project_id"] == PROJECT]
        assert len(now) == len(there) + 5
        await nets[0].networks.create(None, [{"project_id": OTHER}])  # the others have their own

    both.run(story)


async def _wish(bench: Bench, noun: str) -> dict[str, Callable[[int], Any]]:
    """What the nth of them needs besides its project."""
    if noun in ("network", "router", "security_group"):
        return {}
    if noun == "security_group_rule":
        group = await bench.one("security_group")
        return {
            "security_group_id": lambda n: group["id"],
            "direction": lambda n: "ingress",
            "protocol": lambda n: "tcp",
            "port_range_min": lambda n: n + 1,
            "port_range_max": lambda n: n + 1,
        }
    external = {"router:external": True} if noun == "floatingip" else {}
    network, _ = await bench.network("10.0.0.0/20", OTHER if noun == "floatingip" else PROJECT, **external)
    if noun == "floatingip":
        return {"floating_network_id": lambda n: network["id"]}
    await bench.net.groups.ensure_default(PROJECT)
    more: dict[str, Callable[[int], Any]] = {"cidr": lambda n: f"10.1.{n}.0/24"} if noun == "subnet" else {}
    return {"network_id": lambda n: network["id"], **more}


def test_the_default_group_is_made_once(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        wish = {"project_id": PROJECT, "network_id": network["id"]}
        asked = [bench.again().groups.ensure_default(PROJECT) for _ in range(5)]
        ports = [bench.again().ports.create(None, [wish]) for _ in range(5)]
        told = await asyncio.gather(*asked, *ports)
        (group,) = await bench.rows(security_groups)
        assert set(told[:5]) == {group["id"]}
        assert all(port[0]["security_groups"] == [group["id"]] for port in told[5:])  # type: ignore[index]

    both.run(story)


def test_a_group_never_goes_while_a_port_begins_to_use_it(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        outcomes = set()
        for _ in range(8):
            group = await bench.one("security_group", name="g")
            wish = {"project_id": PROJECT, "network_id": network["id"], "security_groups": [group["id"]]}
            made, gone = await asyncio.gather(
                bench.again().ports.create(None, [wish]),
                bench.again().groups.delete(None, group["id"]),
                return_exceptions=True,
            )
            outcomes.add((isinstance(made, Refused), isinstance(gone, Refused)))
            if not isinstance(made, BaseException):
                await bench.net.ports.delete(None, made[0]["id"])
            if isinstance(gone, Refused):
                await bench.net.groups.delete(None, group["id"])
            assert not await bench.rows(port_groups)
        assert outcomes <= {(True, False), (False, True)}, "one of the two always gives way"

    both.run(story)
