"""Which programs a host's network runs when ports, documents and namespaces come and go, without a network."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kilonova.compute.network import sockets
from kilonova.compute.network.bridged import BridgedNetwork
from kilonova.compute.network.filters import METADATA_ADDRESS, no_rules
from kilonova.compute.network.layout import HostNetworkOptions
from kilonova.compute.network.links import EVERYBODY
from kilonova.compute.network.names import (
    INSIDE,
    TAP,
    VXLAN,
    link,
    namespaces_of,
    router_leg_inside,
    router_namespace,
    service_namespace,
)
from kilonova.compute.network.programs import HANGS
from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import FloatingAddress, HostPort, HostRouter, NetworkDocument, RouterLeg
from tests.unit.compute.network.test_bridged import ONE, TWO, NoServices, Programs, document

OUT = "br-out"
GATEWAY = RouterLeg(port_id="way", network_id="out", mac="fa:16:3e:00:02:01", mtu=1500, addresses=["172.24.4.2/24"])
LEG = RouterLeg(port_id="leg", network_id="n", mac="fa:16:3e:00:02:02", mtu=1450, addresses=["10.0.0.1/24"])
ROUTER = HostRouter(router_id="r", legs=[LEG], gateway=GATEWAY)
ELSEWHERE = msgspec.structs.replace(TWO, network_id="m")


class Services(NoServices):
    def __init__(self):
        super().__init__()
        self.served, self.renewed, self.forgotten, self.is_stopped = [], [], [], False
        self.forget = self.forgotten.append

    async def update(self, options, plugged, renewed):
        self.served = sorted(one.port.port_id for one in plugged)
        self.renewed += renewed

    async def stop(self):
        self.is_stopped = True


class Machine(Programs):
    """Has namespaces, and shows every command that it was given."""

    def __init__(self):
        super().__init__()
        self.namespaces, self.commands, self.shows, self.lacks = [], [], [], []

    def missing(self):
        return self.lacks

    async def run(self, *words, given=""):
        self.commands.append((" ".join(words), given))
        if words[:3] == ("ip", "netns", "add"):
            assert words[3] not in self.namespaces
            self.namespaces.append(words[3])
        elif words[:3] == ("ip", "netns", "delete"):
            self.namespaces.remove(words[3])
        return await super().run(*words, given=given)

    async def shown(self, *words):
        self.shows.append(" ".join(words))
        if words[0] == "bridge":
            return []  # no tunnel sends anywhere yet
        return [{"name": name} for name in self.namespaces] if "netns" in words else await super().shown(*words)

    def inside(self, name):
        """The commands that were run in the namespace since the last look."""
        begin = f"ip netns exec {name} "
        found = [(words.removeprefix(begin), given) for words, given in self.commands if words.startswith(begin)]
        self.commands = [one for one in self.commands if not one[0].startswith(begin)]
        return found


class Host:
    def __init__(self, folder, tunnel_address=""):
        self.machine, self.services = Machine(), Services()
        options = HostNetworkOptions("host1", tunnel_address, external_bridge=OUT)
        self.network = BridgedNetwork(options, folder, self.machine, self.services)

    async def start(self):
        await self.network.start()
        return self

    async def told(self, *ports, routers=()):
        ports = [HostPort("server", port) for port in ports]
        await self.network.update(NetworkDocument(ports=ports, routers=list(routers)), self.network.moment)

    def lines(self):
        found, self.machine.lines = self.machine.lines, []
        return found


class Told(list):
    """What neighbours were told: link, MAC and addresses. `lost`: names that are no namespaces any more."""

    def __init__(self):
        super().__init__()
        self.lost = set()


@pytest.fixture(autouse=True)
def announced(monkeypatch):
    """Entering a namespace takes root: here nobody does."""
    told = Told()
    monkeypatch.setattr(sockets, "is_namespace", lambda name: name not in told.lost)
    monkeypatch.setattr(sockets, "within", lambda name, make: make())
    monkeypatch.setattr(sockets, "announce", lambda each, mac, mine: told.append((each, mac, mine)))
    return told


def up(port):
    return f"link set {link(TAP, port.port_id)} up"


def test_an_agent_does_not_start_without_its_programs(tmp_path):
    async def story():
        host = Host(tmp_path)
        host.machine.lacks = ["nft", "bridge"]
        with pytest.raises(Failed, match="not installed: nft, bridge") as why:
            await host.start()
        assert (why.value.code, why.value.final) == ("network_programs_missing", True)

    asyncio.run(story())


def test_services_end_with_the_network(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        assert not host.services.is_stopped
        await host.network.stop()
        assert host.services.is_stopped

    asyncio.run(story())


def test_a_port_that_comes_back_is_open_again(tmp_path):
    """By an order, or because the document names it again."""

    async def story():
        host = await Host(tmp_path).start()
        await host.network.ensure_plugged("server", 1, ONE)
        assert host.services.served == [ONE.port_id]
        for back in (host.network.ensure_plugged("server", 2, ONE), host.told(ONE)):
            await host.told()
            assert host.services.served == []
            host.machine.links.clear()
            host.lines()
            await back
            assert up(ONE) in host.lines() and host.services.served == [ONE.port_id]
            assert link(TAP, ONE.port_id) in host.machine.rules[-1]
        assert host.services.forgotten == ["server", "server"]

    asyncio.run(story())


def test_a_document_judges_what_was_plugged_when_it_was_asked_for(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        for port in (ONE, TWO):
            await host.network.ensure_plugged("server", 1, port)
        await host.network.update(document(), host.network.moment - 1)
        assert host.services.served == [TWO.port_id], "the second was plugged since"
        await host.network.update(document(), host.network.moment)
        assert host.services.served == []

    asyncio.run(story())


def test_one_port_of_a_copy_is_unplugged_or_all(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        for server, port in (("server", ONE), ("server", TWO), ("other", ELSEWHERE)):
            await host.network.ensure_plugged(server, 1, msgspec.structs.replace(port, port_id=server + port.port_id))
        taps = {link(TAP, name) for name in ("server" + ONE.port_id, "server" + TWO.port_id, "other" + TWO.port_id)}
        assert taps <= host.machine.links
        await host.network.ensure_unplugged("server", 1, "server" + ONE.port_id)
        assert taps & host.machine.links == taps - {link(TAP, "server" + ONE.port_id)}
        asked = len(host.machine.shows)
        for server, copy, port_id in (("server", 2, ""), ("nobody", 1, ""), ("server", 1, "other" + TWO.port_id)):
            await host.network.ensure_unplugged(server, copy, port_id)
        assert len(host.machine.shows) == asked, "there was nothing to do"
        await host.network.ensure_unplugged("server", 1)
        assert taps & host.machine.links == {link(TAP, "other" + TWO.port_id)}

    asyncio.run(story())


def test_the_tap_of_a_port_that_is_gone_is_not_deleted_again(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        await host.network.ensure_plugged("server", 1, ONE)
        host.machine.links.discard(link(TAP, ONE.port_id))
        await host.network.ensure_unplugged("server", 1)
        assert f"link delete {link(TAP, ONE.port_id)}" not in host.lines()

    asyncio.run(story())


def test_the_last_document_is_kept_for_the_next_start(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        await host.told(routers=[ROUTER])
        again = await Host(tmp_path).start()
        assert router_namespace("host1", "r") in again.machine.namespaces
        await again.told()
        assert not list(tmp_path.iterdir())
        assert (await Host(tmp_path).start()).machine.namespaces == []

    asyncio.run(story())


def test_rules_end_with_the_last_port_router_and_tap(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        assert host.machine.rules == [no_rules()]
        await host.told(routers=[ROUTER])
        assert len(host.machine.rules) == 2 and "table bridge kilonova {" in host.machine.rules[-1]
        await host.told()
        assert host.machine.rules[-1] == no_rules()
        await host.network.ensure_plugged("server", 1, ONE)
        await host.network.ensure_unplugged("server", 1)
        assert host.machine.rules[-1] == no_rules()
        host.machine.links.add(link(TAP, "of nobody"))
        await host.told(routers=[ROUTER])
        await host.told()
        assert host.machine.rules[-1] != no_rules(), "a tap of which nothing is known stays closed"

    asyncio.run(story())


def test_the_external_bridge_is_made_for_a_router_with_a_gateway(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        await host.network.ensure_plugged("server", 1, ONE)
        await host.told(ONE, routers=[msgspec.structs.replace(ROUTER, gateway=None)])
        assert not [line for line in host.lines() if OUT in line]
        await host.told(ONE, routers=[ROUTER])
        assert [line for line in host.lines() if OUT in line][:2] == [
            f"link add {OUT} type bridge",
            f"link set {OUT} up",
        ]
        await host.told(ONE, routers=[ROUTER, msgspec.structs.replace(ROUTER, router_id="s")])
        assert f"link add {OUT} type bridge" not in host.lines(), "it is there"

    asyncio.run(story())


def test_a_namespace_is_configured_once_and_again_when_it_changes(tmp_path, announced):
    name = router_namespace("host1", "r")

    async def story():
        host = await Host(tmp_path).start()
        await host.told(routers=[ROUTER])
        (forwarding, rules) = host.machine.inside(name)
        assert forwarding[0].startswith("sysctl -q -w net.ipv4.ip_forward=1")
        assert rules[0] == "nft -f -" and "table ip kilonova" in rules[1]
        out, leg = router_leg_inside("way"), router_leg_inside("leg")
        assert announced == [(leg, LEG.mac, ["10.0.0.1"]), (out, GATEWAY.mac, ["172.24.4.2"])]
        announced.clear()
        await host.told(routers=[ROUTER])
        assert host.machine.inside(name) == [] and announced == []
        floating = msgspec.structs.replace(ROUTER, floating=[FloatingAddress("172.24.4.9", "10.0.0.5")])
        await host.told(routers=[floating])
        assert len(host.machine.inside(name)) == 2
        assert announced == [(out, GATEWAY.mac, ["172.24.4.9"])], "only what is new"

    asyncio.run(story())


def test_the_namespace_of_a_network_forwards_nothing_and_announces_nothing(tmp_path, announced):
    async def story():
        host = await Host(tmp_path).start()
        await host.network.ensure_plugged("server", 1, ONE)
        name = service_namespace("host1", "n")
        assert host.machine.namespaces == [name] and host.machine.inside(name) == [] and announced == []
        assert f"address add {METADATA_ADDRESS}/32 dev {INSIDE}" in host.lines()
        await host.network.ensure_unplugged("server", 1)
        assert host.machine.namespaces == []

    asyncio.run(story())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_namespace_that_went_away_is_made_and_configured_again(tmp_path, announced, is_lost):
    """Deleted by somebody, or only its name is left, as after the machine's restart."""
    name = router_namespace("host1", "r")

    async def story():
        host = await Host(tmp_path).start()
        await host.told(routers=[ROUTER])
        assert len(host.machine.inside(name)) == 2
        host.services.renewed.clear()
        if is_lost:
            announced.lost.add(name)
        else:
            host.machine.namespaces.remove(name)
        await host.told(routers=[ROUTER])
        assert host.machine.namespaces == [name] and len(host.machine.inside(name)) == 2
        assert host.services.renewed == [name]

    asyncio.run(story())


