"""Networks of real hosts: what guests reach, what they get and what they are kept from."""

from __future__ import annotations

import asyncio
import subprocess
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kilonova.compute.network import sockets
from kilonova.compute.network.names import TAP, link, service_namespace
from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import AddressPair, PortRule
from tests.guests.network.conftest import Play
from tests.guests.network.lab import NETWORK, OTHER_NETWORK, PING, Guest, Lab, port, run

HTTP = PortRule(direction="ingress", ethertype="IPv4", protocol="tcp", port_min=8080, port_max=8080)


async def in_thread(call, *words):
    """What waits for an answer of this very process must not block it."""
    return await asyncio.to_thread(call, *words)


def listening(guest: Guest):
    return run_in_background(guest, "busybox", "httpd", "-f", "-p", "8080", "-h", "/etc")


def run_in_background(guest: Guest, *words: str):
    command = ["ip", "netns", "exec", guest.name, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def opens(guest: Guest, address: str) -> bool:
    shown = ["-o", "/dev/null", "-w", "%{http_code}"]
    return guest.run("curl", "-s", "-m", "1", *shown, f"http://{address}:8080/hostname", check=False) == "200"


def test_guests_of_two_hosts_talk_and_frames_fit_the_tunnel(play: Play) -> None:
    async def story(lab: Lab) -> None:
        one, two = await lab.host(), await lab.host()
        a, b = await one.plug(port(1, PING)), await two.plug(port(2, PING))
        a.configure(), b.configure()
        await one.update(peers=[two])
        await two.update(peers=[one])
        assert a.reaches(b.address), "over the tunnel"
        assert a.reaches(b.address, "-s", "1422", "-M", "do"), "1450 bytes with their heads"

    play(story)


def test_dhcp_gives_address_mtu_and_routes(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        guest = await host.plug(port(5, mtu=1500))
        await in_thread(guest.ask_dhcp, lab.folder)
        shown = run("ip", "-n", guest.name, "-br", "address", "show", "eth0")
        assert "10.7.0.5/24" in shown
        assert "mtu 1450" in run("ip", "-n", guest.name, "link", "show", "eth0"), "what fits the tunnel"
        routes = run("ip", "-n", guest.name, "route")
        assert "default via 10.7.0.254" in routes and "169.254.169.254 dev eth0" in routes

    play(story)


def test_dhcp_never_crosses_the_tunnel(play: Play) -> None:
    async def story(lab: Lab) -> None:
        one, two = await lab.host(), await lab.host()
        guest = await two.plug(port(2))
        await one.network.ensure_plugged("would-answer", 1, guest.port)
        await one.update([guest.port], peers=[two])
        await two.update([msgspec.structs.replace(guest.port, addresses=[])], peers=[one])
        await in_thread(guest.ask_dhcp, lab.folder)
        assert "10.7.0.2" not in run("ip", "-n", guest.name, "-br", "address")
        await one.network.ensure_unplugged("would-answer", 1)

    play(story)


def test_metadata_answers_each_guest_for_itself(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1)), await host.plug(port(2))
        host.trees = {
            a.name: {"openstack/latest/meta_data.json": b'{"name": "a"}', "latest/meta-data/hostname": b"a"},
            b.name: {"openstack/latest/meta_data.json": b'{"name": "b"}'},
        }
        a.configure(), b.configure()
        assert await in_thread(a.get, "/openstack/latest/meta_data.json") == '{"name": "a"}'
        assert await in_thread(b.get, "/openstack/latest/meta_data.json") == '{"name": "b"}'
        assert await in_thread(a.get, "/") == "latest\nopenstack"
        assert await in_thread(a.get, "/latest/meta-data/") == "hostname"
        refused = ("-H", "X-Forwarded-For: 10.7.0.2", "-o", "/dev/null", "-w", "%{http_code}")
        assert await in_thread(a.get, "/latest/meta-data/hostname", *refused) == "403"
        run("ip", "-n", a.name, "link", "set", "eth0", "down")  # else it answers ARP for its address itself
        b.configure(a.address)
        asked = ("/openstack/latest/meta_data.json", "-m", "2")
        assert await in_thread(b.get, *asked) == "", "not another's"
        pair = AddressPair(address="10.7.0.0/24", mac=b.port.mac)
        for change in ({"address_pairs": [pair]}, {"port_security": False}):
            await host.update([a.port, msgspec.structs.replace(b.port, **change)])
            await asyncio.sleep(1.1)  # a younger entry of the service's ARP cache is not replaced
            run("ip", "-n", b.name, "neighbor", "flush", "dev", "eth0")  # it asks again, and says where it is
            assert await in_thread(b.get, *asked) == "", f"not another's by {change}"
            b.configure()
            assert await in_thread(b.get, "/openstack/latest/meta_data.json") == '{"name": "b"}'
            b.configure(a.address)

    play(story)


def test_answers_of_the_metadata_service_are_not_led_astray(play: Play) -> None:
    """By a neighbour that says that the address of another guest is its own, which it may."""

    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1)), await host.plug(port(2))
        host.trees = {a.name: {"name": b"a"}, b.name: {"name": b"b"}}
        a.configure(), b.configure()
        assert (await in_thread(a.get, "/name"), await in_thread(b.get, "/name")) == ("a", "b")
        await asyncio.sleep(1.1)  # a younger entry of an ARP cache is not replaced
        pair = AddressPair(address="10.7.0.0/24", mac=b.port.mac)
        for change in ({"address_pairs": [pair]}, {"port_security": False}):
            await host.update([a.port, msgspec.structs.replace(b.port, **change)])
            for _ in range(2):
                await in_thread(sockets.within, b.name, partial(sockets.announce, "eth0", b.port.mac, [a.address]))
            assert await in_thread(a.get, "/name", "-m", "2") == "a", f"with {change}"

    play(story)


