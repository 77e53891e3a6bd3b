"""The volumes of a host with real guests: the volume service gives it an address, and QEMU gets a socket.

Between the two is a relay, one qemu-nbd process for each volume. It speaks TLS, with the connection's secret as
pre-shared key, if the volume is on another machine: libvirt cannot give QEMU such a key. And it waits while the volume
service restarts: libvirt before 9.5 cannot make QEMU wait. Relays outlive the agent, and are restarted when they die.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from kilonova.compute.drivers.libvirt.devices import NBD
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestVolume
from kilonova.domain.volume_opening import GrownVolume, OpenedVolume, VolumeOpening
from kilonova.services.volume.export_requests import GROWN, ask_to_open, escaped, name_of, write_private
from kilonova.services.volume.files import GIBIBYTE
from kilonova.services.volume.nbd import KEYS, SOCKET, Nbd, Served
from kilonova.threads import FILES
from kilonova.world import Bus

KILONOVA = "kilonova"  # the type of a connection of this cloud's volume service
RELAY_FILE = "relay.json"
WAIT_SECONDS = 60  # that a relay waits for a volume service which is restarted

Owner = tuple[int, int]
User = tuple[str, int]  # a server's copy


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a relay; its key is in a file beside this."""

    attachment: str
    opened: OpenedVolume
    read_only: bool
    owner: Owner | None
    users: list[User] = []  # the copies that are defined with it


class HostVolumes:
    def __init__(self, bus: Bus, folder: Path, owner: Callable[[], Awaitable[Owner | None]]) -> None:
        """`owner`: user and group of QEMU, where they are not our own."""
        self._bus, self._owner, self._nbd = bus, owner, Nbd(folder)
        self._relays: dict[str, Relay] = {}
        self._lock = asyncio.Lock()

    async def serve(self, host: str, show: Callable[[str, int], Awaitable[None]]) -> None:
        """Hear of volumes that have grown; `show` (attachment, bytes) lets the guests see it."""

        async def grown(body: bytes) -> bytes:
            news = msgspec.json.decode(body, type=GrownVolume)
            try:
                await show(news.attachment, news.size * GIBIBYTE)
            except Failed as why:
                return msgspec.json.encode(why.message)
            return b'""'

        await self._bus.serve(f"{GROWN}.{host}", grown)

    async def start(self) -> None:
        """Watch the relays of a former agent, and restart those that ended with the machine."""
        for name in await FILES.run(self._nbd.names):
            relay = await FILES.run(self._read, name)
            if relay is None:
                await self._nbd.end(name)
            else:
                self._relays[name] = relay
                self._nbd.keep(name, self._served(name, relay))  # its server may be down just now

    async def stop(self) -> None:
        """Stop watching. Guests and relays go on."""
        await self._nbd.stop()

    async def open(self, server: str, copy: int, volume: GuestVolume) -> GuestVolume:
        """Return the volume with a connection that QEMU can open."""
        data = volume.connection.get("data", {})
        if volume.connection.get("driver_volume_type") != KILONOVA:
            return volume
        opening = VolumeOpening(attachment=volume.attachment, secret=_secret_of(volume))
        name = name_of(opening.attachment, opening.secret)
        if (relay := self._relays.get(name)) is None:  # else it exists already, whichever backend answers now
            opened = await ask_to_open(self._bus, data["backend"], opening)
            read_only, owner = data.get("access_mode") == "ro", await self._owner()
            relay = Relay(attachment=volume.attachment, opened=opened, read_only=read_only, owner=owner)
        async with self._lock:
            relay = msgspec.structs.replace(relay, users=sorted({*map(_user, relay.users), (server, copy)}))
            await FILES.run(self._write, name, relay, opening.secret)
            self._relays[name] = relay
        await self._nbd.ensure(name, self._served(name, relay))
        return _with_socket(volume, str(self._nbd.directory(name) / SOCKET), relay.opened.export)

    async def renew(self, attachment: str) -> None:
        """Restart the relay, so that it reads the volume's size again. QEMU's requests fail meanwhile."""
        for name, relay in list(self._relays.items()):
            if relay.attachment == attachment:
                await self._nbd.kill(name)
                await self._nbd.ensure(name, self._served(name, relay))

    async def ready(self, server: str, copy: int) -> None:
        """Make sure that every relay of the copy answers. Raise `Failed`."""
        for name, relay in list(self._relays.items()):
            if (server, copy) in map(_user, relay.users):
                await self._nbd.ensure(name, self._served(name, relay))

    async def release(self, server: str, copy: int, *, keep: Iterable[GuestVolume] = (), only: str = "") -> None:
        """End the relays of the copy except those of the connections in `keep`. `only`: of this attachment."""
        needed = {name_of(one.attachment, _secret_of(one)) for one in keep}
        async with self._lock:
            for name, relay in list(self._relays.items()):
                users = [one for one in map(_user, relay.users) if one != (server, copy)]
                if name in needed or only not in ("", relay.attachment) or len(users) == len(relay.users):
                    continue
                if users:
                    self._relays[name] = msgspec.structs.replace(relay, users=users)
                    await FILES.run(self._write, name, self._relays[name])
                else:
                    await self._nbd.end(name)
                    del self._relays[name]

    def _served(self, name: str, relay: Relay) -> Served:
        directory, opened = self._nbd.directory(name), relay.opened
        source = f"driver=nbd,export={opened.export},reconnect-delay={WAIT_SECONDS},"
        arguments = [f"--export-name={opened.export}", "--discard=unmap", *(["--read-only"] if relay.read_only else [])]
        if opened.socket:
            source += f"server.type=unix,server.path={escaped(Path(opened.socket))}"
        else:
            key = f"tls-creds-psk,id=key,endpoint=client,dir={escaped(directory)},username={relay.attachment}"
            arguments.append(f"--object={key}")
            source += f"tls-creds=key,server.type=inet,server.host={opened.address},server.port={opened.port}"
        return Served((*arguments, "--image-opts", source), owner=relay.owner)

    def _write(self, name: str, relay: Relay, secret: str = "") -> None:
        directory = self._nbd.prepare(name)
        if secret:
            write_private(directory / KEYS, f"{relay.attachment}:{secret}\n".encode())
        write_private(directory / RELAY_FILE, msgspec.json.encode(relay))

    def _read(self, name: str) -> Relay | None:
        try:
            return msgspec.json.decode((self._nbd.directory(name) / RELAY_FILE).read_bytes(), type=Relay)
        except (OSError, msgspec.MsgspecError):
            return None


def _secret_of(volume: GuestVolume) -> str:
    return str(volume.connection.get("data", {}).get("auth_password", ""))


def _user(one: Any) -> User:
    server, copy = one
    return server, copy


def _with_socket(volume: GuestVolume, path: str, export: str) -> GuestVolume:
    data = volume.connection["data"]
    given = {"socket": path, "export": export, "access_mode": data.get("access_mode", "rw")}
    given["multiattach"] = bool(data.get("multiattach"))
    return msgspec.structs.replace(volume, connection={"driver_volume_type": NBD, "data": given})
