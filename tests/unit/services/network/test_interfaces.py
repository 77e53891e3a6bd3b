"""Interfaces of routers: which subnet or port may become one, and when it may go."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.network import fixed_ips, ports, subnets
from kilonova.store import rows
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, addresses, refusal


async def second_subnet(bench: Bench, network: Any, cidr: str, **wish: Any) -> Any:
    return await bench.one("subnet", network_id=network["id"], cidr=cidr, **wish)


async def legs(bench: Bench, router: Any) -> list[list[str]]:
    """The addresses of each port of the router."""
    every = await bench.net.ports.all(None)
    return sorted(addresses(port) for port in every if port["device_id"] == router["id"])


def test_a_subnets_gateway_becomes_the_routers(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network(project=OTHER)
        router = await bench.one("router")
        joined = await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        (port,) = await bench.rows(ports)
        assert joined == {
            "id": router["id"],
            "project_id": PROJECT,
            "tenant_id": PROJECT,
            "port_id": port["id"],
            "network_id": network["id"],
            "subnet_id": subnet["id"],
            "subnet_ids": [subnet["id"]],
        }
        told = {name: port[name] for name in ("device_id", "device_owner", "status", "project_id")}
        assert told == {
            "device_id": router["id"],
            "device_owner": "network:router_interface",
            "status": "ACTIVE",
            "project_id": PROJECT,
        }
        assert await legs(bench, router) == [["10.0.0.1"]]
        assert await bench.net.interfaces.remove(None, router["id"], subnet_id=subnet["id"]) == joined
        assert not await bench.rows(ports) and not await bench.rows(fixed_ips)

    bench.run(story)


def test_what_cannot_become_an_interface(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        router = await bench.one("router")
        network, subnet = await bench.network()
        no_gateway = await second_subnet(bench, network, "10.1.0.0/24", gateway_ip=None)
        _, shared = await bench.network("10.3.0.0/24", OTHER, shared=True)
        dual = await bench.one("network")
        for cidr in ("10.5.0.0/24", "10.6.0.0/24"):
            await second_subnet(bench, dual, cidr)
        two_fours = [{"ip_address": f"10.{n}.0.9"} for n in (5, 6)]
        taken = await bench.port(network, device_id="x")
        for wish, code in (
            ({"subnet_id": "none"}, "subnet_not_found"),
            ({"subnet_id": no_gateway["id"]}, "bad_request"),
            ({"subnet_id": shared["id"]}, "bad_request"),
            ({"port_id": "none"}, "port_not_found"),
            ({"port_id": taken["id"]}, "port_in_use"),
            ({"port_id": (await bench.port(network, fixed_ips=[]))["id"]}, "bad_request"),
            ({"port_id": (await bench.port(dual, fixed_ips=two_fours))["id"]}, "bad_request"),
        ):
            assert await refusal(bench.net.interfaces.add(PROJECT, router["id"], **wish)) == code, wish
        assert await refusal(bench.net.interfaces.add(None, "none", subnet_id=subnet["id"])) == "router_not_found"
        assert not await legs(bench, router)
        await bench.net.interfaces.add(None, router["id"], subnet_id=shared["id"])  # an administrator may
        there = sum(row["project_id"] == PROJECT for row in await bench.rows(ports))
        await bench.net.quotas.set(PROJECT, {"port": there})
        assert await refusal(bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])) == "over_quota"

    bench.run(story)


@pytest.mark.parametrize("by", ["subnet", "port"])
def test_no_two_interfaces_of_a_router_overlap(bench: Kind, by: str) -> None:
    async def story(bench: Bench) -> None:
        router, outside = await bench.one("router"), await bench.network("10.9.0.0/16", **{"router:external": True})
        await bench.net.routers.update(None, router["id"], {"external_gateway_info": {"network_id": outside[0]["id"]}})

        async def add(cidr: str, subnet: Any = None) -> None:
            network = {"id": subnet["network_id"]} if subnet else await bench.one("network")
            subnet = subnet or await second_subnet(bench, network, cidr)
            wish = {"subnet_id": subnet["id"]}
            if by == "port":
                wish = {"port_id": (await bench.port(network, fixed_ips=[wish]))["id"]}
            await bench.net.interfaces.add(None, router["id"], **wish)

        first = await second_subnet(bench, await bench.one("network"), "10.0.0.0/24")
        await add("", first)
        with pytest.raises(Refused, match="already has a port on subnet"):
            await add("", first)
        assert await refusal(add("10.0.0.0/24")) == "bad_request"
        assert await refusal(add("10.0.0.0/16")) == "bad_request"
        assert await refusal(add("10.9.7.0/24")) == "bad_request", "the way out"
        await add("10.0.1.0/24")
        await add("::a00:0/120")  # the same numbers in the other version

    bench.run(story)


def test_a_port_with_an_address_of_each_version_is_one_interface(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        router = await bench.one("router")
        network, four = await bench.network()
        six = await second_subnet(bench, network, "2001:db8::/64")
        port = await bench.port(network)
        joined = await bench.net.interfaces.add(PROJECT, router["id"], port_id=port["id"])
        assert (joined["subnet_ids"], joined["subnet_id"]) == ([four["id"], six["id"]], six["id"])
        assert joined["port_id"] == port["id"] and joined["network_id"] == network["id"]
        (row,) = await bench.rows(ports)
        assert (row["device_owner"], row["status"]) == ("network:router_interface", "ACTIVE")
        left = await bench.net.interfaces.remove(PROJECT, router["id"], subnet_id=four["id"])
        assert left["subnet_ids"] == [four["id"]]
        assert await legs(bench, router) == [["2001:db8::2"]], "the port stays while it has another address"
        await bench.net.interfaces.remove(PROJECT, router["id"], port_id=port["id"])
        assert not await bench.rows(ports) and not await bench.rows(fixed_ips)

    bench.run(story)


def test_an_interface_is_removed_by_subnet_or_port_or_both(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, way_out = await bench.network("172.24.4.0/24", **{"router:external": True})
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        nets = [await bench.network(f"10.{number}.0.0/24") for number in range(4)]
        joined = [await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"]) for _, subnet in nets]
        remove = bench.net.interfaces.remove
        crossed = {"subnet_id": joined[0]["subnet_id"], "port_id": joined[1]["port_id"]}
        gateway = next(port for port in await bench.rows(ports) if port["device_owner"] == "network:router_gateway")
        for wish in (crossed, {"subnet_id": way_out["id"]}, {"port_id": gateway["id"]}, {"port_id": "none"}):
            assert await refusal(remove(None, router["id"], **wish)) == "router_interface_not_found", wish
        assert await refusal(remove(None, "none", port_id=joined[0]["port_id"])) == "router_not_found"
        await remove(None, router["id"], subnet_id=joined[0]["subnet_id"])
        await remove(None, router["id"], port_id=joined[1]["port_id"])
        await remove(None, router["id"], subnet_id=joined[2]["subnet_id"], port_id=joined[2]["port_id"])
        assert await legs(bench, router) == [["10.3.0.1"], ["172.24.4.2"]]

    bench.run(story)


def test_an_interface_stays_while_a_floating_ip_goes_through_it(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        through, beside = [
            await bench.one("router", external_gateway_info={"network_id": outside["id"]}) for _ in range(2)
        ]
        network, first = await bench.network()
        second = await second_subnet(bench, network, "10.1.0.0/24")
        for subnet in (first, second):
            await bench.net.interfaces.add(None, through["id"], subnet_id=subnet["id"])
        two = [{"subnet_id": first["id"]}, {"subnet_id": second["id"]}]
        port = await bench.port(network, fixed_ips=two)
        wish = {"floating_network_id": outside["id"], "port_id": port["id"], "fixed_ip_address": "10.0.0.2"}
        floating = await bench.one("floatingip", **wish)
        assert floating["router_id"] == through["id"]
        remove = bench.net.interfaces.remove
        asked = remove(None, through["id"], subnet_id=first["id"])
        assert await refusal(asked) == "interface_in_use_by_floating_ip"
        await remove(None, through["id"], subnet_id=second["id"])  # it stands for the port's other address
        leg = await bench.port(network, fixed_ips=[{"subnet_id": first["id"]}])
        await bench.net.interfaces.add(None, beside["id"], port_id=leg["id"])
        await remove(None, beside["id"], subnet_id=first["id"])  # it goes through the other router
        await bench.net.floating_ips.delete(None, floating["id"])
        await remove(None, through["id"], subnet_id=first["id"])

    bench.run(story)


def test_an_interface_stays_while_a_route_needs_it(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        router = await bench.one("router")
        (_, near), (_, other) = await bench.network("10.0.0.0/24"), await bench.network("10.1.0.0/24")
        for subnet in (near, other):
            await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        routes = [{"destination": "192.0.2.0/24", "nexthop": "10.0.0.9"}]
        await bench.net.routers.update(None, router["id"], {"routes": routes})
        asked = bench.net.interfaces.remove(None, router["id"], subnet_id=near["id"])
        assert await refusal(asked) == "interface_in_use_by_route"
        await bench.net.interfaces.remove(None, router["id"], subnet_id=other["id"])
        await bench.net.routers.update(None, router["id"], {"routes": []})
        await bench.net.interfaces.remove(None, router["id"], subnet_id=near["id"])

    bench.run(story)


def test_what_goes_while_an_interface_waits_for_its_network_is_noticed(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        router = await bench.one("router")
        network, subnet = await bench.network()
        port = await bench.port(network)
        add = bench.net.interfaces.add
        bench.meanwhile(lambda tx: rows.change(tx, ports, {"device_id": "a server"}, id=port["id"]), network)
        assert await refusal(add(PROJECT, router["id"], port_id=port["id"])) == "port_in_use"
        bench.meanwhile(lambda tx: rows.remove(tx, ports, id=port["id"]), network)
        assert await refusal(add(PROJECT, router["id"], port_id=port["id"])) == "port_not_found"
        bench.meanwhile(lambda tx: rows.remove(tx, subnets, id=subnet["id"]), network)
        assert await refusal(add(PROJECT, router["id"], subnet_id=subnet["id"])) == "subnet_not_found"

    bench.run(story)
