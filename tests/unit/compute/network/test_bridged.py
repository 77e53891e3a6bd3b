"""What the network of a host asks its programs for, without a network."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kilonova.compute.network.bridged import BridgedNetwork
from kilonova.compute.network.filters import ruleset
from kilonova.compute.network.layout import HostNetworkOptions
from kilonova.compute.network.names import TAP, link, router_namespace, service_namespace
from kilonova.compute.network.services import NetworkServices
from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import AddressPair, GuestPort, HostRoute, PortAddress
from kilonova.domain.host_network import HostPort, HostRouter, NetworkDocument, RouterLeg

ONE, TWO = (
    GuestPort(port_id=f"0000000{n}-aaaa", network_id="n", network_name="", mac=f"fa:16:3e:00:00:0{n}", mtu=1450)
    for n in (1, 2)
)


class Programs:
    """Remembers what it was given; shows links by name."""

    def __init__(self):
        self.links, self.lines, self.rules = set(), [], []

    def missing(self):
        return []

    async def need_bridge_filter(self):
        pass

    async def run(self, *words, given=""):
        if words[0] == "nft" and "--check" not in words:
            self.rules.append(given)
        return ""

    async def shown(self, *words):
        return [{"ifname": name, "mtu": 1450, "flags": ["UP"]} for name in self.links] if "link" in words else []

    async def batch(self, program, lines, *options):
        self.lines += lines
        for line in lines:
            words = line.split()
            if words[0] not in ("link", "tuntap"):
                continue
            if words[1] == "add":
                self.links.add(words[2])
            if words[1] == "delete":
                self.links.discard(words[2])


class NoServices(NetworkServices):
    def __init__(self):
        super().__init__(None)

    async def update(self, place, plugged, renewed):
        pass


async def started(folder, programs=None):
    programs = programs or Programs()
    network = BridgedNetwork(HostNetworkOptions("host1"), folder, programs, NoServices())
    await network.start()
    return network, programs


def document(*ports):
    return NetworkDocument(ports=[HostPort("server", port) for port in ports])


def test_a_copy_unplugs_its_own_ports_alone(tmp_path):
    async def story():
        network, programs = await started(tmp_path)
        await network.ensure_plugged("server", 1, ONE)
        await network.ensure_plugged("server", 2, ONE)
        await network.ensure_unplugged("server", 1)
        assert link(TAP, ONE.port_id) in programs.links
        await network.ensure_unplugged("server", 2)
        assert programs.links == set() and not list(tmp_path.iterdir())

    asyncio.run(story())


def test_a_tap_goes_with_the_last_copy_that_uses_it(tmp_path):
    """Undoing a rebuild removes the new copy while the old one runs with the same port, also after a restart."""

    async def story():
        network, programs = await started(tmp_path)
        for copy in (1, 2):
            await network.ensure_plugged("server", copy, ONE)
        await network.update(document(msgspec.structs.replace(ONE, dns_name="web")), network.moment)
        network, _ = await started(tmp_path, programs)
        programs.lines.clear()
        await network.ensure_unplugged("server", 2)
        tap = link(TAP, ONE.port_id)
        assert tap in programs.links and f"link delete {tap}" not in programs.lines
        assert tap in programs.rules[-1]
        network, _ = await started(tmp_path, programs)
        await network.ensure_unplugged("server", 2)
        assert tap in programs.links
        await network.ensure_unplugged("server", 1)
        assert programs.links == set() and not list(tmp_path.iterdir())

    asyncio.run(story())


def test_a_port_is_the_copys_that_was_plugged_last(tmp_path):
    async def story():
        network, programs = await started(tmp_path)
        for copy, shown in ((1, 1), (2, 2), (1, 1)):
            programs.lines.clear()
            await network.ensure_plugged("server", copy, ONE)
            assert f"link set {link(TAP, ONE.port_id)} alias server/{shown}" in programs.lines
        programs.lines.clear()
        await network.ensure_unplugged("server", 1)
        assert f"link set {link(TAP, ONE.port_id)} alias server/2" in programs.lines

    asyncio.run(story())


def test_records_of_an_older_agent_are_understood(tmp_path):
    """They name the copy that was plugged last, and no others."""

    async def story():
        record = {"server": "server", "copy": 2, "port": msgspec.to_builtins(ONE)}
        (tmp_path / f"{ONE.port_id}.json").write_bytes(msgspec.json.encode(record))
        network, programs = await started(tmp_path)
        await network.ensure_unplugged("server", 1)
        assert link(TAP, ONE.port_id) in programs.links
        await network.ensure_unplugged("server", 2)
        assert programs.links == set() and not list(tmp_path.iterdir())

    asyncio.run(story())


def test_a_port_that_is_bound_elsewhere_is_down_and_has_no_rules(tmp_path):
    async def story():
        network, programs = await started(tmp_path)
        for port in (ONE, TWO):
            await network.ensure_plugged("server", 1, port)
        programs.lines.clear()
        await network.update(document(TWO), network.moment)
        assert f"link set {link(TAP, ONE.port_id)} down" in programs.lines
        assert link(TAP, ONE.port_id) not in programs.rules[-1] and link(TAP, TWO.port_id) in programs.rules[-1]

    asyncio.run(story())


def test_a_document_does_not_judge_what_was_plugged_after_it_was_asked_for(tmp_path):
    async def story():
        network, programs = await started(tmp_path)
        asked_at = network.moment
        await network.ensure_plugged("server", 1, ONE)
        await network.update(document(), asked_at)
        assert f"link set {link(TAP, ONE.port_id)} down" not in programs.lines

    asyncio.run(story())


def test_rules_are_there_before_the_tap_is_up(tmp_path):
    async def story():
        network, programs = await started(tmp_path)
        seen = []

        async def batch(program, lines, *options):
            if any(line == f"link set {link(TAP, ONE.port_id)} up" for line in lines):
                seen.append(programs.rules[-1])

        programs.batch = batch
        await network.ensure_plugged("server", 1, ONE)
        assert len(seen) == 1 and link(TAP, ONE.port_id) in seen[0]

    asyncio.run(story())


def test_a_restarted_agent_writes_the_same_rules_before_a_conductor_answers(tmp_path):
    async def story():
        network, programs = await started(tmp_path)
        await network.ensure_plugged("server", 1, ONE)
        _, again = await started(tmp_path)
        assert again.rules == programs.rules[-1:]

    asyncio.run(story())


def test_an_agent_does_not_start_where_security_groups_would_filter_nothing(tmp_path):
    class Unfiltered(Programs):
        async def need_bridge_filter(self):
            raise Failed("no_bridge_filter", "br_netfilter is not loaded", final=True)

    async def story():
        with pytest.raises(Failed, match="br_netfilter"):
            await started(tmp_path, Unfiltered())

    asyncio.run(story())


class Refusing(Programs):
    """Refuses rules with this text as nft does, and lists the tables of those that it took last."""

    def __init__(self, refused, tables=()):
        super().__init__()
        self.refused, self.tables = refused, list(tables)

    async def run(self, *words, given=""):
        if words[:2] == ("nft", "list"):
            return "".join(f"table {family} kilonova\n" for family in self.tables)
        if words[0] == "nft" and self.refused in given:
            raise Failed("network_program_failed", "nft -f -: File exists")
        return await super().run(*words, given=given)


@pytest.mark.parametrize("tables", [(), ("bridge",), ("bridge", "inet")])
def test_rules_that_nft_refuses_do_not_keep_an_agent_from_starting(tmp_path, caplog, tables):
    """No tap is open meanwhile: the rules of the last run hold, or all taps are closed."""

    async def story():
        network, _ = await started(tmp_path)
        await network.ensure_plugged("server", 1, ONE)
        programs = Refusing(ONE.mac, tables)
        network, _ = await started(tmp_path, programs)
        assert programs.rules == ([] if len(tables) == 2 else [ruleset([])])
        assert not programs.links
        corrected = msgspec.structs.replace(ONE, mac="fa:16:3e:00:00:09")
        await network.update(document(corrected), network.moment)
        assert corrected.mac in programs.rules[-1]
        assert link(TAP, ONE.port_id) in programs.links

    asyncio.run(story())
    (error,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert "File exists" in error


THREE = msgspec.structs.replace(ONE, port_id="00000003-aaaa", mac="fa:16:3e:00:00:03")


def taps(programs):
    """Those that were set up last, by port."""
    words = [line.split() for line in programs.lines if line.startswith(f"link set {TAP}")]
    last = {line[2]: line[3] for line in words if line[3] in ("up", "down")}
    return {port.port_id for port in (ONE, TWO, THREE) if last.get(link(TAP, port.port_id)) == "up"}


def test_a_port_whose_rules_nft_refuses_is_closed_and_holds_up_no_other(tmp_path, caplog):
    async def story():
        programs = Refusing(TWO.mac, ("bridge", "inet"))
        network, _ = await started(tmp_path, programs)
        await network.ensure_plugged("first", 1, ONE)
        with pytest.raises(Failed, match="File exists"):
            await network.ensure_plugged("refused", 1, TWO)
        await network.ensure_plugged("later", 1, THREE)
        assert ONE.mac in programs.rules[-1] and THREE.mac in programs.rules[-1]
        assert taps(programs) == {ONE.port_id, THREE.port_id}
        with pytest.raises(Failed, match="File exists"):  # so that it is tried again soon
            await network.update(document(ONE, TWO, THREE), network.moment)
        assert TWO.mac not in programs.rules[-1]
        corrected = msgspec.structs.replace(TWO, mac="fa:16:3e:00:00:09")
        await network.update(document(ONE, corrected, THREE), network.moment)
        assert corrected.mac in programs.rules[-1]

    asyncio.run(story())
    (error,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert f"server=refused port={TWO.port_id}" in error and "File exists" in error


def test_rules_that_become_refused_close_their_port_alone(tmp_path):
    async def story():
        programs = Refusing("192.0.2.77", ("bridge", "inet"))
        network, _ = await started(tmp_path, programs)
        for server, port in (("one", ONE), ("two", TWO), ("three", THREE)):
            await network.ensure_plugged(server, 1, port)
        changed = msgspec.structs.replace(TWO, address_pairs=[AddressPair(address="192.0.2.77", mac=TWO.mac)])
        programs.links |= {link(TAP, one.port_id) for one in (ONE, TWO, THREE)}
        with pytest.raises(Failed, match="File exists"):
            await network.update(document(ONE, changed, THREE), network.moment)
        assert f"link set {link(TAP, TWO.port_id)} down" in programs.lines
        assert ONE.mac in programs.rules[-1] and TWO.mac not in programs.rules[-1] and THREE.mac in programs.rules[-1]

    asyncio.run(story())


def test_where_nft_refuses_everything_the_former_rules_hold(tmp_path):
    """That is not about a port."""

    async def story():
        programs = Refusing("no such text", ("bridge", "inet"))
        network, _ = await started(tmp_path, programs)
        for server, port in (("one", ONE), ("two", TWO)):
            await network.ensure_plugged(server, 1, port)
        before, programs.refused = list(programs.rules), "table"
        with pytest.raises(Failed, match="File exists"):
            await network.update(document(ONE), network.moment)
        assert programs.rules == before
        assert f"link set {link(TAP, ONE.port_id)} down" not in programs.lines

    asyncio.run(story())


def router(name, nexthop):
    leg = RouterLeg(port_id=f"{name}-leg", network_id=f"{name}-net", mac="fa:16:3e:00:01:01", mtu=1450)
    return HostRouter(router_id=name, legs=[leg], routes=[HostRoute("192.0.2.0/24", nexthop)])


class Picky(Programs):
    """Refuses a route as the kernel does; remembers the namespaces that were configured."""

    def __init__(self, refused):
        super().__init__()
        self.refused, self.configured = refused, []

    async def batch(self, program, lines, *options):
        if any(self.refused in line for line in lines):
            raise Failed("network_program_failed", "Nexthop has invalid gateway")
        self.configured += options[1:2]
        await super().batch(program, lines, *options)


def test_a_router_that_cannot_be_made_does_not_hold_up_those_of_others(tmp_path, caplog):
    """Neither while it is tried, nor in an agent that starts again with it."""
    bad, good = router("bad", "10.9.0.9"), router("good", "10.8.0.9")

    async def story():
        programs = Picky("10.9.0.9")
        network, _ = await started(tmp_path, programs)
        told = msgspec.structs.replace(document(), routers=[bad, good])
        with pytest.raises(Failed, match="invalid gateway"):
            await network.update(told, network.moment)
        assert programs.configured == [router_namespace("host1", "good")]
        again = Picky("10.9.0.9")
        network, _ = await started(tmp_path, again)
        assert again.configured == [router_namespace("host1", "good")]
        await network.ensure_plugged("server", 1, ONE)
        assert service_namespace("host1", "n") in again.configured

    asyncio.run(story())
    assert "is not configured: Nexthop has invalid gateway" in caplog.text


def test_a_port_whose_network_cannot_be_made_is_not_plugged(tmp_path):
    async def story():
        programs = Picky("link set lo up")
        network, _ = await started(tmp_path, programs)
        with pytest.raises(Failed, match="invalid gateway"):
            await network.ensure_plugged("server", 1, ONE)

    asyncio.run(story())


@pytest.mark.parametrize(("mode", "missing"), [("slaac", "router advertisements"), ("dhcpv6-stateful", "DHCPv6")])
def test_an_ipv6_address_that_no_guest_gets_is_named(tmp_path, caplog, mode, missing):
    async def story():
        network, _ = await started(tmp_path)
        for address_mode in ("", mode):
            six = PortAddress(address="fd00::5", prefix=64, version=6, subnet_id="s", address_mode=address_mode)
            await network.ensure_plugged("server", 1, msgspec.structs.replace(ONE, addresses=[six]))

    asyncio.run(story())
    (warning,) = [one.getMessage() for one in caplog.records if "IPv6" in one.getMessage()]
    assert "address=fd00::5" in warning and f"reason=no {missing} yet" in warning
