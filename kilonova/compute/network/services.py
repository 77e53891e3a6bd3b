"""DHCP and metadata of all networks of a host: sockets in each network's namespace, answered in the agent's loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kilonova.compute.config_drive import Files
from kilonova.compute.network import sockets
from kilonova.compute.network.dhcp import answer, requested
from kilonova.compute.network.layout import HostNetworkOptions, Plugged, effective_mtu, service_mac
from kilonova.compute.network.metadata import MetadataServer
from kilonova.compute.network.names import service_namespace

logger = logging.getLogger(__name__)
MOST_FRAMES = 64  # at a time; others get their turn
Describe = Callable[[Plugged], Awaitable[Files | None]]


@dataclass
class NetworkService:
    """DHCP and metadata of one network. Ports change while it runs; its sockets stay."""

    options: HostNetworkOptions
    network_id: str
    describe: Describe
    by_mac: dict[str, Plugged] = field(default_factory=dict)
    by_address: dict[str, Plugged] = field(default_factory=dict)
    _sockets: list[socket.socket] = field(default_factory=list)
    _metadata: MetadataServer | None = None

    async def start(self) -> None:
        namespace = service_namespace(self.options.host, self.network_id)
        opened = sockets.within(namespace, lambda: [sockets.frames(), sockets.silent_dhcp(), sockets.http()])
        self._sockets = opened
        asyncio.get_running_loop().add_reader(opened[0].fileno(), self._on_frames)
        self._metadata = MetadataServer(self._find)
        await self._metadata.start(opened[2])

    async def stop(self) -> None:
        if self._sockets:
            asyncio.get_running_loop().remove_reader(self._sockets[0].fileno())
        if self._metadata is not None:
            await self._metadata.stop()
        for sock in self._sockets:
            sock.close()

    def know(self, plugged: Sequence[Plugged]) -> None:
        self.by_mac = {one.port.mac: one for one in plugged}
        self.by_address = {each.address: one for one in plugged for each in one.port.addresses}

    def _on_frames(self) -> None:
        with contextlib.suppress(OSError):  # nothing more, or the namespace is going
            for _ in range(MOST_FRAMES):
                self._on_frame(self._sockets[0].recv(2048))

    def _on_frame(self, frame: bytes) -> None:
        request = requested(frame)
        plugged = self.by_mac.get(request.mac) if request is not None else None
        if request is None or plugged is None:
            return
        port = plugged.port
        mtu = effective_mtu(self.options, port.network_type, port.mtu)
        reply = answer(request, port, mtu, service_mac(self.options.host, self.network_id))
        if reply is not None:
            self._sockets[0].send(reply)

    async def _find(self, address: str) -> Files | None:
        plugged = self.by_address.get(address)
        return await self.describe(plugged) if plugged is not None else None


class NetworkServices:
    """`describe` gives what the guest with this port may read; `forget` says that it may have changed."""

    def __init__(self, describe: Describe, forget: Callable[[str], None] = lambda server: None) -> None:
        self._describe = describe
        self.forget = forget
        self._running: dict[str, NetworkService] = {}  # by network

    async def update(self, options: HostNetworkOptions, plugged: Sequence[Plugged], renewed: set[str]) -> None:
        """Run the services of these ports' networks, and no others. `renewed`: namespaces that were just created."""
        wanted = {one.port.network_id for one in plugged}
        for network_id in list(self._running):
            if network_id not in wanted or service_namespace(options.host, network_id) in renewed:
                await self._running.pop(network_id).stop()
        for network_id in sorted(wanted):
            here = [one for one in plugged if one.port.network_id == network_id]
            if network_id not in self._running:
                service = NetworkService(options, network_id, self._describe)
                service.know(here)
                await service.start()
                self._running[network_id] = service
            self._running[network_id].know(here)

    async def stop(self) -> None:
        for service in self._running.values():
            await service.stop()
        self._running.clear()
