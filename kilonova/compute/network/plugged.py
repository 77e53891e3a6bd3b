"""The ports that have a tap on this host, and the last document, in files: an agent that starts knows its taps, rules,
peers and routers before a conductor answers. There are no secrets in them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import NetworkDocument

DOCUMENT = "document"


User = tuple[str, int]  # a server and one of its copies


class PluggedPort(msgspec.Struct, frozen=True, kw_only=True):
    """`server` and `copy`: that was plugged last."""

    server: str
    copy: int
    port: GuestPort
    users: list[User] = []  # all that are plugged, the last one last; older agents wrote none

    @property
    def copies(self) -> list[User]:
        return self.users or [(self.server, self.copy)]

    def without(self, user: User) -> PluggedPort | None:
        """Return the record without this user; None: no other copy uses the port."""
        users = [one for one in self.copies if one != user]
        return _record(users, self.port) if users else None


def plug(before: PluggedPort | None, user: User, port: GuestPort) -> PluggedPort:
    """Plug a copy into the port. The old copy of a rebuild or resize keeps the port until the new one takes over."""
    others = [one for one in before.copies if one != user] if before is not None else []
    return _record([*others, user], port)


def _record(users: list[User], port: GuestPort) -> PluggedPort:
    server, copy = users[-1]
    return PluggedPort(server=server, copy=copy, port=port, users=users)


class PluggedPorts:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records: dict[str, PluggedPort] = {}  # by port

    def load(self) -> dict[str, PluggedPort]:
        """Read the plugged ports. An unreadable file is ignored: its tap stays closed until the port is plugged
        again."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._folder.glob("*-*.json"):
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                record = msgspec.json.decode(path.read_bytes(), type=PluggedPort)
                self._records[record.port.port_id] = record
        return self._records

    @property
    def records(self) -> dict[str, PluggedPort]:
        return self._records

    def keep(self, record: PluggedPort) -> None:
        port_id = record.port.port_id
        if self._records.get(port_id) == record:
            return
        self._write(port_id, record)
        self._records[port_id] = record

    def drop(self, port_id: str) -> None:
        self._path(port_id).unlink(missing_ok=True)
        self._records.pop(port_id, None)

    def load_document(self) -> NetworkDocument:
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(self._path(DOCUMENT).read_bytes(), type=NetworkDocument)
        return NetworkDocument()

    def keep_document(self, document: NetworkDocument) -> None:
        """Store the document without its ports: those with a tap on this host have their own files."""
        lasting = msgspec.structs.replace(document, ports=[])
        if lasting == NetworkDocument():
            self._path(DOCUMENT).unlink(missing_ok=True)
        else:
            self._write(DOCUMENT, lasting)

    def _write(self, name: str, value: msgspec.Struct) -> None:
        temporary = self._folder / f"{name}.new"
        temporary.write_bytes(msgspec.json.encode(value))
        os.replace(temporary, self._path(name))

    def _path(self, port_id: str) -> Path:
        return self._folder / f"{port_id}.json"
