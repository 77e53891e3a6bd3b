"""The faults of a history: of roles, hosts, messages and databases."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.params import MoveParams
from kilonova.domain.whole_hosts import REFUSE, SKIP
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.cancel import cancel
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.hosts.states import declare_down, declare_up, find_host
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts, evacuate_host
from kilonova.sim.histories.acts import Act
from kilonova.sim.histories.gone import Asks, GoneHost
from kilonova.sim.histories.watch import FenceCommand, WatchTrouble
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.loop.faults import Weather
from kilonova.sim.loop.process import Process, current_process

WATCHED_AFTER = 150.0  # seconds after a database was back: it takes so long until silence proves something again
EVACUATED_AFTER = (0.3, 2.0, 12.0, 40.0, 80.0)  # seconds after a database was back
AIMS = {1: False, 2: True}  # by an act's number: whether the evacuation is forced to the host it names
MANY = 100_000  # times; more often than it is tried


class Trouble(WatchTrouble):
    """Public methods are the NEMESES of acts.py."""

    def __init__(self, cloud: SimCloud, people: Asks) -> None:
        self.cloud = cloud
        self.people = people
        self.over = False
        self.watch_until = 0.0  # by the loop's time: a database was away, see `living_hosts.py`
        self._outside = contextvars.copy_context()  # of no process

    def end(self) -> None:
        """End crashes and stalls: frozen roles go on, and every declaration about a host is withdrawn."""
        self.over = True
        self.cloud.at_door = None
        for role in self.cloud.roles.values():
            self.cloud.loop.thaw(role.process)
        for host in self.cloud.hardware.hosts():
            self._declared_up(host)
        if isinstance(self.cloud.fence, FenceCommand):
            self.mend_fence()

    def crash(self, act: Act) -> None:
        self._at_point(act, lambda process: self.cloud.crash(act.who, back_after=5.0))

    def stall(self, act: Act) -> None:
        """Freeze a role, as by SIGSTOP; later it goes on as if nothing had happened (A11)."""
        loop = self.cloud.loop

        def stall(process: Process) -> None:
            loop.freeze(process)
            loop.call_later(act.seconds, loop.thaw, process)

        self._at_point(act, stall)

    def ambush(self, act: Act) -> None:
        """Freeze a conductor at the door of a database while it works on a request, and send another request for the
        same server; then the first one goes on in a changed world (A11)."""
        first, second, database = act.option.split()
        loop, visits = self.cloud.loop, act.number

        def at_door(name: str) -> None:
            nonlocal visits
            process = current_process()
            if name != database or process is None or not process.name.startswith("conductor"):
                return
            visits -= 1
            if not visits:
                self.cloud.at_door = None
                loop.freeze(process)
                loop.call_later(act.seconds, loop.thaw, process, context=self._outside)

        self.cloud.at_door = at_door
        self.people.request(msgspec.structs.replace(act, do=first, option=""))
        loop.call_later(
            act.seconds / 2 if second != "cancel" else 0.5,
            self.people.request,
            msgspec.structs.replace(act, do=second, option=""),
        )

    def _at_point(self, act: Act, strike: Callable[[Process], None]) -> None:
        """Strike at the n-th await of that role from now."""
        role = self.cloud.roles.get(act.who)
        if role is None:
            return
        last = role.process.points + act.number

        def due(process: Process) -> bool:
            return process is role.process and process.points >= last and not self.over

        self.cloud.loop.crash_when(due, strike)

    def power(self, act: Act) -> None:
        self.cloud.hardware.switch_power(act.who, act.option == "on")

    def link(self, act: Act) -> None:
        self.cloud.hardware.switch_link(act.who, act.option == "on")

    def driver(self, act: Act) -> None:
        verb, how = act.option.split(":")
        self.cloud.hardware.fail(act.who, verb, 1, how)

    def broken(self, act: Act) -> None:
        """Break one verb of a host for a while: an undo that needs it is refused again and again (law 17)."""
        verb, how = act.option.split(":")
        self.cloud.hardware.fail(act.who, verb, MANY, how)
        self.cloud.loop.call_later(act.seconds, self.cloud.hardware.heal, act.who)

    def refusal(self, act: Act) -> None:
        """Make every host refuse one verb, or all, for good: the request made now fails, and so does its undo. Later an
        operator abandons it, and only then the hosts are repaired (law 17)."""
        kind, verb = act.option.split()
        hosts, loop = list(self.cloud.hardware.hosts()), self.cloud.loop
        for host in hosts:
            self.cloud.hardware.fail(host, verb, MANY, "refuse")
        self.people.request(msgspec.structs.replace(act, do=kind, option=""))
        for later in (0.0, 1.0, 2.0):  # as many entries as are stuck
            loop.call_later(
                act.seconds + later, self.people.request, msgspec.structs.replace(act, do="abandon", option="")
            )
        for host in hosts:
            loop.call_later(act.seconds + 5.0, self.cloud.hardware.heal, host)

    def declare(self, act: Act) -> None:
        """Declare a host as an operator does; to keep that honest, it is switched off before it is declared down."""
        if act.option == "off":
            self.cloud.hardware.switch_power(act.who, False)
            self.people.ask(lambda engine: declare_down(engine, act.who))
        else:
            self._declared_up(act.who)

    def disaster(self, act: Act) -> None:
        """Kill or cut off a host; once that is noticed its servers are evacuated, and some time later it returns."""
        if act.option == "link":
            self.cloud.hardware.switch_link(act.who, False)
        else:
            self.cloud.hardware.switch_power(act.who, False)
        if act.option == "declare":
            self.people.ask(lambda engine: declare_down(engine, act.who))
        loop = self.cloud.loop
        loop.call_later(5.0 if act.option == "declare" else 90.0, self._evacuate_all, act)
        loop.call_later(200.0, self.cloud.hardware.switch_link, act.who, True)
        loop.call_later(200.0, self._declared_up, act.who)

    def drain(self, act: Act) -> None:
        """Drain a host, with or without misfits; later that is cancelled if it still runs, and the host is returned."""
        bulk = Bulk(on_misfit=SKIP if act.number else REFUSE, by=act.option)
        cause, begun = self.cloud.cause(), dict[str, Accepted]()

        async def drain(engine: Engine) -> None:
            begun.update(await ask_for_hosts(engine, "drain_host", [act.who], cause, None, bulk))

        async def come_home(engine: Engine) -> None:
            for name, accepted in begun.items():
                with contextlib.suppress(Refused):  # it has ended
                    await cancel(engine, engine.world.db.cell(name), accepted.operation_id, "admin")
                    return
            await ask_for_hosts(engine, "return_host", [act.who], cause)

        self.people.ask(drain)
        for later in (0.0, 60.0):
            self.cloud.loop.call_later(act.seconds + later, self.people.ask, come_home)

    def _evacuate_all(self, act: Act) -> None:
        cause = self.cloud.cause()

        async def whole(engine: Engine) -> Accepted:
            journal, _ = await find_host(engine, act.who)
            return await evacuate_host(engine, journal, act.who, cause)

        if act.option == "whole":
            self.people.ask(whole)
            return
        for server in self.people.ids.values():
            ask = Ask(kind="evacuate", server_id=server, cause=cause, params=self._aim(act))
            self.people.ask(lambda engine, ask=ask: submit(engine, ask))  # type: ignore[misc]

    def _aim(self, act: Act) -> MoveParams:
        """Return the destination: none, the next host through the filters, or the next host past them."""
        hosts = self.cloud.hardware.hosts()
        if act.number not in AIMS or act.who not in hosts:
            return MoveParams()
        return MoveParams(host=hosts[(hosts.index(act.who) + 1) % len(hosts)], forced=AIMS[act.number])

    def gone(self, act: Act) -> None:
        """Declare a host gone; see gone.py."""
        GoneHost(self.cloud, self.people, act, self._evacuate_all, lambda: self.over).begin()

    def _declared_up(self, host: str) -> None:
        self.cloud.hardware.switch_power(host, True)
        self.people.ask(lambda engine: declare_up(engine, host))

    def deaf(self, act: Act) -> None:
        """Cut a role off from the bus for a while."""
        weather: Weather = self.cloud.faults.weather
        weather.cut.add(act.who)
        self.cloud.loop.call_later(90.0, weather.cut.discard, act.who)

    def clock(self, act: Act) -> None:
        """Set the clock of a machine, or of the databases."""
        self.cloud.set_clock(act.who, act.seconds)

    def outage(self, act: Act) -> None:
        """Make a database unreachable for a while."""
        self.cloud.outages.begin(act.who, act.option)
        self.cloud.loop.call_later(act.seconds, self.cloud.outages.end, act.who)

    def blackout(self, act: Act) -> None:
        """Make a database unreachable for longer than a host may be silent, while hosts send heartbeats; perhaps one of
        them dies meanwhile. Then evacuate every server as soon as that is not refused; in the end the dead host returns
        (law 9)."""
        how, _, dies = act.option.partition(" ")
        loop, hardware = self.cloud.loop, self.cloud.hardware
        self.watch_until = max(self.watch_until, loop.time() + act.seconds + WATCHED_AFTER)
        self.cloud.outages.begin(act.who, how)
        loop.call_later(act.seconds, self.cloud.outages.end, act.who)
        if dies:
            loop.call_later(act.seconds / 2, hardware.switch_power, dies, False)
            loop.call_later(act.seconds + WATCHED_AFTER, self._declared_up, dies)
        for later in EVACUATED_AFTER:
            loop.call_later(act.seconds + later, self._evacuate_all, act)
