"""Names of links and namespaces, derived from ids, so that a restarted agent finds them. A link has 15 characters."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

BRIDGE, TAP, VXLAN, SERVICE, ROUTER = "knb", "knt", "knv", "kns", "knr"  # three letters each: links of ours
LINKS = (BRIDGE, TAP, VXLAN, SERVICE, ROUTER)
INSIDE = "port"  # the other end of a service's link, in its namespace
DIGITS = 11


def short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:DIGITS]


def link(kind: str, object_id: str) -> str:
    return kind + short(object_id)


def is_ours(name: str) -> bool:
    return len(name) == len(BRIDGE) + DIGITS and name.startswith(LINKS)


def namespaces_of(host: str) -> str:
    """Return the prefix of this host's namespaces: hosts that share a file system see each other's."""
    return f"kn-{short(host)[:6]}-"


def service_namespace(host: str, network_id: str) -> str:
    return f"{namespaces_of(host)}{short(network_id)}"


def router_namespace(host: str, router_id: str) -> str:
    return f"{namespaces_of(host)}{ROUTER}{short(router_id)}"


def router_leg_inside(port_id: str) -> str:
    return f"leg{short(port_id)}"


def mac_of(text: str) -> str:
    """Return a locally administered address that no port has: theirs begin with fa."""
    digest = sha256(text.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x0A, *digest[:5]))


def numbers(ids: set[str], most: int) -> dict[str, int]:
    """Return a number from 1 to `most` for each id. It stays the same after a restart, unless ids collide and one is
    removed."""
    taken: dict[int, str] = {}
    for object_id in sorted(ids):
        number = _digits(object_id) % most + 1
        while number in taken:
            number = number % most + 1
        taken[number] = object_id
    return {object_id: number for number, object_id in taken.items()}


def _digits(object_id: str) -> int:
    try:
        return UUID(object_id).int
    except ValueError:
        return int(short(object_id), 16)
