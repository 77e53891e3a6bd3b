"""DHCP for ports: each already has its address, so the answer follows from the request alone. Pure.

No leases are stored: an address that moves to another port is valid there immediately.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_interface

from kilonova.compute.network.filters import METADATA_ADDRESS
from kilonova.domain.guest_ports import GuestPort, PortAddress

DISCOVER, OFFER, REQUEST, ACK, NAK, RELEASE, INFORM = 1, 2, 3, 5, 6, 7, 8
LEASE_SECONDS = 86400
MAGIC = b"\x63\x82\x53\x63"
SERVER_PORT, CLIENT_PORT = 67, 68
BROADCAST = b"\xff" * 6
_HEAD = struct.Struct("!BBBBIHH4s4s4s4s16s192x4s")
_ETHERNET, _IP, _UDP = struct.Struct("!6s6sH"), struct.Struct("!BBHHHBBH4s4s"), struct.Struct("!HHHH")
ETHERTYPE_IP, UDP = 0x0800, 17
LEAST_BYTES = 300  # the shortest response that old clients accept


@dataclass(frozen=True)
class Request:
    kind: int
    mac: str
    transaction: int
    flags: int
    client_address: str  # that it has already; 0.0.0.0: none
    wanted: str  # option 50; "": none
    server: str  # option 54: the server whose offer it takes; "": absent


def requested(frame: bytes) -> Request | None:
    """Return the request in an Ethernet frame; None if it is not a request, or claims another MAC."""
    try:
        _, source, ethertype = _ETHERNET.unpack_from(frame)
        head = (frame[14] & 15) * 4
        if ethertype != ETHERTYPE_IP or frame[14 + 9] != UDP:
            return None
        if _UDP.unpack_from(frame, 14 + head)[1] != SERVER_PORT:
            return None
        return _parsed(frame[14 + head + 8 :], source)
    except (struct.error, IndexError):
        return None


def _parsed(payload: bytes, source: bytes) -> Request | None:
    op, kind, length, _, transaction, _, flags, own, _, _, _, hardware, magic = _HEAD.unpack_from(payload)
    if (op, kind, length, magic) != (1, 1, 6, MAGIC) or hardware[:6] != source:
        return None
    options = _options(payload[_HEAD.size :])
    message = options.get(53, b"")
    if len(message) != 1:
        return None
    return Request(
        kind=message[0],
        mac=":".join(f"{byte:02x}" for byte in source),
        transaction=transaction,
        flags=flags,
        client_address=str(IPv4Address(own)),
        wanted=_address(options.get(50, b"")),
        server=_address(options.get(54, b"")),
    )


def _address(value: bytes) -> str:
    return str(IPv4Address(value)) if len(value) == 4 else ""


def _options(data: bytes) -> dict[int, bytes]:
    options: dict[int, bytes] = {}
    at = 0
    while at < len(data) and data[at] != 255:
        if data[at] == 0:
            at += 1
            continue
        length = data[at + 1]
        options[data[at]] = data[at + 2 : at + 2 + length]
        at += 2 + length
    return options


def answer(request: Request, port: GuestPort, mtu: int, mac: str) -> bytes | None:
    """Return the frame to send from `mac`; None: no answer."""
    given = next((one for one in port.addresses if one.version == 4 and one.dhcp), None)
    if given is None or request.kind not in (DISCOVER, REQUEST, INFORM):
        return None
    if request.kind == REQUEST and request.server not in ("", METADATA_ADDRESS):
        return None  # it takes another server's offer
    kind, yours = {DISCOVER: OFFER, REQUEST: ACK, INFORM: ACK}[request.kind], given.address
    wanted_address = request.wanted or request.client_address
    if request.kind == REQUEST and wanted_address != given.address:
        kind, yours = NAK, "0.0.0.0"
    elif request.kind == INFORM:
        yours = "0.0.0.0"
    options = [(53, bytes([kind])), (54, _packed(METADATA_ADDRESS))]
    if kind != NAK:
        options += _configuration(port, given, mtu, leased=request.kind != INFORM)
    # A client without an address does not answer ARP: the frame goes to its MAC without asking.
    to = "255.255.255.255" if kind == NAK or request.client_address == "0.0.0.0" else request.client_address
    return _frame(request, yours, options, mac, to)


def _configuration(port: GuestPort, given: PortAddress, mtu: int, *, leased: bool) -> list[tuple[int, bytes]]:
    net = ip_interface(f"{given.address}/{given.prefix}").network
    options = [(51, LEASE_SECONDS.to_bytes(4, "big"))] if leased else []
    options += [(1, net.netmask.packed), (28, net.broadcast_address.packed), (26, mtu.to_bytes(2, "big"))]
    routes = [(IPv4Network(f"{METADATA_ADDRESS}/32"), "0.0.0.0")]  # on this link
    routes += [(IPv4Network(one.destination), one.nexthop) for one in given.routes if ":" not in one.destination]
    if given.gateway:
        options.append((3, _packed(given.gateway)))
        routes.append((IPv4Network("0.0.0.0/0"), given.gateway))  # a client that uses option 121 ignores option 3
    servers = b"".join(_packed(one) for one in given.dns_servers if ":" not in one)
    if servers:
        options.append((6, servers[:252]))
    if port.dns_name:
        options.append((12, port.dns_name.encode()[:255]))
    return [*options, (121, b"".join(_route(net, hop) for net, hop in routes)[:255])]


def _route(net: IPv4Network, hop: str) -> bytes:
    return bytes([net.prefixlen]) + net.network_address.packed[: (net.prefixlen + 7) // 8] + _packed(hop)


def _packed(address: str) -> bytes:
    return IPv4Address(address).packed


def _frame(request: Request, yours: str, options: list[tuple[int, bytes]], mac: str, to: str) -> bytes:
    client, own = bytes.fromhex(request.mac.replace(":", "")), bytes.fromhex(mac.replace(":", ""))
    source, none = _packed(METADATA_ADDRESS), bytes(4)
    fixed = (2, 1, 6, 0, request.transaction, 0, request.flags, none, _packed(yours), source, none)
    head = _HEAD.pack(*fixed, client.ljust(16, b"\0"), MAGIC)
    body = head + b"".join(bytes([code, len(value)]) + value for code, value in options) + b"\xff"
    body = body.ljust(LEAST_BYTES, b"\0")
    udp = _UDP.pack(SERVER_PORT, CLIENT_PORT, _UDP.size + len(body), 0)
    ip = _IP.pack(0x45, 0, _IP.size + len(udp) + len(body), 0, 0, 64, UDP, 0, source, _packed(to))
    ip = ip[:10] + _checksum(ip).to_bytes(2, "big") + ip[12:]
    return _ETHERNET.pack(client, own, ETHERTYPE_IP) + ip + udp + body


def _checksum(head: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(head) // 2}H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
