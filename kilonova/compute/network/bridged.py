"""The network of a host where the agent is root: a tap for each port on the bridge of its network.

The wanted state is computed from the plugged ports and the conductor's document (layout.py, filters.py); `_compare`
compares it with the present one and changes the difference, so that a restart or a second call changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import msgspec

from kilonova.compute.network import sockets
from kilonova.compute.network.filters import Outside, no_rules, ruleset
from kilonova.compute.network.layout import HostNetworkOptions, Namespace, Plugged, effective_mtu, layout
from kilonova.compute.network.links import changes, flood_entries, inside, present
from kilonova.compute.network.names import TAP, link, namespaces_of, service_namespace
from kilonova.compute.network.plugged import PluggedPorts, plug
from kilonova.compute.network.port_rules import PortRules, RulesRefused
from kilonova.compute.network.programs import HANGS, Programs
from kilonova.compute.network.services import NetworkServices
from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import NetworkDocument, Plug

logger = logging.getLogger(__name__)
FORWARDING = ("net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")


class BridgedNetwork:
    filters = True

    def __init__(
        self, options: HostNetworkOptions, folder: Path, programs: Programs, services: NetworkServices
    ) -> None:
        self._options = options
        self._programs = programs
        self._services = services
        self._ports = PluggedPorts(folder)
        self._document = NetworkDocument()
        self._unbound: set[str] = set()  # ports with a tap here that the document does not name
        self._plugged_at: dict[str, int] = {}  # by port: when, counted in calls
        self._calls = 0
        self._rules = PortRules(programs)
        self._configured: dict[str, Namespace] = {}
        self._lock = asyncio.Lock()

    @property
    def moment(self) -> int:
        """Return the count of calls for `update`: a port plugged later is not judged by an earlier document."""
        return self._calls

    async def start(self) -> None:
        """Continue with the present links, and replace the rules by the same ones.

        Rules that nft refuses do not keep the agent from starting: the conductor sends the document that corrects them.
        """
        missing = self._programs.missing()
        if missing:
            raise Failed("network_programs_missing", f"not installed: {', '.join(missing)}", final=True)
        await self._programs.need_bridge_filter()
        self._ports.load()
        self._document = self._ports.load_document()
        async with self._lock:
            try:
                if plugged := self._plugged():
                    await self._rules.write(self._rules_for(plugged))
                _warn(await self._converge())
            except RulesRefused as why:
                logger.error("rules of the host not written, new ports stay closed: %s", why.message)
                await self._rules.close_unless_filtered()

    async def stop(self) -> None:
        await self._services.stop()

    async def ensure_plugged(self, server: str, copy: int, port: GuestPort) -> Plug:
        async with self._lock:
            self._calls += 1
            self._plugged_at[port.port_id] = self._calls
            self._unbound.discard(port.port_id)
            self._services.forget(server)
            self._ports.keep(plug(self._ports.records.get(port.port_id), (server, copy), port))
            failed = await self._converge()
            refused = self._rules.refused.get(port.port_id)
        if (why := refused or failed.pop(self._service_of(Plugged(server, copy, port)), None)) is not None:
            raise why
        _warn(failed)
        _warn_of_ipv6(server, port)
        mtu = effective_mtu(self._options, port.network_type, port.mtu)
        return Plug(kind="tap", device=link(TAP, port.port_id), mtu=mtu)

    async def ensure_unplugged(self, server: str, copy: int, port_id: str = "") -> None:
        """Unplug one port of this copy, or all. A port that another copy uses stays."""
        async with self._lock:
            going = [
                record
                for record in self._ports.records.values()
                if (server, copy) in record.copies and port_id in ("", record.port.port_id)
            ]
            for record in going:
                if (left := record.without((server, copy))) is not None:
                    self._ports.keep(left)
                else:
                    await self._forget(record.port.port_id)
            if going:
                _warn(await self._converge())

    async def _forget(self, port_id: str) -> None:
        await self._remove_tap(port_id)
        self._ports.drop(port_id)
        self._unbound.discard(port_id)
        self._plugged_at.pop(port_id, None)

    async def update(self, document: NetworkDocument, requested_at: int) -> None:
        """Apply the ports that the conductor knew after `requested_at` (see `moment`)."""
        async with self._lock:
            if (document.peers, document.routers) != (self._document.peers, self._document.routers):
                self._ports.keep_document(document)
            self._document = document
            bound = {one.port.port_id: one.port for one in document.ports}
            for port_id, record in list(self._ports.records.items()):
                if port_id in bound:
                    self._unbound.discard(port_id)
                    self._ports.keep(msgspec.structs.replace(record, port=bound[port_id]))
                elif self._plugged_at.get(port_id, 0) <= requested_at:
                    self._unbound.add(port_id)
            failed = await self._converge()
            refused = self._rules.refused
        for why in (*refused.values(), *failed.values()):
            raise why  # the follower of the conductor retries soon

    # -- making it so -------------------------------------------------------------------------------------------------

    def _plugged(self) -> list[Plugged]:
        return [
            Plugged(record.server, record.copy, record.port, is_bound=record.port.port_id not in self._unbound)
            for record in self._ports.records.values()
        ]

    async def _converge(self) -> dict[str, Failed]:
        """Compare the host with what it should be, and change it; again if a program hung. That one was ended, and what
        it had done by then is seen: a build on the only host left does not fail for a lost answer of the kernel."""
        try:
            failed = await self._compare()
            hung = next((why for why in failed.values() if why.code == HANGS), None)
            if hung is None:
                return failed
        except Failed as why:
            if why.code != HANGS:
                raise
            hung = why
        logger.warning("network of the host: %s; trying again", hung.message)
        return await self._compare()

    async def _compare(self) -> dict[str, Failed]:
        """Return the failures by the name of the namespace: a router or network of one project does
        not prevent those of others."""
        links = present(await self._programs.shown("ip", "-j", "-d", "link", "show"))
        plugged = await self._filtered(links)  # first: no tap is open before its rules are there
        wanted = layout(self._options, plugged, self._document.peers, self._document.routers)
        floods = flood_entries(await self._programs.shown("bridge", "-j", "fdb", "show")) if wanted.floods else {}
        namespaces = await self._namespaces()
        if self._options.external_bridge not in links and any(one.gateway for one in self._document.routers):
            await self._programs.batch("ip", [f"link add {self._options.external_bridge} type bridge"])
            await self._programs.batch("ip", [f"link set {self._options.external_bridge} up"])
        todo = changes(wanted, links, namespaces, floods)
        for name in (*todo.new_namespaces, *todo.old_namespaces):
            self._configured.pop(name, None)
        for name in todo.new_namespaces:
            await self._programs.run("ip", "netns", "add", name)
        await self._programs.batch("ip", todo.links)
        await self._programs.batch("bridge", todo.floods)
        failed = dict[str, Failed]()
        for namespace in wanted.namespaces:
            try:
                await self._configure(namespace)
            except Failed as why:
                failed[namespace.name] = why
        served = [one for one in plugged if one.is_bound and self._service_of(one) not in failed]
        await self._services.update(self._options, served, set(todo.new_namespaces))
        for name in todo.old_namespaces:
            await self._programs.run("ip", "netns", "delete", name)
        return failed

    async def _filtered(self, links: Collection[str]) -> list[Plugged]:
        """Return the ports, after writing their rules."""
        plugged = self._plugged()
        if not plugged and not self._document.routers and not any(name.startswith(TAP) for name in links):
            await self._rules.write(no_rules())
            return plugged
        return await self._rules.write_for(plugged, self._rules_for)

    def _service_of(self, plugged: Plugged) -> str:
        return service_namespace(self._options.host, plugged.port.network_id)

    async def _namespaces(self) -> list[str]:
        """Return this host's. Delete the names of namespaces that are gone: they would prevent new ones."""
        namespaces = await self._programs.shown("ip", "-j", "netns", "list")
        mine = [one["name"] for one in namespaces if one["name"].startswith(namespaces_of(self._options.host))]
        for name in [name for name in mine if not sockets.is_namespace(name)]:
            mine.remove(name)
            await self._programs.run("ip", "netns", "delete", name)
        return mine

    def _rules_for(self, plugged: Sequence[Plugged]) -> str:
        networks = {leg.network_id for router in self._document.routers for leg in router.legs}
        ports = [one.port for one in plugged if one.is_bound]
        legs = [router.gateway.port_id for router in self._document.routers if router.gateway is not None]
        outside = Outside(self._options.external_bridge, legs)
        return ruleset(sorted(ports, key=lambda port: port.port_id), networks, outside)

    async def _configure(self, namespace: Namespace) -> None:
        if self._configured.get(namespace.name) == namespace:
            return
        name = namespace.name
        if namespace.forwards:
            await self._programs.run("ip", "netns", "exec", name, "sysctl", "-q", "-w", *FORWARDING)
        if namespace.rules:
            await self._programs.run("ip", "netns", "exec", name, "nft", "-f", "-", given=namespace.rules)
        addresses = await self._programs.shown("ip", "-n", name, "-j", "address", "show")
        routes = await self._programs.shown("ip", "-n", name, "-j", "-4", "route", "show")
        neighbors = await self._programs.shown("ip", "-n", name, "-j", "-4", "neighbor", "show", "nud", "permanent")
        await self._programs.batch("ip", inside(namespace, addresses, routes, neighbors), "-n", name)
        self._announce(namespace, self._configured.get(name))
        self._configured[name] = namespace

    def _announce(self, namespace: Namespace, before: Namespace | None) -> None:
        """Announce new addresses: a floating address may have been another router's, and its neighbours would send
        there for a while."""
        known = set(before.addresses) if before is not None else set()
        new = [(each, address.split("/")[0]) for each, address in namespace.addresses if (each, address) not in known]
        for each, mac in namespace.macs:
            mine = [address for owner, address in new if owner == each]
            if mine:
                sockets.within(namespace.name, partial(sockets.announce, each, mac, mine))

    async def _remove_tap(self, port_id: str) -> None:
        name = link(TAP, port_id)
        if name in present(await self._programs.shown("ip", "-j", "link", "show")):
            await self._programs.batch("ip", [f"link delete {name}"])


def _warn_of_ipv6(server: str, port: GuestPort) -> None:
    for one in port.addresses:
        if one.address_mode:
            text = "the guest does not get its IPv6 address: server=%s port=%s address=%s reason=no %s yet"
            missing = "router advertisements" if one.address_mode == "slaac" else "DHCPv6"
            logger.warning(text, server, port.port_id, one.address, missing)


def _warn(failed: dict[str, Failed]) -> None:
    for name, why in failed.items():
        logger.warning("namespace %s is not configured: %s", name, why.message)
