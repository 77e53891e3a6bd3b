"""The address translations of a router, as text for nft. What they do is seen in tests/guests/network."""

import msgspec
import pytest

from kilonova.compute.network.names import router_leg_inside
from kilonova.compute.network.nat import translations
from kilonova.domain.host_network import FloatingAddress, HostRouter, RouterLeg

OUT = router_leg_inside("way")
GATEWAY = RouterLeg(port_id="way", network_id="out", mac="fa:16:3e:00:00:01", mtu=1500)
ADDRESSES = ["2001:db8::2/64", "172.24.4.2/24", "172.24.4.3/24"]
ROUTER = HostRouter(router_id="r", gateway=msgspec.structs.replace(GATEWAY, addresses=ADDRESSES))
FLOATING = [FloatingAddress("172.24.4.9", "10.0.0.5"), FloatingAddress("172.24.4.10", "10.0.0.6")]

ENTERING = f'iifname "{OUT}" meta mark set 1'
SHARED = f'oifname "{OUT}" ip saddr != 172.24.4.2 snat to 172.24.4.2'
RETURN = "meta mark != 1 ct status dnat"


def chains(router):
    head, *text = translations(router).splitlines()[1:]
    assert head == "delete table ip kilonova" and text[0] == "table ip kilonova {"
    found, name = {}, ""
    for line in text[1:-1]:
        if line.startswith("  chain"):
            name = line.split()[1]
        elif line.startswith("    "):
            found.setdefault(name, []).append(line.strip())
    hooks = [f"type nat hook {name} priority {way}; policy accept;"
             for name, way in (("prerouting", "dstnat"), ("postrouting", "srcnat"))]  # fmt: skip
    assert [found["prerouting"].pop(0), found["postrouting"].pop(0)] == hooks
    return found["prerouting"], found["postrouting"]


def test_a_router_without_a_gateway_translates_nothing():
    assert chains(HostRouter(router_id="r", floating=FLOATING)) == ([], [])


def test_what_goes_out_takes_the_gateways_first_address():
    assert chains(ROUTER) == ([ENTERING], [f"{RETURN} snat to 172.24.4.2", SHARED])


@pytest.mark.parametrize(("addresses", "snat"), [(ADDRESSES, False), (ADDRESSES[:1], True), ([], True)])
def test_without_snat_or_an_address_of_ipv4_it_keeps_its_own(addresses, snat):
    router = msgspec.structs.replace(ROUTER, gateway=msgspec.structs.replace(GATEWAY, addresses=addresses), snat=snat)
    back = [f"{RETURN} snat to 172.24.4.2"] if len(addresses) > 1 else []
    assert chains(router) == ([ENTERING], back)


def test_floating_addresses_both_ways():
    before, after = chains(msgspec.structs.replace(ROUTER, floating=FLOATING))
    assert before == [ENTERING, "ip daddr 172.24.4.9 dnat to 10.0.0.5", "ip daddr 172.24.4.10 dnat to 10.0.0.6"]
    assert after == [
        f'oifname "{OUT}" ip saddr 10.0.0.5 snat to 172.24.4.9',
        f'oifname "{OUT}" ip saddr 10.0.0.6 snat to 172.24.4.10',
        f"{RETURN} ip saddr 10.0.0.5 snat to 172.24.4.9",
        f"{RETURN} ip saddr 10.0.0.6 snat to 172.24.4.10",
        f"{RETURN} snat to 172.24.4.2",
        SHARED,
    ]
