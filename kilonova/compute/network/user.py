"""The network of a host where the agent is not root: each guest has QEMU's own network, and its ssh port is forwarded.

Guests reach the world, but not each other, and nobody reaches them except by that port on the host's loopback address.
There is nothing to filter, so that security groups mean nothing here; neither do routers and floating IPs.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import Forward, NetworkDocument, Plug

logger = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
SSH = 22
FIRST, LAST = 22022, 22999


class UserNetwork:
    """The number of a forwarded port belongs to the guest's port: it stays the same over restarts and rebuilds."""

    filters = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "forwards.json"
        self._forwards: dict[str, tuple[str, int, int]] = {}  # by port: server, copy, number

    @property
    def moment(self) -> int:
        return 0

    async def start(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._file.exists():
            kind = dict[str, tuple[str, int, int]]
            self._forwards = msgspec.json.decode(self._file.read_bytes(), type=kind)

    async def stop(self) -> None:
        pass

    async def ensure_plugged(self, server: str, copy: int, port: GuestPort) -> Plug:
        known = self._forwards.get(port.port_id)
        number = known[2] if known is not None else self._free()
        if known != (server, copy, number):
            self._forwards[port.port_id] = (server, copy, number)
            self._keep()
            logger.info("ssh of guest forwarded: server=%s command='ssh -p %d root@%s'", server, number, LOOPBACK)
        return Plug(kind="user", mtu=port.mtu, forwards=[Forward(LOOPBACK, number, SSH)])

    async def ensure_unplugged(self, server: str, copy: int, port_id: str = "") -> None:
        going = [
            each
            for each, (owner, number, _) in self._forwards.items()
            if (owner, number) == (server, copy) and port_id in ("", each)
        ]
        for each in going:
            del self._forwards[each]
        if going:
            self._keep()

    async def update(self, document: NetworkDocument, asked_at: int) -> None:
        pass

    def _free(self) -> int:
        taken = {number for _, _, number in self._forwards.values()}
        for number in range(FIRST, LAST + 1):
            if number not in taken and _can_bind(number):
                return number
        raise Failed("no_free_port", f"no TCP port from {FIRST} to {LAST} is free for the guest's ssh")

    def _keep(self) -> None:
        temporary = self._file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self._forwards))
        temporary.replace(self._file)


def qemu_arguments(port: GuestPort, plug: Plug, *, index: int, slot: int = 0) -> list[str]:
    """What QEMU is started with for the guest's device of this index: libvirt's own element cannot forward ports.
    `slot`: on the PCI bus; 0: the next free one."""
    forwards = [f",hostfwd=tcp:{one.address}:{one.port}-:{one.guest_port}" for one in plug.forwards]
    device = f"virtio-net-pci,netdev=port{index},mac={port.mac},host_mtu={plug.mtu}"
    device += f",addr={slot:#x}" if slot else ""
    return ["-netdev", f"user,id=port{index}{''.join(forwards)}", "-device", device]


def _can_bind(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, number))
        except OSError:
            return False
    return True
