"""What ip and bridge show, and the lines that make of it what shall be."""

import dataclasses

import pytest

from kilonova.compute.network.layout import Layout, Link, Namespace
from kilonova.compute.network.links import EVERYBODY, Present, changes, flood_entries, inside, present
from kilonova.compute.network.names import BRIDGE, ROUTER, SERVICE, TAP, VXLAN, link

BRIDGED, TUNNEL = link(BRIDGE, "n"), link(VXLAN, "n")
TAPPED = Link(link(TAP, "p"), "tap", 1450, BRIDGED, alias="server/1")
VETH = Link(link(ROUTER, "leg"), "veth", 1450, BRIDGED, namespace="ns", inside="leg1", mac="fa:16:3e:00:00:01")
SERVED = dataclasses.replace(VETH, name=link(SERVICE, "n"), is_isolated=True)
TUNNELLED = Link(TUNNEL, "vxlan", 1450, BRIDGED, is_isolated=True, segment=7, local="192.0.2.1")


def there(one, **differs):
    names = [each.name for each in dataclasses.fields(Present)]
    return Present(**{name: getattr(one, name) for name in names} | differs)


def lines(one, before=None, namespaces=("ns",), wanted_namespaces=("ns",)):
    wanted = Layout((one,), tuple(Namespace(name) for name in wanted_namespaces))
    return changes(wanted, {before.name: before} if before else {}, namespaces, {}).links


def test_what_ip_shows():
    vlan = {"info_kind": "vlan", "info_data": {"id": 9}}
    shown = [
        {"ifname": "lo", "mtu": 65536},
        {
            "ifname": TUNNEL,
            "mtu": 1450,
            "master": BRIDGED,
            "flags": ["BROADCAST", "UP"],
            "ifalias": "x",
            "linkinfo": {
                "info_kind": "vxlan",
                "info_data": {"id": 7, "local": "192.0.2.1"},
                "info_slave_data": {"isolated": True},
            },
        },
        {"ifname": "vlan", "mtu": 1500, "flags": ["LOWER_UP"], "linkinfo": vlan},
        {"ifname": "port", "mtu": 1500, "linkinfo": {"info_kind": "veth", "info_slave_data": {"isolated": False}}},
    ]
    assert present(shown) == {
        "lo": Present("lo", "", 65536, "", False, False, ""),
        TUNNEL: Present(TUNNEL, "vxlan", 1450, BRIDGED, True, True, "x", 7, "192.0.2.1"),
        "vlan": Present("vlan", "vlan", 1500, "", False, False, ""),
        "port": Present("port", "veth", 1500, "", False, False, ""),
    }


def test_where_a_tunnel_sends_what_it_does_not_know():
    shown = [
        {"mac": EVERYBODY, "ifname": TUNNEL, "dst": "192.0.2.2"},
        {"mac": EVERYBODY, "ifname": TUNNEL, "dst": "192.0.2.3"},
        {"mac": EVERYBODY, "ifname": "another", "dst": "192.0.2.4"},
        {"mac": "fa:16:3e:00:00:01", "ifname": TUNNEL, "dst": "192.0.2.5"},
        {"mac": EVERYBODY, "ifname": TUNNEL},
        {"mac": EVERYBODY, "dst": "192.0.2.6"},
        {"ifname": TUNNEL, "dst": "192.0.2.7"},
    ]
    assert flood_entries(shown) == {TUNNEL: {"192.0.2.2", "192.0.2.3"}, "another": {"192.0.2.4"}}