def test_a_router_that_comes_back_is_configured_again(tmp_path):
    name = router_namespace("host1", "r")

    async def story():
        host = await Host(tmp_path).start()
        for _ in range(2):
            await host.told(routers=[ROUTER])
            assert len(host.machine.inside(name)) == 2
            await host.told()
            assert host.machine.namespaces == []

    asyncio.run(story())


def test_namespaces_of_others_stay(tmp_path, announced):
    async def story():
        host = Host(tmp_path)
        others = [f"{namespaces_of('host2')}0", "operator"]
        host.machine.namespaces = [*others, f"{namespaces_of('host1')}0"]
        announced.lost.update(others)
        await host.start()
        assert host.machine.namespaces == others

    asyncio.run(story())


def test_a_network_that_cannot_be_configured_is_served_to_nobody(tmp_path, caplog):
    async def story():
        host = await Host(tmp_path).start()
        broken, batch = service_namespace("host1", "m"), host.machine.batch

        async def failing(program, lines, *options):
            if broken in options:
                raise Failed("network_program_failed", "no such device")
            await batch(program, lines, *options)

        host.machine.batch = failing
        await host.network.ensure_plugged("server", 1, ONE)
        with pytest.raises(Failed, match="no such device"):
            await host.network.ensure_plugged("server", 1, ELSEWHERE)
        assert host.services.served == [ONE.port_id]
        await host.network.ensure_plugged("server", 2, ONE)
        assert f"namespace {broken} is not configured: no such device" in caplog.text
        host.machine.batch = batch
        await host.told(ONE, ELSEWHERE)
        assert host.services.served == sorted([ONE.port_id, ELSEWHERE.port_id])

    asyncio.run(story())


