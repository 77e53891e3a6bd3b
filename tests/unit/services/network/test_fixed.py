"""Which addresses a port gets for which wish, and what becomes of them when it goes."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.schema.tables.network import fixed_ips, free_ranges
from kilonova.services.network.fixed import subnet_of
from tests.unit.services.network.bench import Bench, Kind, addresses, refusal

MAC = "fa:16:3e:01:02:03"
OWN = "2001:db8:0:2:f816:3eff:fe01:203"  # what a device with this MAC gives itself
SLAAC = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}


async def two_subnets(bench: Bench) -> tuple[Any, dict[str, str]]:
    """A network with a small IPv4 subnet and an automatic one; the ids of these."""
    network = await bench.one("network")
    pools = [{"start": "10.0.0.2", "end": "10.0.0.13"}]
    four = await bench.one("subnet", network_id=network["id"], cidr="10.0.0.0/28", allocation_pools=pools)
    auto = await bench.one("subnet", network_id=network["id"], cidr="2001:db8:0:2::/64", **SLAAC)
    return network, {"four": four["id"], "auto": auto["id"]}


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (None, ["10.0.0.2", OWN]),
        ([], []),
        ([{"subnet_id": "four"}], ["10.0.0.2"]),
        ([{"subnet_id": "four", "ip_address": ""}], ["10.0.0.2"]),
        ([{"subnet_id": "four", "ip_address": "10.0.0.9"}], ["10.0.0.9"]),
        ([{"ip_address": "10.0.0.14"}], ["10.0.0.14"]),
        ([{"ip_address": "10.0.0.9"}, {"subnet_id": "four"}], ["10.0.0.9", "10.0.0.2"]),
        ([{"ip_address": f"10.0.0.{last}"} for last in range(2, 7)], [f"10.0.0.{last}" for last in range(2, 7)]),
        ([{"ip_address": f"10.0.0.{last}"} for last in range(2, 8)], "invalid_input"),
        ([{"ip_address": "10.0.0.9"}, {"ip_address": "10.0.0.9"}], "address_in_use"),
        ([{"subnet_id": "auto"}], [OWN]),
        ([{"subnet_id": "auto", "ip_address": OWN}], [OWN]),
        ([{"ip_address": OWN}], [OWN]),
        ([{"ip_address": "2001:db8:0:2::7"}], "invalid_input"),
        ([{"subnet_id": "auto"}, {"subnet_id": "auto"}], "address_in_use"),
        ([{}], "invalid_input"),
        ([{"ip_address": "nonsense"}], "invalid_input"),
        ([{"subnet_id": "another"}], "invalid_input"),
        ([{"subnet_id": "four", "ip_address": OWN}], "invalid_ip_for_subnet"),
        ([{"subnet_id": "four", "ip_address": "10.0.0.15"}], "invalid_ip_for_subnet"),
        ([{"subnet_id": "four", "ip_address": "::a00:9"}], "invalid_ip_for_subnet"),
        ([{"ip_address": "::a00:9"}], "invalid_ip_for_network"),
        ([{"ip_address": "10.0.0.0"}], "invalid_ip_for_network"),
        ([{"ip_address": "10.0.0.1"}], "invalid_ip_for_subnet"),
        ([{"ip_address": "10.0.0.14"}, {"ip_address": "2001:db8:0:2::1"}], "invalid_input"),
    ],
)
def test_a_wish_for_addresses(bench: Kind, wish: list[dict[str, str]] | None, expected: list[str] | str) -> None:
    async def story(bench: Bench) -> None:
        network, ids = await two_subnets(bench)
        named = [{**one, **({"subnet_id": ids.get(one["subnet_id"], "?")} if "subnet_id" in one else {})}
                 for one in wish or ()]  # fmt: skip
        asked = bench.port(network, mac_address=MAC, **({} if wish is None else {"fixed_ips": named}))
        if isinstance(expected, str):
            assert await refusal(asked) == expected
            assert not await bench.rows(fixed_ips)
        else:
            port = await asked
            assert addresses(port) == expected
            assert [row["position"] for row in await bench.rows(fixed_ips)] == list(range(len(expected)))
            await bench.net.ports.delete(None, port["id"])
            assert not await bench.rows(fixed_ips)
        free = [(row["subnet_id"], row["first"], row["last"]) for row in await bench.rows(free_ranges)]
        assert free == [(ids["four"], "0a000002", "0a00000d")], "as before; automatic addresses are no pool's"

    bench.run(story)


def test_the_same_addresses_in_two_networks_have_nothing_to_do_with_each_other(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        (one, _), (other, _) = [await bench.network("10.0.0.0/29") for _ in range(2)]
        neighbour = await bench.port(other, fixed_ips=[{"ip_address": "10.0.0.3"}])
        for wish in ({}, {"fixed_ips": [{"ip_address": "10.0.0.5"}]}):
            kept, going = await bench.port(one, **wish), await bench.port(other, **wish)
            assert addresses(kept) == addresses(going)
            await bench.net.ports.delete(None, going["id"])
            assert addresses(await bench.net.ports.show(None, kept["id"])) == addresses(kept)
            assert (await bench.net.ports.show(None, neighbour["id"]))["fixed_ips"] == neighbour["fixed_ips"]
        free = {(row["first"], row["last"]) for row in await bench.rows(free_ranges)}
        assert free == {
            *(("0a000003", "0a000004"), ("0a000006", "0a000006")),
            *(("0a000002", "0a000002"), ("0a000004", "0a000006")),
        }

    bench.run(story)


def test_a_subnet_without_a_gateway_keeps_nothing_from_ports(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        subnet = await bench.one("subnet", network_id=network["id"], cidr="10.0.0.0/29", gateway_ip=None)
        port = await bench.port(network, fixed_ips=[{"subnet_id": subnet["id"]}, {"ip_address": "10.0.0.6"}])
        assert addresses(port) == ["10.0.0.1", "10.0.0.6"]

    bench.run(story)


def test_a_router_has_the_gateways_address_of_an_automatic_subnet(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        _, ids = await two_subnets(bench)
        router = await bench.one("router")
        await bench.net.interfaces.add(None, router["id"], subnet_id=ids["auto"])
        assert [row["address"] for row in await bench.rows(fixed_ips)] == ["2001:db8:0:2::1"]

    bench.run(story)


def test_a_full_subnet_is_named(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, full = await bench.network("10.0.0.0/30")
        await bench.port(network)
        assert await refusal(bench.port(network)) == "no_more_addresses"
        other = await bench.one("subnet", network_id=network["id"], cidr="10.0.1.0/30")
        assert await refusal(bench.port(network, fixed_ips=[{"subnet_id": full["id"]}])) == "no_more_addresses"
        assert addresses(await bench.port(network, fixed_ips=[{"subnet_id": other["id"]}])) == ["10.0.1.2"]

    bench.run(story)


def test_a_subnet_that_is_gone_is_not_found(bench: Kind) -> None:
    """It may go while a request waits for the lock of its network."""

    async def story(bench: Bench) -> None:
        await bench.network()
        assert await refusal(bench.store.read(lambda tx: subnet_of(tx, "gone"))) == "subnet_not_found"

    bench.run(story)
