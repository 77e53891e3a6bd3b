"""Subnets: what one is unless the request says otherwise, what does not go together, and what keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables import network as tables
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, addresses, refusal

SLAAC = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
STATEFUL = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
USUAL = {
    "name": "",
    "description": "",
    "ip_version": 4,
    "gateway_ip": "10.0.0.1",
    "enable_dhcp": True,
    "allocation_pools": [{"start": "10.0.0.2", "end": "10.0.0.254"}],
    "dns_nameservers": [],
    "host_routes": [],
    "ipv6_ra_mode": None,
    "ipv6_address_mode": None,
}
SIX = {"ip_version": 6, "gateway_ip": "2001:db8::1"}
SIX |= {"allocation_pools": [{"start": "2001:db8::2", "end": "2001:db8::ffff:ffff:ffff:ffff"}]}


def pool(first: int, last: int) -> dict[str, Any]:
    return {"allocation_pools": [{"start": f"10.0.0.{first}", "end": f"10.0.0.{last}"}]}


@pytest.mark.parametrize(
    ("wish", "differs"),
    [
        ({"cidr": "10.0.0.0/24"}, {}),
        ({"cidr": "10.0.0.77/24", "ip_version": 4}, {"cidr": "10.0.0.0/24"}),
        ({"cidr": "10.0.0.0/24", "name": "a", "description": "b", "enable_dhcp": False}, {}),
        ({"cidr": "10.0.0.0/24", "gateway_ip": None}, pool(1, 254)),
        ({"cidr": "10.0.0.0/24", "gateway_ip": ""}, {**pool(1, 254), "gateway_ip": None}),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.254"}, pool(1, 253)),
        ({"cidr": "10.0.0.0/24", **pool(5, 9)}, {}),
        ({"cidr": "10.0.0.0/24", "allocation_pools": []}, {}),
        ({"cidr": "10.0.0.0/24", "dns_nameservers": ["9.9.9.9", "1.1.1.1", "9.9.9.9"]},
         {"dns_nameservers": ["9.9.9.9", "1.1.1.1"]}),
        ({"cidr": "10.0.0.0/24", "host_routes": [{"destination": "10.9.0.7/16", "nexthop": "10.0.0.9"}]},
         {"host_routes": [{"destination": "10.9.0.0/16", "nexthop": "10.0.0.9"}]}),
        ({"cidr": "10.0.0.0/24", "dns_nameservers": None, "host_routes": None},
         {"dns_nameservers": [], "host_routes": []}),
        ({"cidr": "10.0.0.0/24", "ipv6_ra_mode": None, "ipv6_address_mode": None}, {}),
        ({"cidr": "10.0.0.0/31", "enable_dhcp": False},
         {"allocation_pools": [{"start": "10.0.0.0", "end": "10.0.0.0"}]}),
        ({"cidr": "2001:db8::/64"}, SIX),
        ({"cidr": "2001:db8::/64", "gateway_ip": "fe80::1"},
         {**SIX, "allocation_pools": [{"start": "2001:db8::1", "end": "2001:db8::ffff:ffff:ffff:ffff"}],
          "gateway_ip": "fe80::1"}),
        ({"cidr": "2001:db8::/64", **SLAAC}, SIX),
        ({"cidr": "2001:db8::/64", "ipv6_ra_mode": "slaac"}, SIX),
        ({"cidr": "2001:db8::/64", "ipv6_address_mode": "dhcpv6-stateless"}, SIX),
        ({"cidr": "2001:db8::/120", **STATEFUL},
         {**SIX, "allocation_pools": [{"start": "2001:db8::2", "end": "2001:db8::ff"}]}),
    ],
)  # fmt: skip
def test_a_subnet_is_usual_unless_the_request_says_otherwise(
    bench: Kind, wish: dict[str, Any], differs: dict[str, Any]
) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        subnet = await bench.one("subnet", network_id=network["id"], **wish)
        expected = {**USUAL, **wish, **differs}
        assert {name: subnet[name] for name in expected} == expected

    bench.run(story)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"cidr": "10.0.0.0/24", "ip_version": 6}, "invalid_input"),
        ({"cidr": "10.0.0.0"}, "invalid_input"),
        ({"cidr": "10.0.0.0/31"}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "10.0.1.1"}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "nonsense"}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "fe80::1"}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", **pool(1, 9)}, "gateway_in_pools"),
        ({"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.9", **pool(5, 9)}, "gateway_in_pools"),
        ({"cidr": "10.0.0.0/24", **pool(9, 5)}, "invalid_pool"),
        ({"cidr": "10.0.0.0/24", **pool(9, 255)}, "pool_out_of_subnet"),
        ({"cidr": "10.0.0.0/24", "dns_nameservers": ["2001:db8::1"]}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "dns_nameservers": ["nonsense"]}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "host_routes": [{"destination": "::/0", "nexthop": "10.0.0.9"}]}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "host_routes": [{"destination": "10.9.0.0/16", "nexthop": "::9"}]}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "host_routes": [{"destination": "nonsense", "nexthop": "10.0.0.9"}]}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", **SLAAC}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "ipv6_ra_mode": "slaac"}, "invalid_input"),
        ({"cidr": "10.0.0.0/24", "ipv6_address_mode": "slaac"}, "invalid_input"),
        ({"cidr": "2001:db8::/64", "enable_dhcp": False, **SLAAC}, "invalid_input"),
        ({"cidr": "2001:db8::/64", **SLAAC, "ipv6_ra_mode": "dhcpv6-stateful"}, "invalid_input"),
        ({"cidr": "2001:db8::/120", **SLAAC}, "invalid_input"),
        ({"cidr": "2001:db8::/120", "ipv6_ra_mode": "slaac"}, "invalid_input"),
        ({"cidr": "2001:db8::/120", "ipv6_address_mode": "dhcpv6-stateless"}, "invalid_input"),
    ],
)
def test_what_does_not_go_together(bench: Kind, wish: dict[str, Any], code: str) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        assert await refusal(bench.one("subnet", network_id=network["id"], **wish)) == code
        assert not await bench.rows(tables.subnets) and not await bench.rows(tables.free_ranges)

    bench.run(story)


def test_a_mode_that_does_not_fit_is_named(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        for mode in ({"ipv6_ra_mode": "slaac"}, {"ipv6_address_mode": "slaac"}, SLAAC):
            with pytest.raises(Refused, match="'slaac' needs a prefix length of 64, not 120"):
                await bench.one("subnet", network_id=network["id"], cidr="2001:db8::/120", **mode)

    bench.run(story)


@pytest.mark.parametrize(("cidr", "least"), [("10.0.0.0/24", 68), ("2001:db8::/64", 1280)])
def test_a_network_with_a_small_mtu_has_no_such_subnet(bench: Kind, cidr: str, least: int) -> None:
    async def story(bench: Bench) -> None:
        small, enough = [await bench.one("network", mtu=mtu) for mtu in (least - 1, least)]
        assert await refusal(bench.one("subnet", network_id=small["id"], cidr=cidr)) == "mtu_conflict"
        await bench.one("subnet", network_id=enough["id"], cidr=cidr)

    bench.run(story)


def test_subnets_of_a_network_do_not_overlap(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network("10.0.0.0/24")
        beside = await bench.one("network")
        for cidr in ("10.0.0.0/24", "10.0.0.128/25", "10.0.0.0/8"):
            asked = bench.one("subnet", network_id=network["id"], cidr=cidr)
            assert await refusal(asked) == "subnet_overlaps", cidr
        await bench.one("subnet", network_id=network["id"], cidr="10.0.1.0/24")
        await bench.one("subnet", network_id=network["id"], cidr="1::a00:0/120")
        await bench.one("subnet", network_id=beside["id"], cidr="10.0.0.0/24")

    bench.run(story)


def test_a_subnet_is_made_in_a_network_that_its_project_sees(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        theirs = await bench.one("network", OTHER)
        for network_id in (theirs["id"], "none"):
            asked = bench.one("subnet", viewer=PROJECT, network_id=network_id, cidr="10.0.0.0/24")
            assert await refusal(asked) == "network_not_found"
        assert (await bench.one("subnet", network_id=theirs["id"], cidr="10.0.0.0/24"))["network_id"] == theirs["id"]

    bench.run(story)


def test_what_a_subnet_may_become(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        subnet = await bench.one("subnet", network_id=network["id"], cidr="10.0.0.0/24", **pool(5, 9))
        loopback = await bench.one("subnet", network_id=network["id"], cidr="127.0.0.0/24", enable_dhcp=False)

        async def change(**wish: Any) -> Any:
            return await bench.net.subnets.update(None, subnet["id"], wish)

        update = bench.net.subnets.update
        assert await refusal(update(None, loopback["id"], {"enable_dhcp": True})) == "invalid_input"
        assert (await update(None, loopback["id"], {"enable_dhcp": False, "name": "x"}))["name"] == "x"
        assert (await change(enable_dhcp=True))["enable_dhcp"] is True
        assert (await change(name="a"))["allocation_pools"] == pool(5, 9)["allocation_pools"]
        assert (await change(gateway_ip="10.0.0.4"))["gateway_ip"] == "10.0.0.4"
        for wish, code in (
            ({"gateway_ip": "10.0.0.7"}, "gateway_in_pools"),
            ({"gateway_ip": "10.0.1.7"}, "invalid_input"),
            ({"gateway_ip": "::7"}, "invalid_input"),
            (pool(2, 9), "gateway_in_pools"),
            (pool(9, 2), "invalid_pool"),
            ({"dns_nameservers": ["::1"]}, "invalid_input"),
            ({"host_routes": [{"destination": "::/0", "nexthop": "::1"}]}, "invalid_input"),
        ):
            assert await refusal(change(**wish)) == code, wish
        assert (await change(gateway_ip="10.0.0.2", **pool(3, 9)))["gateway_ip"] == "10.0.0.2"
        assert (await change(gateway_ip=None))["gateway_ip"] is None
        assert (await change(**pool(1, 9)))["allocation_pools"] == pool(1, 9)["allocation_pools"]
        shown = await change(dns_nameservers=["9.9.9.9", "9.9.9.9"])
        assert shown["dns_nameservers"] == ["9.9.9.9"]
        assert (await change(description="b"))["dns_nameservers"] == ["9.9.9.9"]
        assert await refusal(update(None, "none", {"name": "x"})) == "subnet_not_found"

    bench.run(story)


def test_new_pools_of_one_subnet_leave_those_of_others(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network("10.0.0.0/24")
        beside, _ = await bench.network("10.0.0.0/24")
        auto = await bench.one("subnet", network_id=network["id"], cidr="2001:db8::/64", **SLAAC)
        assert addresses(await bench.port(beside)) == ["10.0.0.2"]
        await bench.net.subnets.update(None, subnet["id"], pool(2, 4))
        whole = {"allocation_pools": [{"start": "2001:db8::5", "end": "2001:db8::9"}]}
        await bench.net.subnets.update(None, auto["id"], whole)
        assert addresses(await bench.port(beside)) == ["10.0.0.3"]
        free = {row["subnet_id"]: (row["first"], row["last"]) for row in await bench.rows(tables.free_ranges)}
        assert (free[subnet["id"]], auto["id"] in free) == (("0a000002", "0a000004"), False)
        assert len(await bench.rows(tables.free_ranges)) == 2

    bench.run(story)


def test_the_gateway_of_a_router_stays(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network("10.0.0.0/24")
        _, other = await bench.network("10.0.0.0/24")
        router = await bench.one("router")
        update = bench.net.subnets.update
        await update(None, subnet["id"], pool(9, 20))
        await bench.port(network)
        await bench.port(network, fixed_ips=[{"ip_address": "10.0.0.7"}])
        leg = await bench.port(network, fixed_ips=[{"ip_address": "10.0.0.5"}])
        await bench.net.interfaces.add(None, router["id"], port_id=leg["id"])
        assert (await update(None, subnet["id"], {"gateway_ip": "10.0.0.7"}))["gateway_ip"] == "10.0.0.7"
        assert (await update(None, subnet["id"], {"gateway_ip": "10.0.0.1"}))["gateway_ip"] == "10.0.0.1"
        await bench.net.interfaces.add(None, (await bench.one("router"))["id"], subnet_id=subnet["id"])
        assert await refusal(update(None, subnet["id"], {"gateway_ip": "10.0.0.8"})) == "gateway_in_use"
        assert await refusal(update(None, subnet["id"], {"gateway_ip": None})) == "gateway_in_use"
        assert (await update(None, subnet["id"], {"gateway_ip": "10.0.0.1", "name": "x"}))["name"] == "x"
        assert (await update(None, other["id"], {"gateway_ip": None}))["gateway_ip"] is None

    bench.run(story)


async def whole_subnet(bench: Bench, network: Any, cidr: str, **wish: Any) -> Any:
    """With DHCP's port, tagged."""
    subnet = await bench.one("subnet", network_id=network["id"], cidr=cidr, tags=["t"], **wish)
    fixed = [{"subnet_id": subnet["id"]}]
    await bench.port(network, device_owner="network:dhcp", fixed_ips=fixed, tags=["t"])
    return subnet


