"""The connection to simulated machines over the bus: the switches of this process's machines, the disk port of others.

A machine is independent of its agent: the agent may be dead or cut off, the power controller still answers.
"""

from __future__ import annotations

import asyncio

import msgspec

from kilonova.bus import machine_subject
from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.compute.drivers.simulated.hardware import Guest, Hardware
from kilonova.compute.drivers.simulated.storage import ROOT, is_local
from kilonova.compute.drivers.simulated.volumes import BusVolumes, VolumeDoor
from kilonova.domain.errors import Failed, NoAnswer, Refused
from kilonova.domain.machine import MachineAnswer, MachineOrder, PlantOrder, SentDisk, WriteOrder
from kilonova.world import Bus

ANSWER_SECONDS = 5.0
PATIENCE_SECONDS = 30.0  # a destination whose process restarts is back within that


class Machine:
    """The outside of one simulated host of this process."""

    def __init__(self, hardware: Hardware, host: str) -> None:
        self._hardware = hardware
        self._host = host
        self._volumes: VolumeDoor | None = None

    async def serve(self, bus: Bus) -> None:
        self._volumes = BusVolumes(bus)
        await bus.serve(machine_subject(self._host), self._on_order)

    async def _on_order(self, body: bytes) -> bytes:
        try:
            console = await self._carry_out(msgspec.json.decode(body, type=MachineOrder))
        except (Refused, Failed) as why:
            return msgspec.json.encode(MachineAnswer(code=why.code, refused=why.message))
        switches = self._hardware.host(self._host).switches
        return msgspec.json.encode(MachineAnswer(power=switches.power, link=switches.link, console=console))

    async def _carry_out(self, order: MachineOrder) -> str:
        hardware, host = self._hardware, self._host
        if order.fail is not None:  # first: it can be refused
            hardware.fail(host, order.fail.verb, order.fail.times, order.fail.how)
        if order.lose is not None:
            hardware.lose(host, order.lose)
        if order.plant is not None:
            self._plant(order.plant)
        if order.guest is not None:
            switch_guest(hardware, host, order.guest.server, order.guest.power == "on")
        if order.link is not None:
            hardware.switch_link(host, order.link)
        if order.power is not None:
            hardware.switch_power(host, order.power)
        if order.write is not None:
            await self._write(order.write)
        if order.receive is not None:
            self._receive(order.receive)
        return self._console(order.console) if order.console is not None else ""

    def _plant(self, order: PlantOrder) -> None:
        if (order.server, order.copy) in self._hardware.host(self._host).guests:
            raise Refused("exists", f"{self._host} has a copy {order.copy} of server {order.server} already")
        self._hardware.plant(self._host, order.server, order.copy, order.power)

    async def _write(self, order: WriteOrder) -> None:
        is_root = order.disk == ROOT and not self._hardware.boots_from_volume(order.server, self._host)
        if is_root or is_local(order.disk):
            self._hardware.write(order.server, order.text, self._host, order.disk)
            return
        volume = self._hardware.volume_of(order.server, self._host, order.disk, order.text)
        if self._volumes is not None:
            await self._volumes.write(volume, order.text)

    def _receive(self, sent: SentDisk) -> None:
        """Receive a disk for a copy that was prepared here; refuse one that arrives after the copy was given up."""
        host, storage = self._hardware.host(self._host), self._hardware.storage
        if not self._hardware.is_linked(host.name):
            raise Failed("unreachable", f"{host.name} is cut off")
        if (sent.server, sent.copy) not in host.guests:
            raise Failed("no_guest", f"{host.name} does not expect a disk for copy {sent.copy} of server {sent.server}")
        disk = storage.begin(host.pool, sent.server, (host.name, sent.copy))
        if not disk.whole:
            storage.complete(disk, sent.content, sent.size_gb, sent.others)

    def _console(self, server: str) -> str:
        """Return the console of the running copy, else of the newest."""
        guests = [guest for guest in self._hardware.host(self._host).guests.values() if guest.server == server]
        if not guests:
            raise Refused("not_found", f"{self._host} has no guest of server {server}")
        return max(guests, key=_in_use).console


def _in_use(guest: Guest) -> tuple[bool, int]:
    return guest.power == "on", guest.copy


class Peers:
    """Machines of other processes, as seen by one that sends a disk."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def send(self, to_host: str, disk: SentDisk) -> None:
        """Return when the disk is whole there; sending it again changes nothing."""
        answer = await self._ask(to_host, msgspec.json.encode(MachineOrder(receive=disk)))
        if answer.refused:
            raise Failed(answer.code, answer.refused)

    async def _ask(self, host: str, body: bytes) -> MachineAnswer:
        ends = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            try:
                answer = await self._bus.call(machine_subject(host), body, timeout=ANSWER_SECONDS)
            except NoAnswer as error:
                if asyncio.get_running_loop().time() > ends:
                    raise Failed("unreachable", f"{host} does not take the disk: {error}") from error
                await asyncio.sleep(0.5)
                continue
            return msgspec.json.decode(answer, type=MachineAnswer)