def test_a_port_is_closed_until_a_rule_opens_it_and_closed_again_without(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1)), await host.plug(port(2))
        a.configure(), b.configure()
        server = listening(b)
        try:
            assert not opens(a, b.address)
            began = time.monotonic()
            await host.update([a.port, port(2, HTTP)])
            while not opens(a, b.address):
                assert time.monotonic() - began < 2
            assert opens(a, b.address)
            assert not a.reaches(b.address), "other traffic stays out"
            await host.update([a.port, b.port])
            assert not opens(a, b.address)
        finally:
            server.kill()

    play(story)


def test_taking_a_rule_away_ends_connections(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1)), await host.plug(port(2, PING))
        a.configure(), b.configure()
        pings = run_in_background(a, "ping", "-q", "-i", "0.1", "-c", "20", b.address)
        await asyncio.sleep(0.5)
        await host.update([a.port, port(2)])
        shown = (await in_thread(pings.communicate))[0]
        assert " 0% packet loss" not in shown and " 100% packet loss" not in shown, shown
        assert not a.reaches(b.address)

    play(story)


def test_members_of_a_group_and_nobody_else(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        members = PortRule(
            direction="ingress", ethertype="IPv4", remote_group="group", remote_members=["10.7.0.1/32", "10.7.0.2/32"]
        )
        a, b, c = [await host.plug(port(number, members)) for number in (1, 2, 3)]
        for guest in (a, b, c):
            guest.configure()
        assert a.reaches(b.address) and b.reaches(a.address)
        assert not c.reaches(a.address) and a.reaches(c.address)

    play(story)


def test_nobody_sends_from_an_address_that_is_not_his(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1)), await host.plug(port(2, PING))
        a.configure(), b.configure()
        assert a.reaches(b.address)
        a.configure("10.7.0.9")
        assert not a.reaches(b.address), "another address"
        pair = AddressPair(address="10.7.0.8/31", mac=a.port.mac)
        await host.update([msgspec.structs.replace(a.port, address_pairs=[pair]), b.port])
        assert a.reaches(b.address), "an allowed pair"
        await host.update([a.port, b.port])
        a.configure()
        run("ip", "-n", a.name, "link", "set", "eth0", "address", "fa:16:3e:99:99:99")
        assert not a.reaches(b.address), "another MAC"
        await host.update([msgspec.structs.replace(a.port, port_security=False), b.port])
        assert a.reaches(b.address), "its owner switched port security off"

    play(story)


