"""Links and namespaces of a host: what shall be there, and what changes when something else is."""

import dataclasses
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.compute.network.layout import HostNetworkOptions, Plugged, effective_mtu, layout, service_mac
from kilonova.compute.network.links import Present, changes, inside
from kilonova.compute.network.names import (
    BRIDGE,
    INSIDE,
    ROUTER,
    SERVICE,
    TAP,
    VXLAN,
    is_ours,
    link,
    numbers,
    router_leg_inside,
    router_namespace,
    service_namespace,
)
from kilonova.compute.network.nat import translations
from kilonova.domain.guest_ports import GuestPort, HostRoute, PortAddress
from kilonova.domain.host_network import FloatingAddress, HostRouter, RouterLeg

PLACE = HostNetworkOptions("host1", "192.0.2.1")
PORT = GuestPort(
    port_id="p", network_id="n", network_name="", mac="fa:16:3e:00:00:01", mtu=1500, network_type="vxlan", segment=7
)
HERE = Plugged("server", 3, PORT)


def as_present(one):
    return Present(
        one.name, one.kind, one.mtu, one.master, one.is_up, one.is_isolated, one.alias, one.segment, one.local
    )


def test_one_port_takes_bridge_tunnel_services_and_tap():
    wanted = layout(PLACE, [HERE], {"n": ["192.0.2.2", "192.0.2.1"]})
    names = [one.name for one in wanted.links]
    assert names == [link(kind, thing) for kind, thing in ((BRIDGE, "n"), (VXLAN, "n"), (SERVICE, "n"), (TAP, "p"))]
    assert all(len(name) <= 15 and is_ours(name) for name in names)
    assert {one.mtu for one in wanted.links} == {1450}, "1500 does not fit into a tunnel over 1500"
    assert wanted.floods == {link(VXLAN, "n"): ("192.0.2.2",)}, "not to itself"
    assert [one.is_isolated for one in wanted.links] == [False, True, True, False]


def test_without_tunnel_address_or_tunnel_there_is_none():
    local = dataclasses.replace(HERE, port=msgspec.structs.replace(PORT, network_type="local"))
    for place, plugged in ((HostNetworkOptions("host1"), HERE), (PLACE, local)):
        wanted = layout(place, [plugged], {"n": ["192.0.2.2"]})
        assert not wanted.floods and not any(one.kind == "vxlan" for one in wanted.links)


def test_a_port_that_is_switched_off_or_bound_elsewhere_is_down():
    off = msgspec.structs.replace(PORT, is_up=False)
    for plugged in (dataclasses.replace(HERE, port=off), dataclasses.replace(HERE, is_bound=False)):
        assert [one.is_up for one in layout(PLACE, [plugged], {}).links if one.kind == "tap"] == [False]


def test_the_services_of_a_host_know_where_its_guests_are():
    """Nobody else can say so by ARP."""
    mine = [
        PortAddress(address=one, prefix=24, version=4, subnet_id="s") for one in ("10.7.0.2", "10.7.0.3", "10.7.0.4")
    ]
    here = dataclasses.replace(HERE, port=msgspec.structs.replace(PORT, addresses=mine))
    (namespace,) = layout(PLACE, [here], {}).namespaces
    assert namespace.neighbors == tuple((INSIDE, one.address, PORT.mac) for one in mine)
    shown = [
        {"dst": address, "dev": INSIDE, "lladdr": mac}
        for address, mac in (("10.7.0.2", PORT.mac), ("10.7.0.3", "fa:16:3e:00:00:09"), ("10.7.0.5", PORT.mac))
    ]
    lines = [line for line in inside(namespace, [], [], shown) if line.startswith("neighbor")]
    assert lines == [
        f"neighbor delete 10.7.0.5 dev {INSIDE}",
        f"neighbor replace 10.7.0.3 lladdr {PORT.mac} dev {INSIDE} nud permanent",
        f"neighbor replace 10.7.0.4 lladdr {PORT.mac} dev {INSIDE} nud permanent",
    ]


def test_nothing_changes_where_all_is_as_it_shall_be():
    wanted = layout(PLACE, [HERE], {"n": ["192.0.2.2"]})
    there = {one.name: as_present(one) for one in wanted.links}
    names = [one.name for one in wanted.namespaces]
    todo = changes(wanted, there, names, {name: set(peers) for name, peers in wanted.floods.items()})
    assert not (todo.links or todo.floods or todo.new_namespaces or todo.old_namespaces)


