"""The pages that may connect to a console: those of this host and of `[console] allowed_origins`, as in Nova."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from kilonova.domain.errors import Refused

SAME = {"ws": ("ws", "http"), "wss": ("wss", "https")}


def check_origin(headers: Headers, allowed: Sequence[str], base_url: str) -> None:
    """Check the Origin header. A client without one is not a browser. `base_url`: the URL that users get; the schemes
    must match. Raise `Refused`."""
    given = headers.get("origin")
    if given is None:
        return
    name, scheme = _parts(given)
    scheme = headers.get("x-forwarded-proto", scheme)
    if not name or not scheme:
        raise _refused("Origin header not valid.")
    if name not in (*allowed, _parts(f"//{headers.get('host', '')}")[0]):
        raise _refused("Origin header does not match this host.")
    expected = urlsplit(base_url).scheme
    if scheme not in SAME.get(expected, (expected,)):
        raise _refused("Origin header protocol does not match this host.")


def _parts(url: str) -> tuple[str, str]:
    try:
        address = urlsplit(url)
        return address.hostname or "", address.scheme
    except ValueError:
        return "", ""


def _refused(why: str) -> Refused:
    return Refused("bad_origin", why)