OVERLAPPING = [
    ["::/0", "fe80::/10", "10.7.0.0/24", "10.7.0.1", "10.7.0.7"],
    ["0.0.0.0/0", "fe80::f816:3eff:fe00:4d01", "fd00::/8", "fd00::1/128"],
]


@pytest.mark.parametrize("pairs", OVERLAPPING)
def test_pairs_of_one_port_that_overlap_close_no_port_of_others(play: Play, pairs: list[str]) -> None:
    """nft takes rules of all ports or none."""

    async def story(lab: Lab) -> None:
        host = await lab.host()
        given = [AddressPair(address=one, mac=mac) for one in pairs for mac in (port(1).mac, "fa:16:3e:99:99:99")]
        a, b = await host.plug(port(1, address_pairs=given)), await host.plug(port(2, PING))
        a.configure("10.7.0.9"), b.configure()
        assert a.reaches(b.address), "an allowed pair"

    play(story)


def test_an_agent_starts_with_rules_that_nft_refuses(play: Play) -> None:
    """What an agent of another version has written down. No tap is open until the rules are corrected."""

    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1, PING)), await host.plug(port(2, PING))
        a.configure(), b.configure()
        record = lab.folder / host.name / f"{a.port.port_id}.json"
        spoiled = record.read_bytes().replace(b'"protocol":"icmp"', b'"protocol":"300"')
        for is_flushed, is_open in ((False, True), (True, False)):
            await host.network.stop()
            record.write_bytes(spoiled)
            if is_flushed:
                host.run("nft", "flush", "ruleset")
            host.network = host.agent()
            await host.network.start()
            assert a.reaches(b.address) is is_open, "by the rules of the last run, if there are any"
            await host.update()
            assert a.reaches(b.address)

    play(story)


def test_a_port_whose_rules_nft_refuses_is_closed_and_those_of_others_go_on(play: Play) -> None:
    """nft takes rules of all ports or none; what it refuses here the API would refuse, too."""
    refused = PortRule(direction="ingress", ethertype="IPv4", protocol="300")

    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1, PING)), await host.plug(port(2, PING))
        a.configure(), b.configure()
        for number in (3, 4):
            with pytest.raises(Failed, match="300"):
                await host.plug(port(number, refused))
        c = await host.plug(port(5, PING))
        c.configure()
        assert a.reaches(c.address) and c.reaches(b.address), "plugged later"
        spoiled = port(1, refused)
        with pytest.raises(Failed, match="300"):
            await host.update([spoiled, port(2), c.port])
        assert not a.reaches(c.address), "closed"
        assert not c.reaches(a.address), "in both directions"
        assert not c.reaches(b.address), "the change of another port is there"
        await host.update([a.port, b.port, c.port])
        assert a.reaches(c.address) and c.reaches(b.address), "corrected"

    play(story)


def test_two_networks_with_the_same_addresses(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1, PING)), await host.plug(port(2, PING))
        other = await host.plug(port(1, PING, network=OTHER_NETWORK, segment=78))
        for guest in (a, b, other):
            guest.configure()
        assert a.reaches(b.address) and not other.reaches(b.address)

    play(story)


