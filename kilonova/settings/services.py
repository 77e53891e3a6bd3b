"""Sections of the embedded services and of consoles."""

from __future__ import annotations

from kilonova.settings.values import (
    Address,
    Amount,
    Count,
    Flag,
    Limit,
    Pause,
    PortRange,
    Seconds,
    Section,
    SocketUrl,
    Text,
    TextList,
    Url,
)


class ImageOptions(Section, frozen=True, kw_only=True):
    image_size_cap: Count = 1024**4
    virtual_size_cap: Count = 16 * 1024**4
    quota_bytes: Limit = 100 * 1024**3
    filesystem_store_datadir: Text = ""


class TokenOptions(Section, frozen=True, kw_only=True):
    expiration: Seconds = 3600.0


class IdentityOptions(Section, frozen=True, kw_only=True):
    admin_password_file: Text = ""
    failed_logins_per_minute: Amount = 10


class CorsOptions(Section, frozen=True, kw_only=True):
    """Origins of pages that may call from a browser; comma-separated lists."""

    allowed_origin: Text = ""
    allow_headers: Text = ""


class VolumeOptions(Section, frozen=True, kw_only=True):
    """Cinder's names."""

    default_volume_type: Text = "__DEFAULT__"
    quota_volumes: Limit = 10
    quota_snapshots: Limit = 10
    quota_gigabytes: Limit = 1000
    per_volume_size_limit: Limit = -1
    file_tasks: Count = 4
    file_task_timeout: Seconds = 21600.0
    target_ip_address: Address = "127.0.0.1"
    nbd_ports: PortRange = "10809-11832"

    @property
    def port_range(self) -> tuple[int, int]:
        first, _, last = self.nbd_ports.partition("-")
        return int(first), int(last or first)


class CinderOptions(Section, frozen=True, kw_only=True):
    """The use of volumes by servers."""

    cross_az_attach: Flag = True


class ConsoleOptions(Section, frozen=True, kw_only=True):
    """Connections to consoles, of each API."""

    allowed_origins: TextList = ()
    host_url: Url = ""
    idle_timeout: Pause = 3600.0
    max_connections: Count = 256
    max_connections_per_server: Count = 8


class ConsoleAuthOptions(Section, frozen=True, kw_only=True):
    token_ttl: Seconds = 600.0
    enforce_session_timeout: Flag = False


class VncOptions(Section, frozen=True, kw_only=True):
    enabled: Flag = True
    novncproxy_base_url: Url = ""


class SerialOptions(Section, frozen=True, kw_only=True):
    enabled: Flag = True
    base_url: SocketUrl = ""
