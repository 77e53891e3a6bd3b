"""What hosts are told of networks, and when they are woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.guest_ports import HostRoute
from kilonova.domain.host_network import FloatingAddress, NetworkDocument, pack, unpack, version_of, with_members
from kilonova.domain.network import WantedPort
from kilonova.schema.tables.control import host_mappings
from kilonova.schema.tables.network import hosts
from kilonova.services.network.wakeups import MOMENT, Wakeups
from kilonova.store import rows
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, WallClock

SERVERS = [f"5e000000-0000-4000-8000-00000000000{number}" for number in range(5)]
TUNNELS = {"host1": "192.0.2.1", "host2": "192.0.2.2", "node": "192.0.2.9"}


async def document(bench: Bench, host: str, **says: Any) -> NetworkDocument:
    return await bench.net.host_document(host, **{"tunnel_address": TUNNELS[host], "is_node": host == "node", **says})


async def two_guests(bench: Bench) -> str:
    """One on each host, on one network. Its id."""
    network, _ = await bench.network()
    for server, host in zip(SERVERS, ("host1", "host2"), strict=False):
        await bench.allocate((server, 1, 1), WantedPort(network_id=network["id"]), host=host)
    network_id: str = network["id"]
    return network_id


def test_a_host_is_told_of_its_own_ports_and_of_its_peers(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network_id = await two_guests(bench)
        await document(bench, "host2")
        told = await document(bench, "host1")
        assert [one.server for one in told.ports] == SERVERS[:1]
        assert told.peers == {network_id: [TUNNELS["host1"], TUNNELS["host2"]]}
        assert not told.routers
        moved = await document(bench, "host2", tunnel_address="192.0.2.22")
        assert moved.peers == {network_id: [TUNNELS["host1"], "192.0.2.22"]}
        await bench.net.bind((SERVERS[0], 2, 1), server_id=SERVERS[0], host="host2")
        assert await document(bench, "host1") == NetworkDocument()
        assert len((await document(bench, "host2")).ports) == 2

    both.run(story)


def test_members_of_groups_are_told_once_and_as_they_are_now(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network_id = await two_guests(bench)
        told = await document(bench, "host1")
        (members,) = told.members.values()
        assert members == ["10.0.0.2/31"], "both guests, in one prefix"
        assert not any(rule.remote_members for one in told.ports for rule in one.port.rules)
        full = with_members(unpack(pack(told)))
        found = [rule for one in full.ports for rule in one.port.rules if rule.remote_group]
        assert {rule.ethertype: rule.remote_members for rule in found} == {"IPv4": members, "IPv6": []}
        await bench.allocate((SERVERS[2], 1, 1), WantedPort(network_id=network_id), host="host2")
        later = await document(bench, "host1")
        assert list(later.members.values()) == [["10.0.0.2/31", "10.0.0.4/32"]]
        assert version_of(pack(later)) != version_of(pack(told))

    both.run(story)


def test_the_last_declared_node_has_the_routers(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network_id = await two_guests(bench)
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        (subnet,) = (await bench.net.networks.show(None, network_id))["subnets"]
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet)
        (vif,) = (await bench.net.vifs([SERVERS[0]]))[SERVERS[0]]
        floating = await bench.one("floatingip", floating_network_id=outside["id"], port_id=vif.port_id)
        assert not (await document(bench, "host1")).routers
        (told,) = (await document(bench, "node")).routers
        assert (told.router_id, told.snat, told.is_up, told.next_hop) == (router["id"], True, True, "172.24.4.1")
        assert told.floating == [FloatingAddress(floating["floating_ip_address"], "10.0.0.2")]
        assert told.gateway is not None and told.gateway.addresses == ["172.24.4.2/24"]
        (leg,) = told.legs
        assert (leg.network_id, leg.addresses, leg.network_type) == (network_id, ["10.0.0.1/24"], "vxlan")
        assert TUNNELS["node"] in (await document(bench, "host1")).peers[network_id]
        assert (await document(bench, "host1", is_node=True)).routers == [told]
        assert not (await document(bench, "node")).routers

    both.run(story)


def test_a_host_is_told_of_nothing_that_is_not_its_own(bench: Kind) -> None:
    """A port that only says that it is a server's is none, wherever an administrator binds it."""

    async def story(bench: Bench) -> None:
        network_id = await two_guests(bench)
        here, _ = await bench.network("10.1.0.0/24")
        for server, host in zip(SERVERS[2:4], ("host1", "host2"), strict=True):
            await bench.allocate((server, 1, 1), WantedPort(network_id=here["id"]), host=host)
        await bench.port({"id": network_id}, device_id=SERVERS[1], **{"binding:host_id": "host1"})
        third, _ = await bench.network("10.2.0.0/24")
        await bench.allocate((SERVERS[4], 1, 1), WantedPort(network_id=third["id"]), host="node")
        await bench.port(here, **{"binding:host_id": "node"})
        for host in TUNNELS:
            told = await document(bench, host, is_node=False)
        assert (set(told.peers), told.routers) == ({third["id"]}, [])
        told = await document(bench, "host1", is_node=False)
        assert [one.server for one in told.ports] == [SERVERS[0], SERVERS[2]]
        both = [TUNNELS["host1"], TUNNELS["host2"]]
        assert told.peers == {network_id: both, here["id"]: both}
        silent = await document(bench, "host2", is_node=False, tunnel_address="")
        assert silent.peers == {network_id: both[:1], here["id"]: both[:1]}

    bench.run(story)