def test_a_restarted_agent_changes_nothing_and_goes_on(play: Play) -> None:
    async def story(lab: Lab) -> None:
        one, two = await lab.host(), await lab.host()
        a, b = await one.plug(port(1, PING)), await two.plug(port(2, PING))
        a.configure(), b.configure()
        await one.update(peers=[two])
        await two.update(peers=[one])
        assert b.reaches(a.address)
        pings = run_in_background(b, "ping", "-q", "-i", "0.05", "-c", "40", a.address)
        before = one.shown()
        await one.network.stop()
        one.network = one.agent()
        await one.network.start()
        assert one.shown() == before, "before a conductor has answered"
        await one.update(peers=[two])
        assert one.shown() == before
        assert " 0% packet loss" in (await in_thread(pings.communicate))[0]
        one.trees = {a.name: {"name": b"a"}}
        assert await in_thread(a.get, "/name") == "a"

    play(story)


def test_a_port_that_was_bound_elsewhere_is_silent(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1, PING)), await host.plug(port(2, PING))
        a.configure(), b.configure()
        assert a.reaches(b.address)
        await host.update([a.port])
        assert not a.reaches(b.address), "the conductor gave it to another host"
        asked_at = host.network.moment
        await host.network.ensure_plugged(b.name, 1, b.port)
        stale = msgspec.structs.replace(a.port)
        await host.network.update(_document(a, stale), asked_at)
        assert a.reaches(b.address), "plugged after that document was asked for"

    def _document(guest, plugged):
        from kilonova.domain.host_network import HostPort, NetworkDocument

        return NetworkDocument(ports=[HostPort(guest.name, plugged)])

    play(story)


def test_an_older_copy_does_not_unplug_a_newer_ones_port(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a = await host.plug(port(1), copy=1)
        await host.network.ensure_plugged(a.name, 2, a.port)
        await host.network.ensure_unplugged(a.name, 1)
        assert link(TAP, a.port.port_id) in host.run("ip", "-br", "link")
        await host.network.ensure_unplugged(a.name, 2)
        assert link(TAP, a.port.port_id) not in host.run("ip", "-br", "link")

    play(story)


def test_undoing_a_rebuild_leaves_the_old_copy_its_network(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        a, b = await host.plug(port(1), copy=1), await host.plug(port(2, PING))
        a.configure(), b.configure()
        await host.network.ensure_plugged(a.name, 2, a.port)
        await host.network.ensure_unplugged(a.name, 2)
        assert a.reaches(b.address)

    play(story)


def test_nothing_is_left_behind(play: Play) -> None:
    async def story(lab: Lab) -> None:
        one, two = await lab.host(), await lab.host()
        before = one.state()
        a = await one.plug(port(1))
        b = await one.plug(port(2, network=OTHER_NETWORK, segment=78))
        await two.plug(port(3))
        await one.update(peers=[two])
        assert one.state() != before
        for guest in (a, b):
            await one.network.ensure_unplugged(guest.name, 1)
            await one.network.ensure_unplugged(guest.name, 1)
        one.guests.clear()
        await one.update(networks=())
        after = one.state()
        mine = {key: after[key] for key in ("links", "rules", "files")}
        assert mine == {key: before[key] for key in mine}
        assert len(after["namespaces"].split()) == 1, "that of the other host"

    play(story)


def test_the_machine_itself_is_not_reached(play: Play) -> None:
    """A host answers ARP for all of its addresses on all of its links, unless somebody keeps it from that."""

    async def story(lab: Lab) -> None:
        host = await lab.host()
        guest = await host.plug(port(1))
        guest.configure()
        run("ip", "-n", guest.name, "route", "add", "10.99.0.0/24", "dev", "eth0")
        assert not guest.reaches(host.tunnel_address)
        assert "lladdr" not in run("ip", "-n", guest.name, "neigh", "show", host.tunnel_address)

    play(story)


def test_a_name_that_is_left_of_a_lost_namespace_is_in_nobodys_way(play: Play) -> None:
    async def story(lab: Lab) -> None:
        host = await lab.host()
        left = Path("/run/netns") / service_namespace(host.name, NETWORK)
        left.touch()
        guest = await host.plug(port(5))
        await in_thread(guest.ask_dhcp, lab.folder)
        assert "10.7.0.5/24" in run("ip", "-n", guest.name, "-br", "address", "show", "eth0")

    play(story)
