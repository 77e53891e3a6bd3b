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


def test_only_a_request_chooses_a_server():
    other = bytes([54, 4, 10, 7, 0, 1])
    assert asked(DISCOVER, options=other)[:2] == (OFFER, "10.7.0.5")
    assert asked(INFORM, own="10.7.0.5", options=other)[:2] == (ACK, "0.0.0.0")


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


@pytest.mark.parametrize("at", [0, 1, 30, 61])
def test_padding_before_the_end_is_skipped(at):
    """And what stands after the end is no option."""
    options = bytes(at) + bytes([50, 4, 10, 7, 0, 5]) + bytes(3)
    assert asked(REQUEST, options=options)[:2] == (ACK, "10.7.0.5")
    late = b"\xff" + bytes([50, 4, 10, 7, 0, 6])
    assert asked(REQUEST, own="10.7.0.5", options=late)[:2] == (ACK, "10.7.0.5")


@pytest.mark.parametrize(
    ("where", "byte"),
    [
        (12, 0x86),  # another protocol than IP
        (14 + 9, 6),  # TCP
        (14 + 20 + 3, 68),  # to a client
        (14 + 28, 2),  # an answer
        (14 + 28 + 1, 2),  # another hardware
        (14 + 28 + 2, 8),
        (14 + 28 + 236, 0),  # no DHCP
        (14 + 28 + 240 + 1, 2),  # a kind of two bytes
    ],
)
def test_a_frame_that_is_no_request_in_one_byte(where, byte):
    whole = bytearray(frame(DISCOVER))
    assert requested(bytes(whole)) is not None and whole[where] != byte
    whole[where] = byte
    assert requested(bytes(whole)) is None


def test_a_request_without_the_end_of_its_options_is_understood():
    options = bytes([50, 4, 10, 7, 0, 5])
    whole, without = frame(REQUEST, options=options), frame(REQUEST, options=options)[:-1]
    assert requested(without) == requested(whole) is not None
    assert requested(without + bytes([12])) is None, "half an option"


def test_a_longer_head_of_ip_is_skipped():
    whole = frame(DISCOVER)
    longer = whole[:14] + bytes([0x46]) + whole[15:34] + bytes(4) + whole[34:]
    assert requested(longer) == requested(whole)


def test_what_a_request_says():
    options = bytes([50, 4, 10, 7, 0, 9, 54, 4, 10, 7, 0, 1])
    request = requested(frame(REQUEST, own="10.7.0.8", options=options))
    assert request is not None
    told = (request.kind, request.mac, request.transaction, request.client_address, request.wanted, request.server)
    assert told == (REQUEST, MAC, 0x1234, "10.7.0.8", "10.7.0.9", "10.7.0.1")
    odd = requested(frame(REQUEST, options=bytes([50, 3, 10, 7, 0])))
    assert odd is not None and (odd.wanted, odd.client_address) == ("", "0.0.0.0")


def destination(kind, **fields):
    request = requested(frame(kind, **fields))
    assert request is not None
    reply = answer(request, PORT, 1400, SERVER)
    assert reply is not None and len(reply) >= 14 + 28 + 300
    return ".".join(str(byte) for byte in reply[30:34])


def test_where_an_answer_goes():
    """To the address that the client has, unless it has none or must give it up."""
    assert destination(DISCOVER) == "255.255.255.255"
    assert destination(REQUEST, own="10.7.0.5") == "10.7.0.5"
    assert destination(REQUEST, own="10.7.0.6") == "255.255.255.255"
    assert destination(INFORM, own="10.7.0.5") == "10.7.0.5"


def test_a_denial_has_no_options_but_its_own():
    assert set(asked(REQUEST, own="10.7.0.6")[2]) == {53, 54}


def test_only_what_the_subnet_has_is_told():
    """The first subnet of IPv4 with DHCP is answered for; what is of IPv6 is left out."""
    six = PortAddress(address="2001:db8::5", prefix=64, version=6, subnet_id="t")
    off = PortAddress(address="10.6.0.5", prefix=24, version=4, subnet_id="u", dhcp=False)
    bare = PortAddress(
        address="10.7.0.5",
        prefix=20,
        version=4,
        subnet_id="s",
        dns_servers=["2001:db8::53"],
        routes=[HostRoute("::/0", "2001:db8::1")],
    )
    kind, address, options = asked(DISCOVER, msgspec.structs.replace(PORT, dns_name="", addresses=[six, off, bare]))
    assert (kind, address) == (OFFER, "10.7.0.5")
    assert set(options) == {53, 54, 51, 1, 28, 26, 121}
    assert (options[1], options[28]) == (bytes([255, 255, 240, 0]), bytes([10, 7, 15, 255]))
    assert options[121].hex() == "20a9fea9fe00000000" and options[51] == (86400).to_bytes(4, "big")
    assert asked(DISCOVER, msgspec.structs.replace(PORT, addresses=[six])) is None


def test_what_is_too_long_is_cut():
    address = PORT.addresses[0]
    many = msgspec.structs.replace(
        address, dns_servers=[f"192.0.2.{n}" for n in range(1, 70)], routes=address.routes * 50
    )
    _, _, options = asked(DISCOVER, msgspec.structs.replace(PORT, addresses=[many], dns_name="x" * 300))
    assert (len(options[6]), len(options[12]), len(options[121])) == (252, 255, 255)


@pytest.mark.parametrize(
    ("destination", "expected"),
    [("0.0.0.0/0", "00"), ("10.0.0.0/8", "080a"), ("10.128.0.0/9", "090a80"), ("10.7.3.1/32", "200a070301")],
)
def test_routes_have_as_many_bytes_as_their_prefix_needs(destination, expected):
    routed = msgspec.structs.replace(PORT.addresses[0], gateway="", routes=[HostRoute(destination, "10.7.0.9")])
    _, _, options = asked(DISCOVER, msgspec.structs.replace(PORT, addresses=[routed]))
    assert options[121].hex() == "20a9fea9fe00000000" + expected + "0a070009"
    assert 3 not in options
