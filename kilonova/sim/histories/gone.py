"""A host that is declared gone in a history: it dies with moves from and to it open, its servers are evacuated, an
operator declares it gone, and later the machine returns, or another one under its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kilonova.domain.errors import Refused
from kilonova.engine.accept import Accepted
from kilonova.engine.core import Engine
from kilonova.hosts import states as hosts
from kilonova.operations.quarantine import remove_quarantined
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from kilonova.schema.tables import cell, control
from kilonova.sim.histories.acts import Act
from kilonova.sim.lab.cloud import SimCloud
from kilonova.store import rows
from kilonova.store.quarantine import open_quarantine
from kilonova.world import Row, Tx

SILENT = 90.0  # seconds after which its silence proves that it is dead
DECLARED_AFTER = (12.0, 30.0, 60.0, 110.0)  # seconds after the evacuation; the first are often refused
RETURNS_AFTER = 160.0  # seconds after the evacuation
SETTLED_AFTER = 40.0  # seconds after its return: an operator enables it and settles its quarantine


class Asks(Protocol):
    """The interface for requests to the API; see player.py."""

    ids: dict[int, str]

    def request(self, act: Act) -> None: ...

    def ask(self, work: Callable[[Engine], Awaitable[Any]], callback: Callable[[Any], None] = ...) -> None: ...


class GoneHost:
    """A host that is declared gone. `evacuate` requests the evacuation of its servers. Once trouble `is_over` the host
    does not die, is not declared gone, and its machine is not replaced."""

    def __init__(
        self, cloud: SimCloud, people: Asks, act: Act, evacuate: Callable[[Act], None], is_over: Callable[[], bool]
    ) -> None:
        self.cloud = cloud
        self.people = people
        self.act = act
        self.host = act.who
        self.dies, self.returns = act.option.split()
        self.evacuate = evacuate
        self.is_over = is_over

    def begin(self) -> None:
        """Move every second server first, so that some moves from and to the host wait for confirm or revert."""
        for slot in sorted(self.people.ids)[:: 2 if self.act.number else 1]:
            if self.act.seconds:
                self.people.request(Act(after=0.0, do="migrate", server=slot, who=self.host if slot % 2 else ""))
        self.cloud.loop.call_later(self.act.seconds, self._die)

    def _die(self) -> None:
        if self.is_over():
            return
        loop = self.cloud.loop
        if self.dies == "cut":
            self.cloud.hardware.switch_link(self.host, False)
        else:
            self.cloud.hardware.switch_power(self.host, False)
        if self.dies == "declared":
            self.people.ask(lambda engine: hosts.declare_down(engine, self.host))
        evacuated = 5.0 if self.dies == "declared" else SILENT
        loop.call_later(evacuated, self.evacuate, self.act)
        for later in DECLARED_AFTER:
            loop.call_later(evacuated + later, self._declare)
        loop.call_later(evacuated + RETURNS_AFTER, self._return)

    def _declare(self) -> None:
        if self.is_over():
            return
        cause = self.cloud.cause()

        async def option(engine: Engine) -> Accepted:
            journal, _ = await hosts.find_host(engine, self.host)
            return await declare_gone(engine, journal, self.host, "history", cause)

        self.people.ask(option)

    def _return(self) -> None:
        """Start the machine, or another one. Another one may take the name only once the host is no longer recorded:
        its key would be refused."""
        if self.returns == "same" or self.is_over():
            self._switch_on()
            return
        life = self.cloud.lives_of(self.host)
        self.cloud.hardware.switch_power(self.host, False)

        def note(is_removed: bool) -> None:
            is_off = not self.cloud.hardware.is_running(self.host) and not self.is_over()
            if is_removed and is_off and self.cloud.lives_of(self.host) == life:
                self._replace()
            self._switch_on()

        self.people.ask(self._is_removed, note)
        self.cloud.loop.call_later(SETTLED_AFTER, self._switch_on)  # also where the api does not answer

    async def _is_removed(self, engine: Engine) -> bool:
        async def option(tx: Tx) -> Row | None:
            return await rows.fetch(tx, control.gone_hosts, host=self.host)

        async def record(tx: Tx) -> Row | None:
            return await rows.fetch(tx, cell.hosts, name=self.host)

        gone, stores = await engine.world.db.control.read(option), engine.world.db
        recorded = [await stores.cell(name).read(record) for name in stores.cells()]
        return gone is not None and gone["ended_at"] is not None and not any(recorded)

    def _replace(self) -> None:
        """Replace the machine: without the key, and a `new` one also without the disks. The only whole disk of a server
        goes along."""
        hardware = self.cloud.hardware
        hardware.remember(self.host, {})
        if self.returns != "new":
            return
        for server in {one.server for one in hardware.survey() if one.host == self.host}:
            if any(one.whole and one.host != self.host for one in hardware.survey(server)):
                hardware.lose(self.host, server)

    def _switch_on(self) -> None:
        self.cloud.hardware.switch_link(self.host, True)
        self.cloud.hardware.switch_power(self.host, True)
        self.people.ask(lambda engine: hosts.declare_up(engine, self.host))
        self.cloud.loop.call_later(SETTLED_AFTER, self._settle)

    def _settle(self) -> None:
        """Enable the host again; the copies that it set aside are removed, or left where they are."""
        cause = self.cloud.cause()

        async def option(engine: Engine) -> None:
            await hosts.enable(engine, self.host)
            journal, _ = await hosts.find_host(engine, self.host)

            async def listed(tx: Tx) -> list[Row]:
                return list(await open_quarantine(tx, self.host))

            for row in await journal.read(listed) if self.act.number else ():
                if "declared gone" not in row["reason"]:  # the only copy there may be
                    continue
                try:
                    await remove_quarantined(engine, self.host, row["server_id"], row["copy"], cause)
                except Refused:
                    continue

        self.people.ask(option)
