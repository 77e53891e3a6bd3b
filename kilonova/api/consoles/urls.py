"""The URLs that open consoles, as Nova makes them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

from kilonova.domain.console import CONNECT_PATH, VNC
from kilonova.settings import Settings

PAGES_PATH = "/kilonova/consoles/novnc"
PAGE = f"{PAGES_PATH}/vnc_lite.html"


def base_url(settings: Settings, public_url: str, kind: str) -> str:
    """Return the configured URL, or that of this API."""
    if kind == VNC:
        path = f"{urlsplit(public_url).path}{CONNECT_PATH}".lstrip("/")  # noVNC puts the slash
        return settings.vnc.novncproxy_base_url or f"{public_url}{PAGE}?{urlencode({'path': path})}"
    return settings.serial_console.base_url or f"ws{public_url.removeprefix('http')}{CONNECT_PATH}"


def access_url(base: str, kind: str, token: str) -> str:
    if kind != VNC:
        return f"{base}?token={token}"
    address = urlsplit(base)
    query = parse_qs(address.query)
    query["path"] = [f"{query.get('path', [''])[0]}?token={token}"]
    return address._replace(query=urlencode(query, doseq=True)).geturl()