def test_what_is_too_much_goes_but_no_tap():
    """A guest may use it: without its record it is closed, and that is all."""
    empty = layout(PLACE, [], {})
    before = layout(PLACE, [HERE], {})
    there = {one.name: as_present(one) for one in before.links} | {
        "br-operator": Present("br-operator", "bridge", 1500, "", True, False, "")
    }
    todo = changes(empty, there, [one.name for one in before.namespaces], {})
    assert todo.links == sorted(f"link delete {one.name}" for one in before.links if one.kind != "tap")
    assert todo.old_namespaces == [one.name for one in before.namespaces]


def test_a_tunnel_with_another_segment_is_made_again():
    wanted = layout(PLACE, [HERE], {"n": ["192.0.2.2"]})
    tunnel = link(VXLAN, "n")
    there = {one.name: as_present(one) for one in wanted.links}
    there[tunnel] = dataclasses.replace(there[tunnel], segment=8)
    todo = changes(wanted, there, [one.name for one in wanted.namespaces], {tunnel: {"192.0.2.2"}})
    assert todo.links[0] == f"link delete {tunnel}" and f"id {PORT.segment}" in todo.links[1]
    assert todo.floods == [f"fdb append 00:00:00:00:00:00 dev {tunnel} dst 192.0.2.2"]


def test_the_network_node_has_the_tunnel_of_a_network_without_ports():
    leg = RouterLeg(port_id="leg", network_id="n", mac="fa:16:3e:00:00:09", mtu=1450, network_type="vxlan", segment=7)
    wanted = layout(PLACE, [], {"n": ["192.0.2.2"]}, [HostRouter(router_id="r", legs=[leg])])
    assert [one.name for one in wanted.links] == [link(BRIDGE, "n"), link(VXLAN, "n"), link(ROUTER, "leg")]
    assert not wanted.links[2].is_isolated, "it answers guests of all hosts"


def leg(name, network, *addresses, kind="local", mtu=1500):
    return RouterLeg(
        port_id=name, network_id=network, mac=f"mac-{name}", mtu=mtu, network_type=kind, addresses=[*addresses]
    )


def test_the_links_and_the_namespace_of_a_router():
    inside = leg("in", "n", "10.0.0.1/24", "2001:db8::1/64")
    second = leg("second", "m", "10.1.0.1/24", kind="vxlan")
    way_out = leg("out", "outside", "172.24.4.2/24", "2001:db8:1::2/64")
    router = HostRouter(
        router_id="r",
        legs=[inside, second],
        gateway=way_out,
        next_hop="172.24.4.1",
        routes=[HostRoute("192.0.2.0/24", "10.0.0.9"), HostRoute("2001:db8:9::/64", "2001:db8::9")],
        floating=[FloatingAddress("172.24.4.9", "10.0.0.5")],
    )
    wanted = layout(dataclasses.replace(PLACE, external_bridge="br-out"), [], {}, [router])
    name = router_namespace("host1", "r")
    veths = {one.name: one for one in wanted.links if one.kind == "veth"}
    ends = {
        link(ROUTER, each.port_id): (master, router_leg_inside(each.port_id), each.mac, mtu, name)
        for each, master, mtu in (
            (inside, link(BRIDGE, "n"), 1500), (second, link(BRIDGE, "m"), 1450), (way_out, "br-out", 1500)
        )
    }  # fmt: skip
    assert {key: (one.master, one.inside, one.mac, one.mtu, one.namespace) for key, one in veths.items()} == ends
    assert [one.name for one in wanted.links if one.kind == "bridge"] == [link(BRIDGE, "m"), link(BRIDGE, "n")]
    (namespace,) = wanted.namespaces
    a, b, c = (router_leg_inside(each) for each in ("in", "second", "out"))
    assert namespace.addresses == ((a, "10.0.0.1/24"), (b, "10.1.0.1/24"), (c, "172.24.4.2/24"), (c, "172.24.4.9/32"))
    assert namespace.routes == ("192.0.2.0/24 via 10.0.0.9", "default via 172.24.4.1")
    assert namespace.macs == ((a, "mac-in"), (b, "mac-second"), (c, "mac-out"))
    assert (namespace.name, namespace.forwards, namespace.rules) == (name, True, translations(router))


