"""Ports as servers know them."""

from __future__ import annotations

import msgspec


class WantedPort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port that a new server shall have: one made on a network, or one that exists. Exactly one of the two."""

    network_id: str = ""
    port_id: str = ""
    fixed_ip: str = ""
    tag: str = ""


class VifAddress(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    version: int  # 4 | 6
    subnet_id: str
    kind: str = "fixed"  # fixed | floating


class Vif(msgspec.Struct, frozen=True, kw_only=True):
    """One of a server's ports, as last allocated or bound."""

    port_id: str
    network_id: str
    network_name: str
    mac: str
    made_here: bool = True  # made for the server, so it goes with it
    tag: str = ""
    vif_type: str = "ovs"
    host: str = ""
    addresses: list[VifAddress] = []
    security_groups: list[str] = []  # names


_VIFS = msgspec.json.Decoder(list[Vif])


def vifs_from(document: str | bytes | None) -> list[Vif]:
    return _VIFS.decode(document) if document else []
