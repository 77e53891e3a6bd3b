"""A simulated host's access to the volumes of its guests: over the bus, with the secret of their connection."""

from __future__ import annotations

from typing import Protocol

from kilonova.domain.errors import Failed, NoAnswer, Refused
from kilonova.domain.volume import Content
from kilonova.services.volume.content import ask
from kilonova.world import Bus, GuestVolume

READS = 3


class VolumeDoor(Protocol):
    async def read(self, volume: GuestVolume) -> str:
        """Return its marker. Raise `Failed` if it cannot be opened."""

    async def write(self, volume: GuestVolume, text: str) -> None: ...


class BusVolumes:
    """`VolumeDoor` to the volume service of this cloud."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, volume: GuestVolume) -> str:
        """Read a volume; retry without an answer: the service may have died, and reading twice is harmless."""
        for _ in range(READS - 1):
            try:
                return await self._ask(volume, None)
            except Failed as why:
                if why.final:
                    raise
        return await self._ask(volume, None)

    async def write(self, volume: GuestVolume, text: str) -> None:
        await self._ask(volume, text)

    async def _ask(self, volume: GuestVolume, text: str | None) -> str:
        secret = volume.connection.get("data", {}).get("auth_password")
        if not secret:
            raise _unreachable(volume, "it is not connected to this host", final=True)
        try:
            return await ask(self._bus, Content(attachment=volume.attachment, secret=secret, text=text))
        except Refused as why:
            raise _unreachable(volume, why.message, final=True) from why
        except NoAnswer as why:
            raise _unreachable(volume, str(why), final=False) from why


def _unreachable(volume: GuestVolume, why: str, *, final: bool) -> Failed:
    return Failed("volume_unreachable", f"volume {volume.volume} cannot be opened: {why}", final=final)