def test_a_router_without_a_next_hop_or_switched_off():
    closed = HostRouter(router_id="r", legs=[leg("in", "n", "10.0.0.1/24")], next_hop="172.24.4.1")
    (namespace,) = layout(PLACE, [], {}, [closed]).namespaces
    assert namespace.routes == () and [each for each, _ in namespace.macs] == [router_leg_inside("in")]
    without = msgspec.structs.replace(closed, gateway=leg("out", "x", "172.24.4.2/24"), next_hop="")
    (namespace,) = layout(PLACE, [], {}, [without]).namespaces
    assert namespace.routes == () and len(namespace.addresses) == 2
    off = layout(PLACE, [], {}, [msgspec.structs.replace(closed, is_up=False)])
    assert off.namespaces == () and [one.kind for one in off.links] == ["bridge"]


def test_each_network_has_its_own_services_and_taps():
    """Sorted, so that nothing changes when ports come in another order."""
    port = msgspec.structs.replace(PORT, network_type="local")
    addresses = [PortAddress(address="10.7.0.2", prefix=24, version=4, subnet_id="s"),
                 PortAddress(address="2001:db8::2", prefix=64, version=6, subnet_id="t")]  # fmt: skip
    ports = [
        msgspec.structs.replace(port, port_id=name, network_id=network, addresses=addresses)
        for name, network in (("q", "n"), ("p", "n"), ("r", "m"))
    ]
    plugged = [Plugged(f"server-{one.port_id}", 1, one) for one in ports]
    wanted = layout(PLACE, plugged, {"n": ["192.0.2.2"]})
    assert wanted == layout(PLACE, plugged[::-1], {})
    assert [one.name for one in wanted.links] == [
        link(kind, name)
        for kind, name in (
            (BRIDGE, "m"), (SERVICE, "m"), (TAP, "r"), (BRIDGE, "n"), (SERVICE, "n"), (TAP, "p"), (TAP, "q")
        )
    ]  # fmt: skip
    assert [one.alias for one in wanted.links if one.kind == "tap"] == ["server-r/1", "server-p/1", "server-q/1"]
    for namespace, network in zip(wanted.namespaces, ("m", "n"), strict=True):
        assert namespace.name == service_namespace("host1", network)
        assert namespace.routes == (f"10.7.0.0/24 dev {INSIDE} scope link src 169.254.169.254",)
        assert namespace.addresses == ((INSIDE, "169.254.169.254/32"),) and not namespace.forwards
        assert set(namespace.neighbors) == {(INSIDE, "10.7.0.2", PORT.mac)}
    service = next(one for one in wanted.links if one.kind == "veth")
    assert (service.namespace, service.inside, service.master) == (
        service_namespace("host1", "m"), INSIDE, link(BRIDGE, "m")
    )  # fmt: skip
    assert service.mac == service_mac("host1", "m") != service_mac("host2", "m") and service.mac.startswith("0a:")


@pytest.mark.parametrize(
    ("kind", "mtu", "path", "expected"),
    [
        ("vxlan", 1500, 1500, 1450),
        ("vxlan", 1400, 1500, 1400),
        ("vxlan", 9000, 9000, 8950),
        ("vxlan", 1500, 600, 576),
        ("local", 1500, 600, 1500),
    ],
)
def test_the_mtu_that_a_network_really_has(kind, mtu, path, expected):
    assert effective_mtu(dataclasses.replace(PLACE, path_mtu=path), kind, mtu) == expected


def test_the_settings_of_a_port_come_before_those_of_a_routers_leg():
    router = HostRouter(router_id="r", legs=[leg("in", "n", kind="local", mtu=1300)])
    wanted = layout(PLACE, [HERE], {}, [router])
    assert next(one.mtu for one in wanted.links if one.name == link(BRIDGE, "n")) == 1450


def test_numbers_that_collide_take_the_next_one():
    ids = {str(UUID(int=number)) for number in (3, 8, 13)}  # with at most 5 they are all the same
    assert sorted(numbers(ids, 5).values()) == [1, 4, 5]
    assert numbers({str(UUID(int=7))}, 5) == {str(UUID(int=7)): 3}
    assert set(numbers({"no", "uuid"}, 0xFFFE)) == {"no", "uuid"}


def test_what_is_ours_by_its_name():
    assert is_ours(link(TAP, "x")) and not is_ours(link(TAP, "x") + "0") and not is_ours("knx" + link(TAP, "x")[3:])


@settings(deadline=None)
@given(st.sets(st.uuids().map(str), max_size=40), st.integers(min_value=50, max_value=0xFFFE))
def test_numbers_are_distinct_and_in_range(ids, most):
    found = numbers(ids, most)
    assert set(found) == ids and len(set(found.values())) == len(ids)
    assert all(1 <= number <= most for number in found.values())
