"""Apply the rules of a host's ports by nft, which accepts all ports' rules or none.

A port whose rules it refuses is closed, so that it does not hold up the ports of others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from kilonova.compute.network.filters import TABLE, ruleset
from kilonova.compute.network.layout import Plugged
from kilonova.compute.network.programs import PROGRAM_FAILED, Programs
from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import GuestPort

logger = logging.getLogger(__name__)
TextOf = Callable[[Sequence[Plugged]], str]


class RulesRefused(Failed):
    """nft did not take the rules of the host, whose former ones hold, or those of one port, which is closed."""


class PortRules:
    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._written = ""
        self._refused: dict[str, tuple[GuestPort, RulesRefused]] = {}  # by port: as it was then, and why

    @property
    def refused(self) -> dict[str, RulesRefused]:
        """Return, by port, why it is closed."""
        return {port_id: why for port_id, (_, why) in self._refused.items()}

    async def write(self, text: str) -> None:
        """Raise `RulesRefused`."""
        if text != self._written:
            await self._nft(text)
            self._written = text

    async def write_for(self, plugged: Sequence[Plugged], text_of: TextOf) -> list[Plugged]:
        """Return the ports; one whose rules nft refuses is not bound. Where nft refuses even the rules of no port, or
        does not end, the former rules hold. Raise `RulesRefused`."""
        try:
            await self.write(text_of(plugged))
        except RulesRefused as why:
            if why.code != PROGRAM_FAILED or await self._refusal(text_of([])) is not None:
                raise
            taken = await self._taken(plugged, text_of)
            await self.write(text_of(taken))
        else:
            taken = list(plugged)
        await self._note([one for one in plugged if one not in taken], text_of)
        return [one if one in taken else replace(one, is_bound=False) for one in plugged]

    async def close_unless_filtered(self) -> None:
        """Close all taps unless the rules of the last run still exist: those filter the known taps and close all
        others. After a flush every tap would be open."""
        tables = (await self._programs.run("nft", "list", "tables")).splitlines()
        if not {f"table {family} {TABLE}" for family in ("bridge", "inet")} <= set(tables):
            await self.write(ruleset([]))

    async def _taken(self, plugged: Sequence[Plugged], text_of: TextOf) -> list[Plugged]:
        """Return the ports whose rules nft accepts. Usually they are those of the last time."""
        likely = [one for one in plugged if self._refused.get(one.port.port_id, (None,))[0] != one.port]
        if len(likely) < len(plugged) and await self._refusal(text_of(likely)) is None:
            return likely
        return await self._searched(plugged, text_of)

    async def _searched(self, plugged: Sequence[Plugged], text_of: TextOf) -> list[Plugged]:
        """Search by halves: most ports are in a half that nft accepts as a whole."""
        if await self._refusal(text_of(plugged)) is None:
            return list(plugged)
        if len(plugged) < 2:
            return []
        half = len(plugged) // 2
        first, second = [await self._searched(part, text_of) for part in (plugged[:half], plugged[half:])]
        return [*first, *second] if await self._refusal(text_of([*first, *second])) is None else first

    async def _note(self, refused: Sequence[Plugged], text_of: TextOf) -> None:
        before, self._refused = self._refused, {}
        for one in refused:
            port_id = one.port.port_id
            if before.get(port_id, (None,))[0] == one.port:
                self._refused[port_id] = before[port_id]
                continue
            alone = await self._refusal(text_of([one]))
            why = alone or RulesRefused(PROGRAM_FAILED, f"port {port_id}: nft refuses its rules beside those of others")
            self._refused[port_id] = one.port, why
            logger.error("port is closed, its rules are refused: server=%s port=%s: %s", one.server, port_id, why)

    async def _refusal(self, text: str) -> RulesRefused | None:
        """Return nft's refusal of these rules, if any; nothing is changed."""
        try:
            await self._nft(text, "--check")
        except RulesRefused as why:
            return why
        return None

    async def _nft(self, text: str, *options: str) -> None:
        try:
            await self._programs.run("nft", *options, "-f", "-", given=text)
        except Failed as why:
            raise RulesRefused(why.code, why.message) from why