@pytest.mark.parametrize(
    ("one", "made"),
    [
        (Link(BRIDGED, "bridge", 1450),
         [f"link add {BRIDGED} type bridge nf_call_iptables 1 nf_call_ip6tables 1 mcast_snooping 0"]),
        (TAPPED, [f"tuntap add {TAPPED.name} mode tap"]),
        (TUNNELLED, [f"link add {TUNNEL} type vxlan id 7 dstport 4789 local 192.0.2.1"]),
        (VETH, [f"link add {VETH.name} mtu 1450 type veth peer name leg1 address {VETH.mac} mtu 1450 netns ns"]),
        (SERVED, [f"link add {SERVED.name} mtu 1450 type veth peer name leg1 address {VETH.mac} mtu 1450 netns ns"]),
    ],
    ids=lambda value: value.name[:3] if isinstance(value, Link) else "",
)  # fmt: skip
def test_a_new_link(one, made):
    name, whole = one.name, [*made, f"link set {one.name} addrgenmode none", f"link set {one.name} mtu 1450"]
    whole += [f"link set {name} master {BRIDGED}"] if one.master else []
    whole += [f"link set {name} type bridge_slave isolated on"] if one.is_isolated else []
    whole += [f"link set {name} alias server/1"] if one.alias else []
    assert lines(one) == [*whole, f"link set {name} up"]
    assert lines(one, there(one)) == []
    assert lines(dataclasses.replace(one, is_up=False))[-1] == f"link set {name} down"


@pytest.mark.parametrize(
    ("one", "before", "expected"),
    [
        (TAPPED, {"mtu": 1500}, ["mtu 1450"]),
        (TAPPED, {"master": "other"}, [f"master {BRIDGED}"]),
        (TAPPED, {"alias": "server/2"}, ["alias server/1"]),
        (TAPPED, {"is_up": False}, ["up"]),
        (TAPPED, {"is_isolated": True}, []),
        (dataclasses.replace(TAPPED, is_up=False), {"is_up": True}, ["down"]),
        (dataclasses.replace(TAPPED, alias=""), {"alias": "x"}, []),
        (dataclasses.replace(TAPPED, master=""), {"master": "x"}, []),
        (TUNNELLED, {"is_isolated": False}, ["type bridge_slave isolated on"]),
        (TUNNELLED, {"master": ""}, [f"master {BRIDGED}", "type bridge_slave isolated on"]),
        (VETH, {"segment": 3, "local": "192.0.2.9"}, []),
    ],
)
def test_a_link_that_is_another_in_one_thing(one, before, expected):
    assert lines(one, there(one, **before)) == [f"link set {one.name} {words}" for words in expected]


@pytest.mark.parametrize("before", [{"segment": 8}, {"local": "192.0.2.9"}])
def test_a_tunnel_that_leads_elsewhere_is_made_again(before):
    assert lines(TUNNELLED, there(TUNNELLED, **before)) == [f"link delete {TUNNEL}", *lines(TUNNELLED)]


def test_a_leg_whose_namespace_is_new_is_made_again():
    assert lines(VETH, there(VETH), namespaces=()) == [f"link delete {VETH.name}", *lines(VETH)]
    others = ("ns", "new")
    assert lines(VETH, there(VETH), wanted_namespaces=others) == [], "another namespace is new"
    assert lines(dataclasses.replace(TAPPED, namespace="ns"), there(TAPPED), namespaces=()) == []


def test_only_our_links_are_deleted_and_no_tap():
    ours = [link(kind, "gone") for kind in (BRIDGE, VXLAN, SERVICE, ROUTER)]
    others = [link(TAP, "gone"), "eth0", BRIDGE, f"{BRIDGE}0", f"{BRIDGED}0", "abc" + BRIDGED[3:]]
    links = {name: Present(name, "", 1450, "", True, False, "") for name in [*ours, *others, BRIDGED]}
    todo = changes(Layout((Link(BRIDGED, "bridge", 1450),)), links, [], {})
    assert todo.links == [f"link delete {name}" for name in sorted(ours)]


def test_namespaces_that_are_new_and_those_that_go():
    wanted = Layout(namespaces=tuple(Namespace(name) for name in ("c", "b", "a")))
    todo = changes(wanted, {}, ["z", "b", "y"], {})
    assert (todo.new_namespaces, todo.old_namespaces) == (["a", "c"], ["y", "z"])


