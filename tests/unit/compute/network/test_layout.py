"""Links and namespaces of a host: what shall be there, and what changes when something else is."""

import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kilonova.compute.network.layout import HostNetworkOptions, Plugged, layout
from kilonova.compute.network.links import Present, changes, inside
from kilonova.compute.network.names import BRIDGE, INSIDE, ROUTER, SERVICE, TAP, VXLAN, is_ours, link, numbers
from kilonova.domain.guest_ports import GuestPort, PortAddress
from kilonova.domain.host_network import HostRouter, RouterLeg

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


@given(st.sets(st.uuids().map(str), max_size=40), st.integers(min_value=50, max_value=0xFFFE))
def test_numbers_are_distinct_and_in_range(ids, most):
    found = numbers(ids, most)
    assert set(found) == ids and len(set(found.values())) == len(ids)
    assert all(1 <= number <= most for number in found.values())
