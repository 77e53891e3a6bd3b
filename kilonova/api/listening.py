"""The listener of a role: the bound socket, its certificate, and the URL for clients."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from kilonova.api.tls import Certificate
from kilonova.domain.errors import Refused
from kilonova.settings import HttpOptions

logger = logging.getLogger(__name__)
BACKLOG = 2048
ELSEWHERE = {  # documentation addresses: asking for the route to them sends nothing
    socket.AF_INET: ("192.0.2.1", 9),
    socket.AF_INET6: ("2001:db8::1", 9),
}


@dataclass(frozen=True)
class Listener:
    socket: socket.socket
    options: HttpOptions
    url: str  # for the catalog and clouds.yaml; never an address that only a server understands
    address: str  # where it listens
    certificate: Certificate | None

    def listen(self) -> None:
        """Start listening, before the URL is published: an early client then waits a moment and is not refused."""
        self.socket.listen(BACKLOG)
        host = self.socket.getsockname()[0]
        if self.certificate is not None:
            _on_hangup(self.certificate)
        elif not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            text = "%s is not encrypted: passwords and tokens can be read on the network"
            logger.warning(
                f"{text}; set [wsgi] ssl_cert_file and ssl_key_file, or put a TLS proxy in front of it", self.url
            )

    @property
    def ca_file(self) -> str:
        """The file with which clients can verify the certificate; empty if a public authority has signed it."""
        return self.certificate.self_signed if self.certificate is not None else ""


@contextlib.contextmanager
def listening(address: str, public_url: str, options: HttpOptions, option: str = "--listen") -> Iterator[Listener]:
    """Bind the socket before anything else is touched, so that a port in use is noticed before anything has changed.

    It does not listen yet: no client waits for a response before the start has finished.
    """
    certificate = Certificate(options.ssl_cert_file, options.ssl_key_file) if options.ssl_cert_file else None
    with _bound(address, option) as bound:
        scheme = "https" if certificate is not None else "http"
        host, port = bound.getsockname()[:2]
        url = f"{scheme}://{_in_url(host)}:{port}"
        yield Listener(bound, options, _public(public_url, bound, scheme, address), url, certificate)


@contextlib.contextmanager
def _bound(address: str, option: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit():
        raise Refused("bad_configuration", f"{option} {address}: expected ADDRESS:PORT")
    if len(port) > 9 or int(port) > 65535:
        raise Refused("bad_configuration", f"{option} {address}: the port must be 1 to 65535")
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Refused("cannot_listen", f"cannot listen on {address}: {error.strerror}") from error
    with bound:
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(socket_address)
        except OSError as error:
            text = f"cannot listen on {address}: {error.strerror}; stop what uses it or choose another with {option}"
            raise Refused("cannot_listen", text) from error
        yield bound


def _public(given: str, bound: socket.socket, scheme: str, address: str) -> str:
    """Return the operator's URL, else the socket's; if bound to all addresses, with the one that packets leave from."""
    if given:
        if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", given):
            text = f"--public-url {given}: expected http://ADDRESS:PORT or https://ADDRESS"
            raise Refused("bad_configuration", text)
        if is_unspecified(urlsplit(given).hostname or ""):
            text = (
                f"--public-url {given} is not allowed; clients cannot connect to that address, name one of this machine"
            )
            raise Refused("bad_configuration", text)
        return given.rstrip("/")
    host, port = bound.getsockname()[:2]
    if is_unspecified(host):
        host = own_address(bound.family)
        if not host:
            text = f"--listen {address}: no address for clients follows from it; name one with --public-url"
            raise Refused("bad_configuration", text)
    return f"{scheme}://{_in_url(host)}:{port}"


def is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_unspecified
    except ValueError:
        return False


def own_address(family: int) -> str:
    """The address of this machine that reaches others; empty when it reaches none."""
    for each in (socket.AF_INET, socket.AF_INET6) if family == socket.AF_INET6 else (socket.AF_INET,):
        with contextlib.suppress(OSError), socket.socket(each, socket.SOCK_DGRAM) as probe:
            probe.connect(ELSEWHERE[each])
            host = str(probe.getsockname()[0])
            if not is_unspecified(host):
                return host
    return ""


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _on_hangup(certificate: Certificate) -> None:
    """Read the certificate again on SIGHUP."""

    def reload() -> None:
        try:
            certificate.reload()
        except Refused as why:
            logger.error("certificate not reloaded: %s", why.message)
        else:
            logger.info("certificate reloaded; new connections use it")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
