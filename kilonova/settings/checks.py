"""Rules that concern more than the kind of one value."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from kilonova.domain.errors import Refused
from kilonova.domain.hardware_options import check_aliases, check_cpus, check_machine
from kilonova.settings.sections import Settings
from kilonova.settings.services import VolumeOptions


def check_settings(settings: Settings) -> Settings:
    """Raise `Refused` where options do not fit together or a text is unusable."""
    default = settings.default
    if default.service_down_time <= default.report_interval:
        raise bad_configuration(
            f"[DEFAULT] service_down_time = {default.service_down_time:g} must be more than report_interval = "
            f"{default.report_interval:g}: a host would be down between two heartbeats"
        )
    _check_proxies(settings.wsgi.trusted_proxies)
    if settings.ha.fence_command and not any("{host}" in argument for argument in settings.ha.fence_command):
        raise bad_configuration("[ha] fence_command has no {host}: it would not know which host to switch off")
    _check_exports(settings.volume)
    _check_addresses(settings)
    _check_notifications(settings)
    if bool(settings.wsgi.ssl_cert_file) != bool(settings.wsgi.ssl_key_file):
        raise bad_configuration("[wsgi] ssl_cert_file and ssl_key_file belong together: set both, or neither")
    check_cpus(settings.compute.cpu_dedicated_set, settings.compute.cpu_shared_set)
    check_aliases(settings.pci.alias)
    machine = settings.simulated
    check_machine(machine.numa_nodes, machine.memory_mb, machine.huge_pages, machine.pci)
    return settings


def _check_exports(options: VolumeOptions) -> None:
    """Check the exports' address, which hosts get, and ports."""
    try:
        unusable = ip_address(options.target_ip_address).is_unspecified
    except ValueError:
        unusable = True
    if unusable:
        address = options.target_ip_address
        raise bad_configuration(f"[volume] target_ip_address = {address!r}: it must be one IP address of this machine")
    first, last = options.port_range
    if not 1 <= first <= last <= 65535:
        raise bad_configuration(
            f"[volume] nbd_ports = {options.nbd_ports!r}: two ports are needed, the smaller one first"
        )


def _check_addresses(settings: Settings) -> None:
    """Check that each URL, which has the right form, names a host. The error does not show the address: it
    may have a token in it."""
    for name, url in (
        ("[notifications] webhook_url", settings.notifications.webhook_url),
        ("[console] host_url", settings.console.host_url),
        ("[vnc] novncproxy_base_url", settings.vnc.novncproxy_base_url),
        ("[serial_console] base_url", settings.serial_console.base_url),
    ):
        try:
            parts = urlsplit(url)
            usable = not url or (parts.hostname and parts.port != 0 and url.isascii())
        except ValueError:  # of its port or its brackets
            usable = False
        if not usable:
            raise bad_configuration(
                f"{name}: it must have a host, a port between 1 and 65535 or none, and only ASCII characters"
            )


def _check_notifications(settings: Settings) -> None:
    options = settings.notifications
    if options.transport == "bus" and not (settings.bus.url and options.versioned_notifications_topics):
        raise bad_configuration('[notifications] transport = "bus" needs [bus] url and versioned_notifications_topics')
    if options.transport == "webhook" and not options.webhook_url:
        raise bad_configuration('[notifications] transport = "webhook" needs webhook_url')
    if "@" in urlsplit(options.webhook_url).netloc:
        raise bad_configuration(
            "[notifications] webhook_url: it must not have a user or password; sign with webhook_secret_file"
        )


def _check_proxies(proxies: Sequence[str]) -> None:
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as error:
            text = f"[wsgi] trusted_proxies: {proxy!r} is not allowed; it must be an IP address or a network ({error})"
            raise bad_configuration(text) from None


def bad_configuration(message: str) -> Refused:
    return Refused("bad_configuration", message)
