"""What a project's own lock guards: its quota and its security groups."""

from __future__ import annotations

import asyncio

from kilonova.domain.errors import Refused
from kilonova.store.tables.network import port_groups, security_groups
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind


def test_a_quota_holds_however_many_ask_at_once(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        nets = [bench.again(quota_defaults={"network": 5}) for _ in range(4)]
        asked = [nets[number % 4].networks.create(None, [{"project_id": PROJECT}]) for number in range(20)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        refused = [error for error in told if isinstance(error, BaseException)]
        assert len(refused) == 15
        assert all(isinstance(error, Refused) and error.code == "over_quota" for error in refused), refused
        assert len(await bench.net.networks.all(None)) == 5
        await nets[0].networks.create(None, [{"project_id": OTHER}])  # the others have their own

    both.run(story)


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
