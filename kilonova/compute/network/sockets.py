"""Sockets that belong to another network namespace: a thread enters it, makes them there and ends."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TypeVar

from kilonova.compute.network.filters import METADATA_ADDRESS
from kilonova.compute.network.names import INSIDE

NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000
SO_ATTACH_FILTER = 26
ETH_P_IP, ETH_P_ARP = 0x0800, 0x0806
T = TypeVar("T")

# Frames to UDP port 67 and no others, as tcpdump -dd shows it for "udp dst port 67 and not ip[6:2] & 0x1fff != 0".
_TO_DHCP = [
    (0x28, 0, 0, 0x0000000C),
    (0x15, 0, 8, 0x00000800),
    (0x30, 0, 0, 0x00000017),
    (0x15, 0, 6, 0x00000011),
    (0x28, 0, 0, 0x00000014),
    (0x45, 4, 0, 0x00001FFF),
    (0xB1, 0, 0, 0x0000000E),
    (0x48, 0, 0, 0x00000010),
    (0x15, 0, 1, 0x00000043),
    (0x06, 0, 0, 0x00040000),
    (0x06, 0, 0, 0x00000000),
]


def within(namespace: str, make: Callable[[], T]) -> T:
    """Return the result of `make` in that namespace; this thread does not enter it. Takes less than a millisecond."""
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            descriptor = os.open(NAMESPACES / namespace, os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
            finally:
                os.close(descriptor)
            outcome.set_result(make())
        except BaseException as error:
            outcome.set_exception(error)

    thread = Thread(target=work, name=f"enter {namespace}")
    thread.start()
    thread.join()
    return outcome.result()


def is_namespace(name: str) -> bool:
    """Return whether the name is a namespace, not only a file: its mount ends with the machine or a container."""
    return (NAMESPACES / name).stat().st_dev == os.stat("/proc/self/ns/net").st_dev


def frames() -> socket.socket:
    """Return a socket that receives the guests' DHCP requests as whole frames, and sends frames."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # of no protocol yet: nothing comes before the filter
    code = b"".join(struct.pack("HBBI", *one) for one in _TO_DHCP)
    buffer = ctypes.create_string_buffer(code)
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(_TO_DHCP), ctypes.addressof(buffer)))
    sock.bind((INSIDE, ETH_P_IP))
    sock.setblocking(False)
    return sock


def silent_dhcp() -> socket.socket:
    """Return a socket that is never read. Without it the kernel would answer guests that the port is closed."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    sock.bind(("0.0.0.0", 67))
    return sock


def http() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((METADATA_ADDRESS, 80))
    sock.listen(64)
    sock.setblocking(False)
    return sock


def announce(link: str, mac: str, addresses: list[str]) -> None:
    """Tell the neighbours of a link that these addresses are at this MAC now (gratuitous ARP)."""
    own = bytes.fromhex(mac.replace(":", ""))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((link, ETH_P_ARP))
        for address in addresses:
            packed = socket.inet_aton(address)
            head = struct.pack("!6s6sHHHBBH", b"\xff" * 6, own, ETH_P_ARP, 1, 0x0800, 6, 4, 1)
            sock.send(head + own + packed + bytes(6) + packed)
