"""The simulated machines: hosts with power, link, guests and storage.

They exist outside of every process: agents crash and come back, machines and their disks stay as they are. An agent
reaches its host through the driver (driver.py); power, link and failures are switched from outside, here.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kilonova.compute.drivers.simulated.changes import Changes
from kilonova.compute.drivers.simulated.faults import Faults
from kilonova.compute.drivers.simulated.secret_contents import NOTHING, SecretContents, contents_line
from kilonova.compute.drivers.simulated.state_file import StateFile
from kilonova.compute.drivers.simulated.storage import ROOT, Disk, Storage
from kilonova.compute.drivers.simulated.topology import SimulatedTopology
from kilonova.domain.errors import Refused
from kilonova.domain.hardware import HostClaim
from kilonova.domain.json import JsonObject
from kilonova.world import CopyReport, GuestSpec, GuestVolume

PLAIN = SimulatedTopology()
CONSOLE_LIMIT = 65536  # characters; older lines are dropped, as a console log file is rotated


class GuestSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a disk at the time of its snapshot."""

    name: str
    content: list[str]


class Guest(msgspec.Struct, kw_only=True):
    """A copy on a host: its definition, its power, its console."""

    server: str
    copy: int
    spec: GuestSpec | None = None  # None: a disk without a guest
    power: str = "off"
    boots: int = 0
    console: str = ""
    snapshot: GuestSnapshot | None = None
    given: SecretContents = NOTHING  # in secret


class Switches(msgspec.Struct):
    """The saved state of a host besides its guests."""

    power: bool = True
    link: bool = True


@dataclass(slots=True)
class Host:
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    pool: str
    boot_seconds: float
    copy_seconds: float
    switches: Switches
    topology: SimulatedTopology
    traits: tuple[str, ...] = ()  # that its driver announces besides its own
    has_room: bool = True  # for the new disks of a rebuild beside the old ones
    session: int = 0  # raised at each power cut: calls from before it can never end
    guests: dict[tuple[str, int], Guest] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)  # cached, so that a disk is created without fetching


class GuestCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy as an inspection of the machines finds it."""

    host: str
    server: str
    copy: int
    power: str
    whole: bool
    marker: str
    defined: bool
    claim: HostClaim | None = None
    volumes: tuple[str, ...] = ()
    turn: int = 0


PowerHook = Callable[[bool], object]
CrashHook = Callable[[], object]


class Hardware:
    """All simulated machines. `clock_sleep` is how boots and copies take their time."""

    def __init__(
        self,
        *,
        clock_sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        persist: str | Path | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        self._sleep = clock_sleep
        self._random = random
        self._state = StateFile(persist)
        self._hosts: dict[str, Host] = {}
        self._power_hooks: dict[str, list[PowerHook]] = {}
        self._crash_hooks: dict[str, list[CrashHook]] = {}
        self._memories: dict[str, dict[str, bytes]] = {}  # by host and name: values read back are never shared
        self._lost: set[asyncio.Future[None]] = set()
        self.storage = Storage(self._state)
        self.faults = Faults()
        self.changes = Changes()

    def close(self) -> None:
        self._state.close()

    # --- hosts ------------------------------------------------------------------------------------------------------

    def add_host(
        self,
        name: str,
        vcpus: int = 64,
        memory_mb: int = 262144,
        disk_gb: int = 4000,
        shared_storage: str = "",
        boot_seconds: float = 0.0,
        copy_seconds: float = 0.0,
        topology: SimulatedTopology = PLAIN,
        traits: Sequence[str] = (),
    ) -> Host:
        """Add a machine; one that was here before has its saved state."""
        pool = f"shared:{shared_storage}" if shared_storage else f"local:{name}"
        switches = next((stored for _, _, stored in self._state.all("host", Switches, name)), None) or Switches()
        host = Host(
            name, vcpus, memory_mb, disk_gb, pool, boot_seconds, copy_seconds, switches, topology, tuple(traits)
        )
        self._hosts[name] = host
        for _, _, guest in self._state.all("guest", Guest, name):
            host.guests[guest.server, guest.copy] = guest
            disk = self.disk(host, guest.server, guest.copy)
            if guest.power == "on" and disk is not None:
                self.storage.open(disk, (name, guest.copy))
        return host

    def host(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            raise Refused("unknown_host", f"simulated host {name!r}: not found; there are {len(self._hosts)}")
        return host

    def hosts(self) -> list[str]:
        return list(self._hosts)

    def is_running(self, name: str) -> bool:
        return self.host(name).switches.power

    def is_linked(self, name: str) -> bool:
        """Return True if messages can reach the machine. Without power it has no link either."""
        switches = self.host(name).switches
        return switches.power and switches.link

    def switch_power(self, name: str, on: bool) -> None:
        """Cut the power (guests stop at once, disks stay) or give it back (guests stay off)."""
        host = self.host(name)
        if host.switches.power == on:
            return
        host.switches.power = on
        if not on:
            host.session += 1
            self.changes.forget(name)
            for guest in host.guests.values():
                self.stop(host, guest)
        self._state.put("host", name, "", host.switches)
        for hook in list(self._power_hooks.get(name, ())):
            hook(on)

    def switch_link(self, name: str, up: bool) -> None:
        host = self.host(name)
        host.switches.link = up
        self._state.put("host", name, "", host.switches)

    def on_power(self, name: str, hook: PowerHook) -> None:
        """`hook(on)` runs after each change of the host's power: the agent there dies and starts with it."""
        self._power_hooks.setdefault(name, []).append(hook)

    # --- failures ---------------------------------------------------------------------------------------------------

    def fail(self, host: str, verb: str, times: int = 1, how: str = "error") -> None:
        """The next `times` calls of the verb (`*`: any) fail, or crash the agent in the middle."""
        self.faults.order(self.host(host).name, verb, times, how)

    def heal(self, host: str | None = None) -> None:
        """Forget the failures still ordered for this host, or for all."""
        self.faults.clear(host)

    def on_crash(self, name: str, hook: CrashHook) -> None:
        self._crash_hooks.setdefault(name, []).append(hook)

    def crash(self, name: str) -> None:
        for hook in list(self._crash_hooks.get(name, ())):
            hook()

    async def never(self) -> None:
        """Never return: the caller of the verb is dead. The future is held, so nothing is collected."""
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost.add(lost)
        lost.add_done_callback(self._lost.discard)
        await lost

    async def pause(self, seconds: float) -> None:
        """Work of about that length; at least one moment in which the others run, or everything crashes."""
        if seconds and self._random is not None:
            seconds *= self._random.uniform(0.9, 1.1)
        await self._sleep(seconds)

    # --- guests -----------------------------------------------------------------------------------------------------

    def disk(self, host: Host, server: str, copy: int) -> Disk | None:
        return self.storage.held(host.pool, server, (host.name, copy))

    def guest(self, host: Host, server: str, copy: int) -> Guest:
        """Return the record of this copy, created if missing: a disk without a guest."""
        guest = host.guests.get((server, copy))
        if guest is None:
            guest = Guest(server=server, copy=copy)
            self.save(host, guest)
            host.guests[server, copy] = guest
        return guest

    def save(self, host: Host, guest: Guest) -> None:
        self._state.put("guest", host.name, f"{guest.server}/{guest.copy}", guest)

    def forget(self, host: Host, guest: Guest) -> None:
        del host.guests[guest.server, guest.copy]
        self._state.drop("guest", host.name, f"{guest.server}/{guest.copy}")

    def start(self, host: Host, guest: Guest, spec: GuestSpec, disk: Disk, volumes: Sequence[str] = ()) -> None:
        """`volumes`: what it finds on them."""
        self.storage.open(disk, (host.name, guest.copy))
        guest.power = "on"
        guest.boots += 1
        self.say(host, guest, spec, disk, volumes)

    def say(self, host: Host, guest: Guest, spec: GuestSpec, disk: Disk, volumes: Sequence[str]) -> None:
        """Write the guest's lines to its console, as when it boots, gets a volume or loses one."""
        of = list(zip(spec.volumes, volumes, strict=False))
        root = next((marker for one, marker in of if one.is_root), disk.marker)
        markers = f"root={root} volumes={','.join(marker for one, marker in of if not one.is_root)}"
        line = f"KILONOVA-GUEST name={spec.name} boot={guest.boots} {markers}\n"
        about = _disk_line(disk) + contents_line(spec, guest.given)
        guest.console = (guest.console + about + line)[-CONSOLE_LIMIT:]
        self.save(host, guest)

    def stop(self, host: Host, guest: Guest) -> None:
        if guest.power == "off":
            return
        guest.power = "off"
        disk = self.disk(host, guest.server, guest.copy)
        if disk is not None:
            self.storage.shut(disk, (host.name, guest.copy))
        self.save(host, guest)

    def report(self, host: Host, guest: Guest) -> CopyReport:
        disk = self.disk(host, guest.server, guest.copy)
        defined = guest.spec is not None
        return CopyReport(
            server=guest.server,
            copy=guest.copy,
            power=guest.power if defined else "absent",
            whole=disk is not None and disk.whole,
            marker="" if disk is None else disk.marker,
            defined=defined,
            claim=None if guest.spec is None else guest.spec.claim,
            volumes=() if guest.spec is None else tuple(one.attachment for one in guest.spec.volumes),
        )

    # --- the memory of a host ----------------------------------------------------------------------------------------

    def note(self, host: str, name: str, value: Any) -> None:
        """Remember a value; None forgets it."""
        if value is None:
            self._memory(host).pop(name, None)
            self._state.drop("memory", host, name)
        else:
            self._memory(host)[name] = msgspec.json.encode(value)
            self._state.put("memory", host, name, value)

    def remember(self, host: str, memory: JsonObject) -> None:
        """Replace the host's memory."""
        for name in [*self._memory(host)]:
            self.note(host, name, None)
        for name, value in memory.items():
            self.note(host, name, value)

    def recall(self, host: str) -> JsonObject:
        return {name: msgspec.json.decode(value) for name, value in self._memory(host).items()}

    def _memory(self, host: str) -> dict[str, bytes]:
        if host not in self._memories:
            rows = self._state.all("memory", msgspec.Raw, host)
            self._memories[host] = {name: bytes(value) for _, name, value in rows}
        return self._memories[host]

    # --- seeing and touching from outside ---------------------------------------------------------------------------

    def survey(self, server: str | None = None) -> list[GuestCopy]:
        """Return every copy on every host, powered or not, in the order in which the hosts were added."""
        return [
            GuestCopy(host=host.name, **msgspec.structs.asdict(self.report(host, guest)))
            for host, guest in self._guests()
            if server is None or guest.server == server
        ]

    def running(self, server: str) -> list[tuple[str, int]]:
        """(host, copy) of each running copy: more than one is a split brain."""
        return [(h.name, guest.copy) for h, guest in self._guests() if guest.server == server and guest.power == "on"]

    def read(self, server: str, host: str | None = None) -> str:
        """The marker of the running copy's root disk."""
        return self._running_disk(server, host).marker

    def write(self, server: str, text: str, host: str | None = None, name: str = ROOT) -> None:
        """Write as the guest itself to its root disk, or to a local disk of this name."""
        _check_marker(text)
        disk = self._running_disk(server, host)
        if name != ROOT and name not in disk.others:
            there = ", ".join([ROOT, *disk.others])
            raise Refused("no_disk", f"server {server}: it has no disk {name!r}; use one of {there}")
        self.storage.append(disk, text, name)

    def boots_from_volume(self, server: str, host: str) -> bool:
        specs = [guest.spec for guest in self.host(host).guests.values() if guest.server == server and guest.spec]
        return any(one.is_root for spec in specs for one in spec.volumes)

    def volume_of(self, server: str, host: str, volume: str, text: str) -> GuestVolume:
        """Return the volume to which the running guest is about to write this text."""
        _check_marker(text)
        at = self.host(host)
        running = [guest for guest in at.guests.values() if guest.server == server and guest.power == "on"]
        for one in [one for guest in running if guest.spec is not None for one in guest.spec.volumes]:
            if one.volume == volume or (one.is_root and volume == "root"):
                return one
        raise Refused("no_disk", f"server {server}: it has no guest on {host} that runs with volume {volume}")

    def plant(
        self, host: str, server: str, copy: int, power: str = "on", *, name: str = "planted", marker: str = "planted"
    ) -> None:
        """Make a guest without a request, as after a restored backup or a forgotten test."""
        at = self.host(host)
        disk = self.storage.begin(at.pool, server, (host, copy))
        self.storage.complete(disk, [marker])
        guest = self.guest(at, server, copy)
        guest.spec = GuestSpec(server=server, copy=copy, name=name, vcpus=1, memory_mb=512, disk_gb=1)
        self.save(at, guest)
        if power == "on":
            self.start(at, guest, guest.spec, disk)

    def lose(self, host: str, server: str) -> None:
        """Lose every copy of the server on this host, as when a disk breaks."""
        at = self.host(host)
        for guest in [guest for guest in at.guests.values() if guest.server == server]:
            self.stop(at, guest)
            disk = self.disk(at, server, guest.copy)
            if disk is not None:
                self.storage.release(disk, (host, guest.copy))
            self.forget(at, guest)

    def _guests(self) -> Iterator[tuple[Host, Guest]]:
        for host in self._hosts.values():
            for guest in host.guests.values():
                yield host, guest

    def _running_disk(self, server: str, host: str | None) -> Disk:
        copies = [pair for pair in self.running(server) if host in (None, pair[0])]
        if len(copies) != 1:
            where = ", ".join(f"{at} (copy {copy})" for at, copy in copies) or "nowhere"
            raise Refused("not_running", f"server {server} runs {where}; one running copy is needed")
        at = self.host(copies[0][0])
        disk = self.disk(at, server, copies[0][1])
        if disk is None:
            raise Refused("no_disk", f"copy {copies[0][1]} of server {server} on {at.name} has no disk")
        return disk


def _check_marker(text: str) -> None:
    if not text or text != "".join(text.split()):
        raise Refused("bad_text", f"marker {text!r}: must be one word without blanks")


def _disk_line(disk: Disk) -> str:
    """Return the console line about the guest's disks; "" if it has only the root disk, unchanged."""
    if not disk.others and not disk.grown:
        return ""
    return f"KILONOVA-DISKS {' '.join(disk.described())}\n"
