"""DHCP: the answer that a request gets, byte by byte where clients look at it."""

import struct

import msgspec
import pytest

from kilonova.compute.network.dhcp import (
    ACK,
    DISCOVER,
    INFORM,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    _options,
    answer,
    requested,
)
from kilonova.domain.guest_ports import GuestPort, HostRoute, PortAddress

MAC = "fa:16:3e:00:00:05"
SERVER = "0a:00:00:00:00:01"
PORT = GuestPort(
    port_id="p",
    network_id="n",
    network_name="net",
    mac=MAC,
    mtu=1450,
    dns_name="web",
    addresses=[
        PortAddress(
            address="10.7.0.5",
            prefix=24,
            version=4,
            subnet_id="s",
            gateway="10.7.0.1",
            dns_servers=["192.0.2.53", "192.0.2.54"],
            routes=[HostRoute("10.8.0.0/16", "10.7.0.9")],
        )
    ],
)


def frame(kind, *, own="0.0.0.0", options=b"", source=MAC, hardware=MAC):
    def packed(text):
        return bytes(int(part) for part in text.split("."))

    def mac(text):
        return bytes.fromhex(text.replace(":", ""))

    head = struct.pack("!BBBBIHH", 1, 1, 6, 0, 0x1234, 0, 0) + packed(own) + bytes(12) + mac(hardware).ljust(16, b"\0")
    body = head + bytes(192) + b"\x63\x82\x53\x63" + bytes([53, 1, kind]) + options + b"\xff"
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(body), 0, 0, 64, 17, 0) + packed(own) + b"\xff" * 4
    return b"\xff" * 6 + mac(source) + b"\x08\x00" + ip + struct.pack("!HHHH", 68, 67, 8 + len(body), 0) + body


def asked(kind, port=PORT, **fields):
    request = requested(frame(kind, **fields))
    assert request is not None
    reply = answer(request, port, 1400, SERVER)
    if reply is None:
        return None
    assert reply[:6].hex(":") == MAC and reply[6:12].hex(":") == SERVER
    assert sum(struct.unpack("!10H", reply[14:34])) % 0xFFFF == 0, "the checksum of the IP head"
    body = reply[42:]
    options = _options(body[240:])
    return options[53][0], ".".join(str(byte) for byte in body[16:20]), options


def test_discover_is_offered_the_ports_address():
    kind, address, options = asked(DISCOVER)
    assert (kind, address) == (OFFER, "10.7.0.5")
    assert options[1] == bytes([255, 255, 255, 0])
    assert options[3] == bytes([10, 7, 0, 1])
    assert options[6] == bytes([192, 0, 2, 53, 192, 0, 2, 54])
    assert options[12] == b"web"
    assert options[26] == (1400).to_bytes(2, "big")
    metadata, route, default = "20a9fea9fe00000000", "100a080a070009", "000a070001"
    assert options[121].hex() == metadata + route + default, "clients that take it ignore option 3"


def test_request_of_the_offer_is_acknowledged_and_any_other_denied():
    server = bytes([54, 4, 169, 254, 169, 254])
    assert asked(REQUEST, options=server + bytes([50, 4, 10, 7, 0, 5]))[:2] == (ACK, "10.7.0.5")
    assert asked(REQUEST, options=bytes([50, 4, 10, 7, 0, 6]))[:2] == (NAK, "0.0.0.0"), (
        "after the port's address changed"
    )
    assert asked(REQUEST, own="10.7.0.5")[:2] == (ACK, "10.7.0.5"), "a renewal"
    assert asked(REQUEST, options=bytes([54, 4, 10, 7, 0, 1, 50, 4, 10, 7, 0, 5])) is None, "another server's offer"


def test_inform_gets_options_and_no_lease():
    kind, address, options = asked(INFORM, own="10.7.0.5")
    assert (kind, address) == (ACK, "0.0.0.0") and 51 not in options and 3 in options


def test_release_and_subnets_without_dhcp_get_no_answer():
    assert asked(RELEASE) is None
    off = msgspec.structs.replace(PORT.addresses[0], dhcp=False)
    assert asked(DISCOVER, msgspec.structs.replace(PORT, addresses=[off])) is None


@pytest.mark.parametrize("broken", [b"", frame(DISCOVER)[:60], frame(DISCOVER)[:-6], frame(DISCOVER, hardware=SERVER)])
def test_what_is_broken_or_forged_is_no_request(broken):
    assert requested(broken) is None
