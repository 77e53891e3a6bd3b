"""Ports as servers know them."""

from __future__ import annotations

import msgspec


class WantedPort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port for a new server: a new one on a network, or an existing one. Exactly one of the two."""

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
    """A port of a server, as last allocated or bound."""

    port_id: str
    network_id: str
    network_name: str
    mac: str
    created_here: bool = True  # created for the server, so it is deleted with it
    tag: str = ""
    vif_type: str = "ovs"
    host: str = ""
    addresses: list[VifAddress] = []
    security_groups: list[str] = []  # names


_VIFS = msgspec.json.Decoder(list[Vif])


def vifs_from(document: str | bytes | None) -> list[Vif]:
    return _VIFS.decode(document) if document else []
