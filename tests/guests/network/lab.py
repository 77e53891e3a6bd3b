"""Hosts and guests for tests of networks: each is a network namespace of this machine, made and removed here. A guest
is plugged by a veth that has the name of its tap; nothing boots."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kilonova.compute.config_drive import Files
from kilonova.compute.network.bridged import BridgedNetwork
from kilonova.compute.network.layout import HostNetworkOptions, Plugged
from kilonova.compute.network.names import TAP, link
from kilonova.compute.network.programs import Programs
from kilonova.compute.network.services import NetworkServices
from kilonova.domain.guest_ports import GuestPort, PortAddress, PortRule
from kilonova.domain.host_network import HostPort, HostRouter, NetworkDocument

NETWORK = "6f1a7a30-0000-4000-8000-000000000001"
OTHER_NETWORK = "6f1a7a30-0000-4000-8000-000000000002"
EGRESS = PortRule(direction="egress", ethertype="IPv4")
PING = PortRule(direction="ingress", ethertype="IPv4", protocol="icmp")
UDHCPC = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr flush dev $interface
ip addr add $ip/$mask dev $interface
ip link set $interface mtu $mtu
set -- $staticroutes
while [ $# -gt 1 ]; do
  if [ $2 = 0.0.0.0 ]; then ip route replace $1 dev $interface; else ip route replace $1 via $2 dev $interface; fi
  shift 2
done
"""


def run(*words: str, check: bool = True, seconds: float = 20) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def reaches(namespace: str, address: str, *options: str) -> bool:
    """Whether one of three pings is answered.

    The first one may be lost: a neighbour that did not answer before is asked for its MAC again only a second later,
    and until then every packet to it is an error.
    """
    ping = ["ip", "netns", "exec", namespace, "ping", "-c1", "-W1", *options, address]
    return any(" 1 received" in run(*ping, check=False) for _ in range(3))


def port(
    number: int,
    *rules: PortRule,
    network: str = NETWORK,
    segment: int = 77,
    mtu: int = 1450,
    address: str = "",
    **fields: object,
) -> GuestPort:
    mine = PortAddress(
        address=address or f"10.7.0.{number}",
        prefix=24,
        version=4,
        subnet_id="subnet",
        gateway="10.7.0.254",
        dns_servers=["192.0.2.53"],
    )
    return GuestPort(
        port_id=f"{segment:08x}-0000-4000-8000-{number:012x}",
        network_id=network,
        network_name="net",
        mac=f"fa:16:3e:00:{segment:02x}:{number:02x}",
        mtu=mtu,
        network_type="vxlan",
        segment=segment,
        addresses=[mine],
        rules=[EGRESS, *rules],
        **fields,  # type: ignore[arg-type]
    )


class Guest:
    def __init__(self, name: str, plugged: GuestPort) -> None:
        self.name, self.port = name, plugged
        self.address = plugged.addresses[0].address
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def run(self, *words: str, check: bool = True) -> str:
        return run("ip", "netns", "exec", self.name, *words, check=check)

    def connect(self, host: str) -> None:
        """The cable; the tap's name is on the host's end."""
        peer = ["peer", "name", "eth0", "address", self.port.mac, "netns", self.name]
        run("ip", "-n", host, "link", "add", link(TAP, self.port.port_id), "type", "veth", *peer)

    def configure(self, address: str = "") -> None:
        """By hand, as a guest without DHCP."""
        run("ip", "-n", self.name, "address", "flush", "dev", "eth0")
        run("ip", "-n", self.name, "address", "add", f"{address or self.address}/24", "dev", "eth0")
        run("ip", "-n", self.name, "link", "set", "eth0", "mtu", str(self.port.mtu), "up")
        run("ip", "-n", self.name, "route", "replace", "default", "via", "10.7.0.254", "dev", "eth0", "onlink")
        run("ip", "-n", self.name, "route", "replace", "169.254.169.254/32", "dev", "eth0")

    def ask_dhcp(self, folder: Path) -> None:
        script = folder / "udhcpc.sh"
        script.write_text(UDHCPC)
        script.chmod(0o755)
        run("ip", "-n", self.name, "link", "set", "eth0", "up")
        options = ["-f", "-q", "-n", "-i", "eth0", "-t", "3", "-T", "1", "-s", str(script)]
        self.run("busybox", "udhcpc", *options, check=False)

    def reaches(self, address: str, *options: str) -> bool:
        return reaches(self.name, address, *options)

    def get(self, path: str, *options: str) -> str:
        return self.run("curl", "-sS", "-m", "5", *options, f"http://169.254.169.254{path}", check=False)