def hanging(machine, verb, at, times):
    """The machine's verb hangs at this word, so many times."""
    usual, left = getattr(machine, verb), [times]

    async def call(*words, **more):
        if left[0] and any(at in str(word) for word in words):
            left[0] -= 1
            raise Failed(HANGS, f"ip {at}: no end after 30 s")
        return await usual(*words, **more)

    setattr(machine, verb, call)


@pytest.mark.parametrize(
    ("verb", "at"),
    [("shown", "address"), ("shown", "-d"), ("batch", "-n"), ("batch", "link add"), ("run", "netns")],
    ids=["looks into a namespace", "looks at links", "configures a namespace", "makes links", "makes a namespace"],
)
def test_a_program_that_hangs_is_tried_once_more(tmp_path, caplog, verb, at):
    async def story():
        host = await Host(tmp_path).start()
        hanging(host.machine, verb, at, 1)
        await host.network.ensure_plugged("server", 1, ONE)
        assert host.services.served == [ONE.port_id] and up(ONE) in host.lines()
        assert caplog.text.count("no end after 30 s; trying again") == 1
        await host.network.ensure_unplugged("server", 1)
        hanging(host.machine, verb, at, 2)
        with pytest.raises(Failed, match="no end after 30 s") as why:
            await host.network.ensure_plugged("server", 1, TWO)
        assert why.value.code == HANGS

    asyncio.run(story())


