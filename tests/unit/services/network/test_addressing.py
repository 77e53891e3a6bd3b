"""Real addresses: the lowest free one, once, from the pools; given back and found again."""

from __future__ import annotations

import asyncio

from kilonova.domain.errors import Refused
from kilonova.schema.tables.network import fixed_ips, free_ranges, ports
from tests.unit.services.network.bench import PROJECT, Bench, Kind, addresses, refusal


def test_ports_get_the_lowest_free_addresses_and_give_them_back(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network("10.0.0.0/29")
        made = [await bench.port(network) for _ in range(5)]
        assert [addresses(port) for port in made] == [[f"10.0.0.{last}"] for last in (2, 3, 4, 5, 6)]
        assert await refusal(bench.port(network)) == "no_more_addresses"
        assert len(await bench.rows(ports)) == 5, "a refused create leaves nothing"
        for number in (3, 1, 2):
            await bench.net.ports.delete(None, made[number]["id"])
        assert [(row["first"], row["last"]) for row in await bench.rows(free_ranges)] == [("0a000003", "0a000005")]
        assert addresses(await bench.port(network)) == ["10.0.0.3"]
        assert subnet["gateway_ip"] == "10.0.0.1"

    both.run(story)


def test_an_address_may_be_asked_for(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network("10.0.0.0/29")
        middle = await bench.port(network, fixed_ips=[{"ip_address": "10.0.0.4"}])
        assert middle["fixed_ips"] == [{"subnet_id": subnet["id"], "ip_address": "10.0.0.4"}]
        again = bench.port(network, fixed_ips=[{"ip_address": "10.0.0.4", "subnet_id": subnet["id"]}])
        assert await refusal(again) == "address_in_use"
        others = [addresses(await bench.port(network))[0] for _ in range(4)]
        assert others == ["10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"]
        for wrong, code in {
            "10.0.0.0": "invalid_ip_for_network",
            "10.0.0.7": "invalid_ip_for_network",
            "10.0.1.4": "invalid_ip_for_network",
            "::4": "invalid_ip_for_network",
            "fe80::1%lo": "invalid_input",
        }.items():
            assert await refusal(bench.port(network, fixed_ips=[{"ip_address": wrong}])) == code, wrong
        wrong_subnet = [{"ip_address": "10.0.1.4", "subnet_id": subnet["id"]}]
        assert await refusal(bench.port(network, fixed_ips=wrong_subnet)) == "invalid_ip_for_subnet"
        assert await refusal(bench.port(network, fixed_ips=[{"subnet_id": "none"}])) == "invalid_input"
        assert addresses(await bench.port(network, fixed_ips=[])) == []
        await bench.net.ports.delete(None, middle["id"])
        assert addresses(await bench.port(network)) == ["10.0.0.4"]

    both.run(story)


def test_an_address_outside_of_the_pools_does_not_enter_them_when_it_is_given_back(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        pools = [{"start": "10.0.0.10", "end": "10.0.0.11"}]
        await bench.one("subnet", network_id=network["id"], cidr="10.0.0.0/24", allocation_pools=pools)
        outside = await bench.port(network, fixed_ips=[{"ip_address": "10.0.0.200"}])
        await bench.net.ports.delete(None, outside["id"])
        assert [addresses(await bench.port(network))[0] for _ in range(2)] == ["10.0.0.10", "10.0.0.11"]
        assert await refusal(bench.port(network)) == "no_more_addresses"

    bench.run(story)


def test_a_port_gets_one_address_of_each_version_and_its_own_of_automatic_subnets(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, four = await bench.network("10.0.0.0/30")
        six = await bench.one("subnet", network_id=network["id"], cidr="2001:db8:0:1::/64")
        modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
        auto = await bench.one("subnet", network_id=network["id"], cidr="2001:db8:0:2::/64", **modes)
        port = await bench.port(network, mac_address="fa:16:3e:01:02:03")
        assert port["fixed_ips"] == [
            {"subnet_id": four["id"], "ip_address": "10.0.0.2"},
            {"subnet_id": six["id"], "ip_address": "2001:db8:0:1::2"},
            {"subnet_id": auto["id"], "ip_address": "2001:db8:0:2:f816:3eff:fe01:203"},
        ]
        chosen = [{"subnet_id": auto["id"], "ip_address": "2001:db8:0:2::7"}]
        assert await refusal(bench.port(network, fixed_ips=chosen)) == "invalid_input"
        assert await refusal(bench.port(network)) == "no_more_addresses", "the IPv4 subnet is full"
        assert len(await bench.rows(fixed_ips)) == 3
        await bench.net.subnets.delete(None, auto["id"])  # an automatic address just ends
        assert len((await bench.net.ports.show(None, port["id"]))["fixed_ips"]) == 2
        assert await refusal(bench.net.subnets.delete(None, six["id"])) == "subnet_in_use"
        assert await refusal(bench.net.networks.delete(None, network["id"])) == "network_in_use"

    bench.run(story)


def test_the_second_subnet_serves_when_the_first_is_full(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network("10.0.0.0/30")
        await bench.one("subnet", network_id=network["id"], cidr="10.0.1.0/30")
        assert [addresses(await bench.port(network))[0] for _ in range(2)] == ["10.0.0.2", "10.0.1.2"]
        assert await refusal(bench.port(network)) == "no_more_addresses"

    bench.run(story)


def test_many_at_once_never_share_an_address_or_a_mac(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network("10.0.0.0/26", shared=True)
        nets = [bench.again() for _ in range(4)]
        asked = []
        for number in range(70):  # of several projects: only the network's own lock keeps them apart
            wish = {"project_id": f"project-{number % 7}", "network_id": network["id"]}
            asked.append(nets[number % 4].ports.create(None, [wish]))
        told = await asyncio.gather(*asked, return_exceptions=True)
        made = [answer[0] for answer in told if not isinstance(answer, BaseException)]
        refused = [error for error in told if isinstance(error, BaseException)]
        assert len(made) == 61 and len(refused) == 9  # 62 hosts without the gateway
        assert all(isinstance(error, Refused) and error.code == "no_more_addresses" for error in refused), refused
        taken = {addresses(port)[0] for port in made}
        assert taken == {f"10.0.0.{last}" for last in range(2, 63)}
        assert len({port["mac_address"] for port in made}) == 61
        assert not await bench.rows(free_ranges)
        await asyncio.gather(*(nets[number % 4].ports.delete(None, port["id"]) for number, port in enumerate(made)))
        assert [(row["first"], row["last"]) for row in await bench.rows(free_ranges)] == [("0a000002", "0a00003e")]
        assert not await bench.rows(fixed_ips)

    both.run(story)


def test_changed_pools_know_what_is_taken(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network("10.0.0.0/24")
        for _ in range(3):
            await bench.port(network)  # .2 .3 .4
        pools = [{"start": "10.0.0.3", "end": "10.0.0.6"}]
        shown = await bench.net.subnets.update(None, subnet["id"], {"allocation_pools": pools})
        assert shown["allocation_pools"] == pools and shown["revision_number"] == 2
        assert [addresses(await bench.port(network))[0] for _ in range(2)] == ["10.0.0.5", "10.0.0.6"]
        assert await refusal(bench.port(network)) == "no_more_addresses"

    bench.run(story)


def test_a_ports_addresses_can_be_changed(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network("10.0.0.0/29")
        port = await bench.port(network)

        async def change(*wanted: dict[str, str]) -> list[str]:
            return addresses(await bench.net.ports.update(None, port["id"], {"fixed_ips": list(wanted)}))

        assert await change({"subnet_id": subnet["id"]}) == ["10.0.0.2"], "what is wished as it was stays"
        assert await change({"ip_address": "10.0.0.5"}, {"ip_address": "10.0.0.2"}) == ["10.0.0.5", "10.0.0.2"]
        assert await change({"ip_address": "10.0.0.6"}) == ["10.0.0.6"]
        assert await refusal(change({"ip_address": "10.0.0.6"}, {"ip_address": "10.0.9.6"})) == "invalid_ip_for_network"
        six = [{"ip_address": f"10.0.0.{last}"} for last in range(1, 7)]
        assert await refusal(change(*six)) == "invalid_input"
        assert addresses(await bench.net.ports.show(None, port["id"])) == ["10.0.0.6"], "a refusal changes nothing"
        assert await change() == []
        assert [(row["first"], row["last"]) for row in await bench.rows(free_ranges)] == [("0a000002", "0a000006")]

    bench.run(story)


def test_taking_an_address_costs_the_same_with_many_ports_in_the_subnet(bench: Kind) -> None:
    """Statements, not seconds: and none of them looks at more rows than it needs."""

    async def story(bench: Bench) -> None:
        bench.net = bench.again(quota_defaults={"port": -1})
        network, _ = await bench.network("10.0.0.0/16")

        async def cost() -> int:
            before = bench.store.stats.statements
            await bench.port(network)
            spent: int = bench.store.stats.statements - before
            return spent

        await bench.port(network)  # the first one makes the project's default group
        first = await cost()
        wish = {"project_id": PROJECT, "network_id": network["id"]}
        for _ in range(8):
            await bench.net.ports.create(None, [wish] * 50)
        assert await cost() == first <= 24
        assert len(await bench.rows(free_ranges)) == 1

    bench.run(story)


def test_the_gateways_address_is_for_a_router_alone(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network()
        gateway = {"ip_address": "10.0.0.1"}
        assert await refusal(bench.port(network, fixed_ips=[gateway])) == "invalid_ip_for_subnet"
        named = {**gateway, "subnet_id": subnet["id"]}
        assert await refusal(bench.port(network, fixed_ips=[named])) == "invalid_ip_for_subnet"
        port = await bench.port(network)
        asked = bench.net.ports.update(None, port["id"], {"fixed_ips": [gateway]})
        assert await refusal(asked) == "invalid_ip_for_subnet"
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        taken = bench.one("floatingip", floating_network_id=outside["id"], floating_ip_address="172.24.4.1")
        assert await refusal(taken) == "invalid_ip_for_subnet"
        info = {"network_id": outside["id"], "external_fixed_ips": [{"ip_address": "172.24.4.1"}]}
        assert await refusal(bench.one("router", external_gateway_info=info)) == "invalid_ip_for_subnet"
        router = await bench.one("router")
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        (interface,) = [each for each in await bench.net.ports.all(None) if each["device_id"] == router["id"]]
        assert addresses(interface) == ["10.0.0.1"]
        again = await bench.net.ports.update(None, interface["id"], {"fixed_ips": [gateway]})
        assert addresses(again) == ["10.0.0.1"]

    both.run(story)


def test_a_gateway_that_comes_to_a_ports_address_does_not_take_it(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network")
        pools = [{"start": "10.0.0.10", "end": "10.0.0.20"}]
        subnet = await bench.one("subnet", network_id=network["id"], cidr="10.0.0.0/24", allocation_pools=pools)
        port = await bench.port(network, fixed_ips=[{"ip_address": "10.0.0.9"}])
        await bench.net.subnets.update(None, subnet["id"], {"gateway_ip": "10.0.0.9"})
        both = {"fixed_ips": [{"ip_address": "10.0.0.9"}, {"ip_address": "10.0.0.12"}]}
        assert addresses(await bench.net.ports.update(None, port["id"], both)) == ["10.0.0.9", "10.0.0.12"]

    bench.run(story)