async def contents(bench: Bench) -> dict[str, list[Any]]:
    left = ("subnets", "ports", "fixed_ips", "free_ranges", "port_groups", "tags")
    return {name: sorted(tuple(row) for row in await bench.rows(getattr(tables, name))) for name in left}


@pytest.mark.parametrize("wish", [{"cidr": "10.1.0.0/24"}, {"cidr": "2001:db8::/64", **SLAAC}], ids=["", "automatic"])
def test_a_subnet_goes_with_dhcps_port_and_nothing_else(bench: Kind, wish: dict[str, Any]) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        await whole_subnet(bench, network, "10.0.0.0/24")
        await bench.port(network)
        before = await contents(bench)
        going = await whole_subnet(bench, network, **wish)
        await bench.net.subnets.delete(None, going["id"])
        assert await contents(bench) == before

    bench.run(story)


def test_a_subnet_stays_while_ports_have_addresses_there(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        four = await whole_subnet(bench, network, "10.0.0.0/24")
        auto = await whole_subnet(bench, network, "2001:db8::/64", **SLAAC)
        port = await bench.port(network)
        delete = bench.net.subnets.delete
        assert await refusal(delete(None, four["id"])) == "subnet_in_use"
        router = await bench.one("router")
        await bench.net.interfaces.add(None, router["id"], subnet_id=auto["id"])
        assert await refusal(delete(None, auto["id"])) == "subnet_in_use", "a router's"
        await bench.net.interfaces.remove(None, router["id"], subnet_id=auto["id"])
        await delete(None, auto["id"])
        assert addresses(await bench.net.ports.show(None, port["id"])) == ["10.0.0.3"]
        await bench.net.ports.delete(None, port["id"])
        await delete(None, four["id"])
        assert not await bench.rows(tables.fixed_ips) and not await bench.rows(tables.free_ranges)
        assert await refusal(delete(None, four["id"])) == "subnet_not_found"

    bench.run(story)
