"""Floating ips: their address, the port that they stand for, and through whose router they go: their project's, or the
one of whom the subnet is; never a stranger's."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.network import fixed_ips, ports
from tests.unit.services.network.bench import ADMINS, OTHER, PROJECT, Bench, Kind, refusal

STRANGER = "project-c"


async def _world(bench: Bench) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """An external network, and one of the administrators that everybody may use, with its subnet."""
    external, _ = await bench.network("203.0.113.0/24", ADMINS, **{"router:external": True})
    shared, subnet = await bench.network("10.0.0.0/24", ADMINS, shared=True)
    return external, shared, subnet


async def _router(bench: Bench, project: str, external: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    gateway = {"network_id": external["id"]}
    router = await bench.one("router", project, external_gateway_info=gateway)
    port = await bench.port(shared, project)
    await bench.net.interfaces.add(project, router["id"], port_id=port["id"])
    return dict(router)


def test_a_strangers_router_is_not_used(both: Kind) -> None:
    """Else the stranger could neither take its interface away nor delete it."""

    async def story(bench: Bench) -> None:
        external, shared, _ = await _world(bench)
        strange = await _router(bench, STRANGER, external, shared)
        port = await bench.port(shared, PROJECT)
        wish = {"floating_network_id": external["id"], "port_id": port["id"]}
        assert await refusal(bench.one("floatingip", PROJECT, **wish)) == "external_network_unreachable"
        idle = await bench.one("floatingip", PROJECT, floating_network_id=external["id"])
        change = bench.net.nouns["floatingip"].update(PROJECT, idle["id"], {"port_id": port["id"]})
        assert await refusal(change) == "external_network_unreachable"
        owners = await _router(bench, ADMINS, external, shared)
        assert (await bench.one("floatingip", PROJECT, **wish))["router_id"] == owners["id"]
        own = await _router(bench, OTHER, external, shared)
        theirs = await bench.port(shared, OTHER)
        made = await bench.one("floatingip", OTHER, floating_network_id=external["id"], port_id=theirs["id"])
        assert made["router_id"] == own["id"], "its own before the owner's"
        assert strange["id"] not in (owners["id"], own["id"])

    both.run(story)


def test_the_next_subnet_when_the_first_is_full(both: Kind) -> None:
    """Of an external network with several; when all are full, that is the answer."""

    async def story(bench: Bench) -> None:
        external, first = await bench.network("203.0.113.0/29", ADMINS, **{"router:external": True})
        second = await bench.one("subnet", ADMINS, network_id=external["id"], cidr="198.51.100.0/29")
        wish = {"floating_network_id": external["id"]}
        made = [(await bench.one("floatingip", PROJECT, **wish))["floating_ip_address"] for _ in range(10)]
        assert [address.rpartition(".")[0] for address in made] == ["203.0.113"] * 5 + ["198.51.100"] * 5
        assert len({*made}) == 10 and first["id"] != second["id"]
        assert await refusal(bench.one("floatingip", PROJECT, **wish)) == "no_more_addresses"

    both.run(story)


class Cloud:
    """A router between an external network and a port with two addresses."""

    external: dict[str, Any]
    inside: dict[str, Any]
    subnet: dict[str, Any]
    router: dict[str, Any]
    port: dict[str, Any]

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def build(self) -> Cloud:
        bench = self.bench
        self.external, _ = await bench.network("203.0.113.0/24", ADMINS, **{"router:external": True})
        self.inside, self.subnet = await bench.network("10.0.0.0/24")
        self.router = await bench.one("router", external_gateway_info={"network_id": self.external["id"]})
        await bench.net.interfaces.add(None, self.router["id"], subnet_id=self.subnet["id"])
        two = [{"ip_address": "10.0.0.7"}, {"ip_address": "10.0.0.8"}]
        self.port = await bench.port(self.inside, fixed_ips=two)
        return self

    async def make(self, **wish: Any) -> dict[str, Any]:
        return dict(await self.bench.one("floatingip", viewer=PROJECT, floating_network_id=self.external["id"], **wish))

    async def change(self, floating: dict[str, Any], **wish: Any) -> dict[str, Any]:
        return dict(await self.bench.net.floating_ips.update(PROJECT, floating["id"], wish))


def ends(floating: dict[str, Any]) -> tuple[Any, ...]:
    return floating["port_id"], floating["fixed_ip_address"], floating["status"]


def test_a_floating_ip_stands_for_one_address_of_a_port(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        port, single = cloud.port["id"], (await bench.port(cloud.inside))["id"]
        named = {"dns_name": "web", "dns_domain": "example.org.", "description": "front"}
        first = await cloud.make(port_id=port, fixed_ip_address="10.0.0.8", **named)
        assert {name: first[name] for name in named} == named
        assert (ends(first), first["router_id"]) == ((port, "10.0.0.8", "ACTIVE"), cloud.router["id"])
        plain = await cloud.make(port_id=single)
        assert (plain["dns_name"], plain["dns_domain"], plain["fixed_ip_address"]) == ("", "", "10.0.0.2")
        assert ends(await cloud.make()) == (None, None, "DOWN")
        taken = {"port_id": port, "fixed_ip_address": "10.0.0.8"}
        assert await refusal(cloud.make(**taken)) == "floating_ip_port_in_use"
        assert ends(await cloud.change(first, **taken)) == (port, "10.0.0.8", "ACTIVE"), "it has it itself"
        beside = await cloud.make(port_id=port, fixed_ip_address="10.0.0.7")
        assert ends(beside) == (port, "10.0.0.7", "ACTIVE")
        await bench.net.floating_ips.delete(None, beside["id"])
        await bench.net.floating_ips.delete(None, first["id"])
        assert ends(await cloud.change(plain, **taken)) == (port, "10.0.0.8", "ACTIVE")
        assert ends(await cloud.change(plain, fixed_ip_address="10.0.0.7")) == (port, "10.0.0.7", "ACTIVE")
        assert ends(await cloud.change(plain, **taken)) == (port, "10.0.0.8", "ACTIVE")
        assert ends(await cloud.change(plain, description="only that")) == (port, "10.0.0.8", "ACTIVE")
        assert ends(await cloud.change(plain, port_id=single)) == (single, "10.0.0.2", "ACTIVE")
        assert ends(await cloud.change(plain, fixed_ip_address="10.0.0.2")) == (single, "10.0.0.2", "ACTIVE")
        assert ends(await cloud.change(plain, fixed_ip_address=None)) == (single, "10.0.0.2", "ACTIVE")
        assert ends(await cloud.change(plain, port_id=None)) == (None, None, "DOWN")
        assert (await cloud.change(plain, dns_name="later"))["dns_name"] == "later"

    bench.run(story)


def test_the_same_address_behind_another_router_is_another_one(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        clouds = [await Cloud(bench).build() for _ in range(2)]
        for cloud in clouds:
            made = await cloud.make(port_id=cloud.port["id"], fixed_ip_address="10.0.0.7")
            assert made["router_id"] == cloud.router["id"]

    bench.run(story)


def test_what_no_floating_ip_can_stand_for(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        six = await bench.one("subnet", network_id=cloud.inside["id"], cidr="2001:db8::/64")
        only_six = await bench.port(cloud.inside, fixed_ips=[{"subnet_id": six["id"]}])
        foreign = await bench.port((await bench.network(project=OTHER))[0], OTHER)
        own, two = {"floating_network_id": cloud.external["id"]}, {"port_id": cloud.port["id"]}
        for wish, code in (
            ({"floating_network_id": cloud.inside["id"]}, "bad_request"),
            ({"floating_network_id": "none"}, "network_not_found"),
            ({**own, **two}, "bad_request"),
            ({**own, **two, "fixed_ip_address": "10.0.0.9"}, "bad_request"),
            ({**own, **two, "fixed_ip_address": "nonsense"}, "invalid_input"),
            ({**own, "fixed_ip_address": "10.0.0.7"}, "bad_request"),
            ({**own, "port_id": only_six["id"]}, "bad_request"),
            ({**own, "port_id": foreign["id"]}, "port_not_found"),
        ):
            assert await refusal(bench.one("floatingip", viewer=PROJECT, **wish)) == code, wish
        assert not await bench.net.floating_ips.all(None)
        for wish, what in ((only_six, "at all"), ({**cloud.port, "fixed_ip_address": "10.0.0.9"}, "10.0.0.9")):
            asked = cloud.make(port_id=wish["id"], fixed_ip_address=wish.get("fixed_ip_address"))
            with pytest.raises(Refused, match=f"has no fixed IPv4 address {what}."):
                await asked

    bench.run(story)


def test_only_a_router_between_the_two_networks_is_used(bench: Kind) -> None:
    """Neither one without a leg in the subnet, nor one with its gateway elsewhere, however its ports look."""

    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        elsewhere, _ = await bench.network("198.51.100.0/24", ADMINS, **{"router:external": True})
        lonely, subnet = await bench.network("10.5.0.0/24")
        port = await bench.port(lonely, device_id=cloud.router["id"])  # only says so
        assert await refusal(cloud.make(port_id=port["id"])) == "external_network_unreachable"
        other = await bench.one("router", external_gateway_info={"network_id": elsewhere["id"]})
        await bench.net.interfaces.add(None, other["id"], subnet_id=subnet["id"])
        free = await bench.port(lonely)
        assert await refusal(cloud.make(port_id=free["id"])) == "external_network_unreachable"
        through = await bench.one("floatingip", floating_network_id=elsewhere["id"], port_id=free["id"])
        assert through["router_id"] == other["id"]

    bench.run(story)


def test_the_address_is_one_of_ipv4_where_the_wish_says(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        external = await bench.one("network", ADMINS, **{"router:external": True})
        wish = {"floating_network_id": external["id"]}
        assert await refusal(bench.one("floatingip", **wish)) == "bad_request"
        six = await bench.one("subnet", ADMINS, network_id=external["id"], cidr="2001:db8::/64")
        assert await refusal(bench.one("floatingip", **wish)) == "bad_request"
        subnets = [await bench.one("subnet", ADMINS, network_id=external["id"], cidr=f"203.0.{n}.0/24") for n in (1, 2)]
        for more, expected in (
            ({}, "203.0.1.2"),
            ({"subnet_id": subnets[1]["id"]}, "203.0.2.2"),
            ({"floating_ip_address": "203.0.2.77"}, "203.0.2.77"),
            ({"floating_ip_address": "203.0.1.77", "subnet_id": subnets[0]["id"]}, "203.0.1.77"),
        ):
            made = await bench.one("floatingip", **wish, **more)
            assert made["floating_ip_address"] == expected
        for more, code in (
            ({"floating_ip_address": "203.0.2.77"}, "address_in_use"),
            ({"floating_ip_address": "203.0.1.78", "subnet_id": subnets[1]["id"]}, "invalid_ip_for_subnet"),
            ({"floating_ip_address": "2001:db8::7"}, "bad_request"),
            ({"subnet_id": six["id"]}, "bad_request"),
        ):
            assert await refusal(bench.one("floatingip", **wish, **more)) == code, more
        assert len(await bench.rows(ports)) == 4, "a refusal leaves nothing"
        for row in await bench.rows(ports):
            assert (row["device_owner"], row["project_id"], row["status"]) == ("network:floatingip", "", "ACTIVE")
        await bench.net.floating_ips.delete(None, made["id"])
        assert "203.0.1.77" not in {row["address"] for row in await bench.rows(fixed_ips)}
        assert len(await bench.rows(ports)) == 3

    bench.run(story)
