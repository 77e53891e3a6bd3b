"""Which pages may connect to a console, and the URLs that users get."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from kilonova.api.consoles.origin import check_origin
from kilonova.api.consoles.urls import access_url, base_url
from kilonova.domain.console import SERIAL, VNC
from kilonova.domain.errors import Refused
from kilonova.settings import load

HOST = {"host": "cloud:8774"}


@pytest.mark.parametrize(
    ("headers", "base"),
    [
        ({}, "http://cloud"),
        ({"origin": "http://cloud:8774"}, "http://cloud"),
        ({"origin": "http://cloud"}, "ws://cloud"),
        ({"origin": "https://friend"}, "https://cloud"),
        ({"origin": "http://cloud", "x-forwarded-proto": "https"}, "https://cloud"),
        ({"origin": "http://[::1]:80", "host": "[::1]:8774"}, "http://cloud"),
    ],
)
def test_allowed(headers: dict[str, str], base: str) -> None:
    check_origin(Headers({**HOST, **headers}), ["friend"], base)


@pytest.mark.parametrize(
    ("origin", "base", "why"),
    [
        ("http://evil", "http://cloud", "does not match this host"),
        ("http://cloud.evil", "http://cloud", "does not match this host"),
        ("https://cloud", "http://cloud", "protocol does not match"),
        ("http://cloud", "wss://cloud", "protocol does not match"),
        ("null", "http://cloud", "not valid"),
        ("", "http://cloud", "not valid"),
        ("http://[", "http://cloud", "not valid"),
        ("//cloud", "http://cloud", "not valid"),
    ],
)
def test_refused(origin: str, base: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_origin(Headers({**HOST, "origin": origin}), ["friend"], base)


def test_urls_are_made_as_in_nova() -> None:
    settings = load(None, None, [])
    base = base_url(settings, "https://cloud/api", VNC)
    path = "path=api%2Fkilonova%2Fconsoles%2Fconnect"
    assert base == f"https://cloud/api/kilonova/consoles/novnc/vnc_lite.html?{path}"
    assert access_url(base, VNC, "t") == f"{base}%3Ftoken%3Dt"
    serial = base_url(settings, "https://cloud/api", SERIAL)
    assert access_url(serial, SERIAL, "t") == "wss://cloud/api/kilonova/consoles/connect?token=t"
    chosen = ["vnc.novncproxy_base_url=http://x/vnc_lite.html", "serial_console.base_url=ws://x:6083/"]
    settings = load(None, None, chosen)
    assert access_url(base_url(settings, "", VNC), VNC, "t") == "http://x/vnc_lite.html?path=%3Ftoken%3Dt"
    assert access_url(base_url(settings, "", SERIAL), SERIAL, "t") == "ws://x:6083/?token=t"