def test_a_program_that_fails_is_not_tried_again(tmp_path, caplog):
    async def story():
        host = await Host(tmp_path).start()
        tries = list[str]()

        async def failing(*words):
            tries.append(words[0])
            raise Failed("network_program_failed", "no such device")

        host.machine.shown = failing
        with pytest.raises(Failed, match="no such device"):
            await host.network.ensure_plugged("server", 1, ONE)
        assert len(tries) == 1 and "trying again" not in caplog.text

    asyncio.run(story())


def test_a_tunnel_sends_to_the_peers_of_the_document(tmp_path):
    async def story():
        host = await Host(tmp_path, "192.0.2.1").start()
        port = msgspec.structs.replace(ONE, network_type="vxlan", segment=7)
        await host.network.ensure_plugged("server", 1, port)
        tunnel = link(VXLAN, "n")
        document = NetworkDocument(ports=[HostPort("server", port)], peers={"n": ["192.0.2.1", "192.0.2.2"]})
        host.lines()
        await host.network.update(document, host.network.moment)
        entry = f"fdb append {EVERYBODY} dev {tunnel} dst 192.0.2.2"
        assert [line for line in host.lines() if line.startswith("fdb")] == [entry]

    asyncio.run(story())


def test_without_tunnels_nobody_asks_for_peers(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        await host.network.ensure_plugged("server", 1, ONE)
        assert not [words for words in host.machine.shows if words.startswith("bridge")]

    asyncio.run(story())


def test_the_mtu_of_a_tunnelled_port_fits_into_the_tunnel(tmp_path):
    async def story():
        host = await Host(tmp_path).start()
        large = {"mtu": 9000, "port_id": "large"}
        for kind, mtu in (("vxlan", 1450), ("local", 9000)):
            port = GuestPort(**{**msgspec.structs.asdict(ONE), **large, "network_type": kind})
            plug = await host.network.ensure_plugged("server", 1, port)
            assert (plug.kind, plug.device, plug.mtu) == ("tap", link(TAP, "large"), mtu)

    asyncio.run(story())