def test_the_node_is_a_peer_where_a_router_is(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network_id = await two_guests(bench)
        routed, subnet = await bench.network("10.1.0.0/24")
        await bench.allocate((SERVERS[2], 1, 1), WantedPort(network_id=routed["id"]), host="host1")
        router = await bench.one("router")
        _, far_away = await bench.network("10.2.0.0/24")
        await bench.net.interfaces.add(None, router["id"], subnet_id=far_away["id"])
        await bench.port({"id": network_id}, device_id=router["id"])  # only says so
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        for host in TUNNELS:
            await document(bench, host)
        own, other, node = TUNNELS.values()
        assert (await document(bench, "host1")).peers == {network_id: [own, other], routed["id"]: [own, node]}
        assert (await document(bench, "node")).peers == {routed["id"]: [own, node], far_away["network_id"]: [node]}
        await document(bench, "node", tunnel_address="")
        assert (await document(bench, "host1")).peers == {network_id: [own, other], routed["id"]: [own]}

    bench.run(story)


def test_to_declare_the_same_again_changes_nothing(bench: Kind) -> None:
    """Else every look of a former node would make it the node again."""

    async def story(bench: Bench) -> None:
        await bench.one("router")
        for host in ("host1", "host2"):
            await document(bench, host, is_node=True)
        before = await bench.rows(hosts)
        assert not (await document(bench, "host1", is_node=True)).routers
        assert len((await document(bench, "host2", is_node=True)).routers) == 1
        assert [tuple(row) for row in await bench.rows(hosts)] == [tuple(row) for row in before]
        await document(bench, "host2", is_node=False)
        assert len((await document(bench, "host1", is_node=True)).routers) == 1

    bench.run(story)


def test_the_node_is_told_of_routers_with_their_own_legs_and_addresses(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        six = await bench.one("subnet", network_id=outside["id"], cidr="2001:db8:1::/64")
        gateway = {"network_id": outside["id"], "enable_snat": False}
        fixed = [{"subnet_id": six["id"]}, {"ip_address": "172.24.4.9"}]
        closed = await bench.one("router", name="closed", admin_state_up=False)
        wide = await bench.one("router", external_gateway_info={**gateway, "external_fixed_ips": fixed})
        only_six = {**gateway, "enable_snat": True, "external_fixed_ips": fixed[:1]}
        narrow = await bench.one("router", external_gateway_info=only_six)
        nets = []
        for number, router in enumerate((closed, wide)):
            network, subnet = await bench.network(f"10.{number}.0.0/24")
            await bench.one("subnet", network_id=network["id"], cidr=f"2001:db8:{number + 7}::/64")
            leg = await bench.port(network, fixed_ips=[{"ip_address": f"2001:db8:{number + 7}::5"}])
            await bench.net.interfaces.add(None, router["id"], port_id=leg["id"])
            await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
            await bench.port(network, device_id=router["id"])  # only says so
            nets.append(network)
        routes = [{"destination": "192.0.2.0/24", "nexthop": "10.1.0.77"}]
        await bench.net.routers.update(None, wide["id"], {"routes": routes})
        served = await bench.port(nets[1])
        port = {"port_id": served["id"], "fixed_ip_address": served["fixed_ips"][0]["ip_address"]}
        floating = await bench.one("floatingip", floating_network_id=outside["id"], **port)
        await bench.one("floatingip", floating_network_id=outside["id"])
        told = {one.router_id: one for one in (await document(bench, "node")).routers}
        assert set(told) == {closed["id"], wide["id"], narrow["id"]}
        one = told[wide["id"]]
        assert sorted(leg.addresses for leg in one.legs) == [["10.1.0.1/24"], ["2001:db8:8::5/64"]]
        assert {leg.network_id for leg in one.legs} == {nets[1]["id"]}
        assert one.gateway is not None and one.gateway.addresses == ["2001:db8:1::2/64", "172.24.4.9/24"]
        assert (one.next_hop, one.snat, one.is_up, one.gateway.segment) == ("172.24.4.1", False, True, 0)
        assert one.routes == [HostRoute("192.0.2.0/24", "10.1.0.77")]
        assert one.floating == [FloatingAddress(floating["floating_ip_address"], port["fixed_ip_address"])]
        one = told[closed["id"]]
        assert (one.gateway, one.next_hop, one.is_up, one.floating, one.routes) == (None, "", False, [], [])
        assert len(one.legs) == 2
        assert (told[narrow["id"]].next_hop, told[narrow["id"]].snat, told[narrow["id"]].legs) == ("", True, [])

    bench.run(story)


@pytest.mark.slow
def test_hosts_are_woken_that_know_what_has_changed(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        bus, woken = MemoryBus(MemoryHub(), "test"), list[str]()
        await bus.start()

        async def map_hosts(tx: Any) -> None:
            for host in TUNNELS:
                await rows.put(tx, host_mappings, host=host, cell="cell1")

        await bench.store.write(map_hosts)
        for host in TUNNELS:

            async def handler(body: bytes, host: str = host) -> bytes:
                woken.append(host)
                return b""

            await bus.serve(f"host.{host}.network", handler)
        bench.net = bench.again(wakeups=Wakeups(bench.store, bus, WallClock(), lambda cell: ""))

        async def heard(number: int = 0) -> list[str]:
            """The hosts that are woken: as many at least, and then no more for a moment."""
            async with asyncio.timeout(30):
                while len(woken) < number:  # noqa: ASYNC110 - there is nothing to wait on
                    await asyncio.sleep(0.01)
            await asyncio.sleep(MOMENT + 0.4)
            found = sorted(woken)
            woken.clear()
            return found

        network_id = await two_guests(bench)
        assert await heard() == [], "nobody has asked for a document yet"
        for host in TUNNELS:
            await document(bench, host)
        (group,) = await bench.net.groups.all(None)
        rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp"}
        (made,) = await bench.net.rules.create(None, [{"project_id": OTHER, **rule}])
        assert await heard(3) == ["host1", "host2", "node"], "an administrator's rule in the project's group"
        await bench.net.rules.delete(None, made["id"])
        assert await heard(3) == ["host1", "host2", "node"]
        await bench.one("security_group", OTHER, name="another project's")
        assert await heard(1) == ["node"]
        await bench.allocate((SERVERS[2], 1, 1), WantedPort(network_id=network_id), host="host1", project_id=PROJECT)
        assert await heard(3) == ["host1", "host2", "node"], "a new member"
        await bench.net.release((SERVERS[2], 2, 1), server_id=SERVERS[2])
        assert await heard(3) == ["host1", "host2", "node"]
        await bus.close()

    both.run(story)
