"""Routers and floating IPs on the network node, as a guest on another host and somebody outside see them."""

from __future__ import annotations

import msgspec

from kilonova.domain.host_network import FloatingAddress, HostRouter, RouterLeg
from tests.guests.network.conftest import Play
from tests.guests.network.lab import NETWORK, OTHER_NETWORK, PING, Host, Lab, port, reaches, run

LEG = RouterLeg(
    port_id="leg-1",
    network_id=NETWORK,
    mac="fa:16:3e:aa:00:01",
    mtu=1450,
    network_type="vxlan",
    segment=77,
    addresses=["10.7.0.254/24"],
)
OTHER_LEG = msgspec.structs.replace(
    LEG, port_id="leg-2", network_id=OTHER_NETWORK, mac="fa:16:3e:aa:00:02", segment=78, addresses=["10.8.0.254/24"]
)
GATEWAY = RouterLeg(
    port_id="gateway", network_id="outside", mac="fa:16:3e:aa:00:03", mtu=1500, addresses=["172.24.4.10/24"]
)
ROUTER = HostRouter(router_id="router-1", legs=[LEG], gateway=GATEWAY, next_hop="172.24.4.1")
FLOATING = FloatingAddress("172.24.4.20", "10.7.0.1")


async def outside(lab: Lab, node: Host) -> str:
    """A machine on the external network; its packets arrive with the addresses that they were sent with."""
    name = f"{lab.name}-out"
    run("ip", "netns", "add", name)
    lab.namespaces.append(name)
    node.run("ip", "link", "add", "outside", "type", "bridge")
    node.run("ip", "link", "set", "outside", "up")
    node.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", name)
    node.run("ip", "link", "set", "uplink", "master", "outside", "up")
    run("ip", "-n", name, "address", "add", "172.24.4.1/24", "dev", "eth0")
    run("ip", "-n", name, "link", "set", "eth0", "up")
    return name


def test_a_guest_of_another_host_gets_out_and_is_reached_by_its_floating_ip(play: Play) -> None:
    async def story(lab: Lab) -> None:
        node, host = await lab.host(), await lab.host()
        world = await outside(lab, node)
        guest = await host.plug(port(1, PING))
        guest.configure()
        await host.update(peers=[node])
        await node.update(peers=[host], routers=[ROUTER])
        assert guest.reaches("172.24.4.1"), "out, with the router's address"
        assert not reaches(world, FLOATING.address)
        await node.update(peers=[host], routers=[msgspec.structs.replace(ROUTER, floating=[FLOATING])])
        assert reaches(world, FLOATING.address)
        assert guest.reaches("172.24.4.1") and guest.reaches(FLOATING.address), "itself by its floating address"
        await node.update(peers=[host], routers=[ROUTER])
        assert not reaches(world, FLOATING.address)

    play(story)


def test_the_network_node_itself_is_a_neighbour_on_the_external_network(play: Play) -> None:
    """On one machine the operator gives the bridge the gateway's address. Nothing else of the machine is reached."""

    async def story(lab: Lab) -> None:
        node = await lab.host()
        node.run("ip", "link", "add", "outside", "type", "bridge")
        node.run("ip", "link", "set", "outside", "up")
        guest = await node.plug(port(1, PING))
        guest.configure()
        await node.update(routers=[msgspec.structs.replace(ROUTER, floating=[FLOATING])])
        assert not guest.reaches("172.24.4.1")
        node.run("ip", "address", "add", "172.24.4.1/24", "dev", "outside")
        assert guest.reaches("172.24.4.1") and reaches(node.name, FLOATING.address)
        assert not guest.reaches(node.tunnel_address), "an address of another link"

    play(story)


def test_a_router_joins_two_networks_and_goes_without_a_trace(play: Play) -> None:
    async def story(lab: Lab) -> None:
        node = await lab.host()
        node.run("ip", "link", "add", "outside", "type", "bridge")
        node.run("ip", "link", "set", "outside", "up")
        before = node.state()
        joined = msgspec.structs.replace(ROUTER, legs=[LEG, OTHER_LEG])
        a = await node.plug(port(1, PING))
        b = await node.plug(port(1, PING, network=OTHER_NETWORK, segment=78, address="10.8.0.1"))
        a.configure(), b.configure()
        run("ip", "-n", b.name, "route", "replace", "default", "via", "10.8.0.254", "dev", "eth0")
        await node.update(routers=[joined])
        assert a.reaches("10.8.0.1") and b.reaches("10.7.0.1")
        await node.update(routers=[msgspec.structs.replace(joined, is_up=False)])
        assert not a.reaches("10.8.0.1")
        for guest in (a, b):
            await node.network.ensure_unplugged(guest.name, 1)
        node.guests.clear()
        await node.update(networks=())
        assert node.state() == before

    play(story)


def test_neighbours_learn_at_once_that_a_floating_ip_moved(play: Play) -> None:
    async def story(lab: Lab) -> None:
        node = await lab.host()
        world = await outside(lab, node)
        guest = await node.plug(port(1, PING))
        guest.configure()
        other_gateway = msgspec.structs.replace(
            GATEWAY, port_id="gateway-2", mac="fa:16:3e:aa:00:04", addresses=["172.24.4.11/24"]
        )
        other = HostRouter(router_id="router-2", legs=[OTHER_LEG], gateway=other_gateway, next_hop="172.24.4.1")
        await node.update(routers=[msgspec.structs.replace(ROUTER, floating=[FLOATING]), other])
        assert reaches(world, FLOATING.address)
        assert GATEWAY.mac in run("ip", "-n", world, "neigh", "show", FLOATING.address)
        await node.update(routers=[ROUTER, msgspec.structs.replace(other, floating=[FLOATING])])
        assert other_gateway.mac in run("ip", "-n", world, "neigh", "show", FLOATING.address)

    play(story)