def test_peers_of_a_tunnel():
    wanted = Layout((TUNNELLED,), floods={TUNNEL: ("192.0.2.2", "192.0.2.3")})
    known = {TUNNEL: {"192.0.2.3", "192.0.2.5", "192.0.2.4"}, "another": {"192.0.2.9"}}
    entry = f"{EVERYBODY} dev {TUNNEL} dst"
    whole = [f"fdb append {entry} 192.0.2.2", f"fdb append {entry} 192.0.2.3"]
    todo = changes(wanted, {TUNNEL: there(TUNNELLED)}, [], known)
    gone = [f"fdb delete {entry} 192.0.2.{last}" for last in (4, 5)]
    assert todo.floods == [whole[0], *gone]
    assert changes(wanted, {TUNNEL: there(TUNNELLED, segment=8)}, [], known).floods == whole, "it is a new tunnel"
    assert changes(wanted, {}, [], {}).floods == whole


NAMESPACE = Namespace(
    "ns",
    addresses=(("leg1", "10.0.0.1/24"), ("leg1", "10.0.0.2/32"), ("leg2", "172.24.4.2/24")),
    routes=("default via 172.24.4.1", "192.0.2.7/32 via 10.0.0.9", "198.51.100.0/24 via 10.0.0.9"),
)


def test_inside_of_a_namespace():
    replaced = [f"route replace {route}" for route in NAMESPACE.routes]
    up = ["link set leg1 up", "link set leg2 up"]
    added = [f"address add {address} dev {leg}" for leg, address in NAMESPACE.addresses]
    assert inside(NAMESPACE, [], []) == ["link set lo up", *added, *up, *replaced]

    def shown(name, *addresses, family="inet"):
        return {"ifname": name, "addr_info": [
            {"family": family, "local": local, "prefixlen": prefix} for local, prefix in addresses]}  # fmt: skip

    addresses = [
        shown("lo", ("127.0.0.1", 8)),
        shown("leg1", ("10.0.0.1", 24), ("10.0.0.9", 32)),
        shown("leg2", ("fe80::1", 64), family="inet6"),
        {"ifname": "leg3"},
    ]
    routes = [
        {"dst": "default"},
        {"dst": "192.0.2.7"},
        {"dst": "10.0.0.0/24", "protocol": "kernel"},
        {"dst": "203.0.113.0/24", "protocol": "boot"},
        {"dst": "203.0.114.0/24"},
    ]
    assert inside(NAMESPACE, addresses, routes) == [
        "link set lo up",
        "address delete 10.0.0.9/32 dev leg1",
        *added[1:],
        *up,
        "route delete 203.0.113.0/24",
        "route delete 203.0.114.0/24",
        *replaced,
    ]


def test_neighbours_are_fixed_by_link_address_and_mac():
    wanted = [("leg1", "10.0.0.5", "fa:16:3e:00:00:05"), ("leg2", "10.0.0.5", "fa:16:3e:00:00:06")]
    namespace = Namespace("ns", neighbors=tuple(wanted))
    neighbors = [{"dev": "leg1", "dst": "10.0.0.5", "lladdr": "fa:16:3e:00:00:05"},
                 {"dev": "leg2", "dst": "10.0.0.5"},
                 {"dev": "leg3", "dst": "10.0.0.5", "lladdr": "fa:16:3e:00:00:05"},
                 {"dev": "leg1", "dst": "10.0.0.4", "lladdr": "fa:16:3e:00:00:05"}]  # fmt: skip
    assert inside(namespace, [], [], neighbors) == [
        "link set lo up",
        "neighbor delete 10.0.0.4 dev leg1",
        "neighbor delete 10.0.0.5 dev leg3",
        "neighbor replace 10.0.0.5 lladdr fa:16:3e:00:00:06 dev leg2 nud permanent",
    ]