class Host:
    def __init__(self, lab: Lab, number: int) -> None:
        self.lab, self.name = lab, f"{lab.name}-h{number}"
        self.tunnel_address = f"10.99.0.{number}"
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        peer = ["peer", "name", "under", "mtu", "1500", "netns", self.name]
        run("ip", "-n", lab.name, "link", "add", f"h{number}", "mtu", "1500", "type", "veth", *peer)
        run("ip", "-n", lab.name, "link", "set", f"h{number}", "master", "cable", "up")
        run("ip", "-n", self.name, "address", "add", f"{self.tunnel_address}/24", "dev", "under")
        run("ip", "-n", self.name, "link", "set", "under", "up")
        self.trees: dict[str, Files] = {}  # by server
        self.guests: list[Guest] = []
        self.network = self.agent()

    def agent(self) -> BridgedNetwork:
        """As after a start of the agent."""
        place = HostNetworkOptions(self.name, self.tunnel_address, external_bridge="outside")
        programs = Programs(("nsenter", f"--net=/run/netns/{self.name}"))
        return BridgedNetwork(place, self.lab.folder / self.name, programs, NetworkServices(self._describe))

    async def _describe(self, plugged: Plugged) -> Files | None:
        return self.trees.get(plugged.server)

    async def plug(self, plugged: GuestPort, *, copy: int = 1) -> Guest:
        guest = Guest(f"{self.lab.name}-g{len(self.lab.namespaces)}", plugged)
        self.lab.namespaces.append(guest.name)
        guest.connect(self.name)
        self.guests.append(guest)
        await self.network.ensure_plugged(guest.name, copy, plugged)
        return guest

    async def update(
        self,
        ports: Sequence[GuestPort] | None = None,
        peers: Sequence[Host] = (),
        routers: Sequence[HostRouter] = (),
        networks: Sequence[str] = (NETWORK,),
    ) -> None:
        """A document with these ports instead of the guests' own."""
        mine = ports if ports is not None else [guest.port for guest in self.guests]
        servers = {guest.port.port_id: guest.name for guest in self.guests}
        document = NetworkDocument(
            ports=[HostPort(servers.get(one.port_id, "gone"), one) for one in mine],
            peers={network: [peer.tunnel_address for peer in peers] for network in networks},
            routers=list(routers),
        )
        await self.network.update(document, self.network.moment)

    def run(self, *words: str, check: bool = True) -> str:
        return run("nsenter", f"--net=/run/netns/{self.name}", *words, check=check)

    def shown(self) -> list[str]:
        """What a restart must not change."""
        links = sorted(line.split(">")[0] for line in self.run("ip", "-o", "link").splitlines())
        floods = [
            line for line in self.run("bridge", "fdb", "show").splitlines() if line.startswith("00:00:00:00:00:00")
        ]
        return [*links, *floods, self.run("nft", "list", "ruleset")]

    def state(self) -> dict[str, str]:
        """All that a host could keep by mistake."""
        links = {line.split()[0] for line in self.run("ip", "-br", "link").splitlines()}
        namespaces = {line.split()[0] for line in run("ip", "netns", "list").splitlines()}
        return {
            "links": " ".join(sorted(links)),
            "rules": self.run("nft", "list", "ruleset"),
            "namespaces": " ".join(sorted(name for name in namespaces if name.startswith("kn-"))),
            "files": " ".join(sorted(path.name for path in (self.lab.folder / self.name).glob("*"))),
        }


class Lab:
    """A switch between hosts."""

    def __init__(self) -> None:
        self.name = f"kt{os.getpid()}"
        self._directory = tempfile.TemporaryDirectory(prefix="kilonova-net-")
        self.folder = Path(self._directory.name)
        self.namespaces = [self.name]
        self.hosts: list[Host] = []
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "add", "cable", "mtu", "1500", "type", "bridge")
        run("ip", "-n", self.name, "link", "set", "cable", "up")

    async def host(self) -> Host:
        host = Host(self, len(self.hosts) + 1)
        self.namespaces.append(host.name)
        self.hosts.append(host)
        await host.network.start()
        return host

    async def close(self) -> None:
        for host in self.hosts:
            with contextlib.suppress(Exception):
                for guest in host.guests:
                    await host.network.ensure_unplugged(guest.name, 1)
                await host.update([], routers=[])
            await host.network.stop()
        for name in reversed(self.namespaces):
            run("ip", "netns", "delete", name, check=False)
        self._directory.cleanup()
