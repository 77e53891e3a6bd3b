"""The network of a host where the agent is not root: each guest has QEMU's own network, and its ssh port is forwarded.

Guests reach the outside, but not each other, and are reachable only by that port on the host's loopback address.
Nothing is filtered, so security groups, routers and floating IPs have no effect here.
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


class Forwarded(msgspec.Struct, frozen=True, array_like=True):
    """`server` and `copy`: that was plugged last."""

    server: str
    copy: int
    number: int
    others: list[tuple[str, int]] = []  # copies that are plugged besides; older agents wrote none

    @property
    def copies(self) -> list[tuple[str, int]]:
        return [*self.others, (self.server, self.copy)]


class UserNetwork:
    """The number of a forwarded port belongs to the guest's port: it stays the same over restarts and rebuilds."""

    filters = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "forwards.json"
        self._forwards: dict[str, Forwarded] = {}  # by port

    @property
    def moment(self) -> int:
        return 0

    async def start(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._file.exists():
            self._forwards = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Forwarded])

    async def stop(self) -> None:
        pass

    async def ensure_plugged(self, server: str, copy: int, port: GuestPort) -> Plug:
        known = self._forwards.get(port.port_id)
        number = known.number if known is not None else self._free()
        others = [one for one in known.copies if one != (server, copy)] if known is not None else []
        if known != (forwarded := Forwarded(server, copy, number, others)):
            self._forwards[port.port_id] = forwarded
            self._keep()
            logger.info("ssh of guest forwarded: server=%s command='ssh -p %d root@%s'", server, number, LOOPBACK)
        return Plug(kind="user", mtu=port.mtu, forwards=[Forward(LOOPBACK, number, SSH)])

    async def ensure_unplugged(self, server: str, copy: int, port_id: str = "") -> None:
        going = {
            each: known
            for each, known in self._forwards.items()
            if (server, copy) in known.copies and port_id in ("", each)
        }
        for each, known in going.items():
            if left := [one for one in known.copies if one != (server, copy)]:
                self._forwards[each] = Forwarded(*left[-1], known.number, left[:-1])
            else:
                del self._forwards[each]
        if going:
            self._keep()

    async def update(self, document: NetworkDocument, requested_at: int) -> None:
        pass

    def _free(self) -> int:
        taken = {known.number for known in self._forwards.values()}
        for number in range(FIRST, LAST + 1):
            if number not in taken and _can_bind(number):
                return number
        raise Failed("no_free_port", f"no TCP port from {FIRST} to {LAST} is free for the guest's ssh")

    def _keep(self) -> None:
        temporary = self._file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self._forwards))
        temporary.replace(self._file)


def qemu_arguments(port: GuestPort, plug: Plug, *, index: int, slot: int = 0) -> list[str]:
    """Return QEMU's arguments for the guest's device of this index: libvirt's own element cannot forward ports.
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
