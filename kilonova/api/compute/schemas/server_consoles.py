"""Bodies of requests for consoles."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import closed, nothing, wrapped
from kilonova.api.forms import Forms, Schema

PROTOCOLS = ["vnc", "spice", "serial", "rdp"]
TYPES = ["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5"]


def _typed(action: str, *types: str) -> Forms:
    return Forms(wrapped(action, closed({"type": _one_of(types)}, "type")))


def _one_of(choices: list[str] | tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(choices)}


def _remote(protocols: list[str], types: list[str]) -> Schema:
    content = {"protocol": _one_of(protocols), "type": _one_of(types)}
    return wrapped("remote_console", closed(content, "protocol", "type"))


VNC = _typed("os-getVNCConsole", "novnc", "xvpvnc")
SPICE = _typed("os-getSPICEConsole", "spice-html5")
RDP = Forms(nothing("os-getRDPConsole"))
SERIAL = _typed("os-getSerialConsole", "serial")
REMOTE = Forms(
    {
        (2, 6): _remote(PROTOCOLS, TYPES),
        (2, 8): _remote([*PROTOCOLS, "mks"], [*TYPES, "webmks"]),
        (2, 99): _remote([*PROTOCOLS, "mks"], [*TYPES, "webmks", "spice-direct"]),
    }
)
