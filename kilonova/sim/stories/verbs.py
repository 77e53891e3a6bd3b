"""The verbs of a script. A request to the api gives an answer to wait for; everything else happens at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.compute.drivers.simulated.storage import ROOT
from kilonova.compute.drivers.simulated.volumes import BusVolumes
from kilonova.sim.lab.cloud import DATABASE_CLOCK
from kilonova.sim.lab.outages import HANGS, REFUSES
from kilonova.sim.stories.file import Lined, StoryError
from kilonova.sim.stories.images import ImageRequests
from kilonova.sim.stories.operator import OperatorRequests
from kilonova.sim.stories.requests import PendingResponse, Requests, either
from kilonova.sim.stories.scene import SUBJECTS, differences
from kilonova.sim.stories.trouble import WAYS, Spoiled

if TYPE_CHECKING:
    pass


class Verbs(OperatorRequests):
    """Public methods are verbs. Those that let time pass cannot be done `when` something happens."""

    LET_TIME_PASS = ("wait", "until", "check")

    # -- the world ----------------------------------------------------------------------------------------------

    def power(self, **states: str) -> None:
        for host, state in states.items():
            self.cloud.hardware.switch_power(host, either(state, "on", "off"))

    def link(self, **states: str) -> None:
        for host, state in states.items():
            self.cloud.hardware.switch_link(host, either(state, "up", "cut"))

    def bus(self, state: str) -> None:
        self.cloud.cut_bus(not either(state, "up", "down"))

    def fence(self, state: str) -> None:
        """`works`, `fails`, `hangs` or `lies`: what the fence command does from now on."""
        fence = self.cloud.fence
        if state not in ("works", "fails", "hangs", "lies"):
            raise ValueError(f"a fence works, fails, hangs or lies, not {state!r}")
        fence.broken = "the story says so" if state == "fails" else ""
        fence.hangs, fence.lies = state == "hangs", state == "lies"

    def fail(self, host: str, verb: str, times: int = 1, how: str = "error") -> None:
        self.cloud.hardware.fail(host, verb, times, how)

    def kill(self, role: str) -> None:
        self.cloud.kill(self.player.role(role))

    def terminate(self, role: str) -> None:
        """SIGTERM of a conductor."""
        self.cloud.terminate(self.player.role(role))

    def start(self, what: str) -> PendingResponse | None:
        """Start a server that was stopped, or a role that was killed."""
        if what != "taker" and what not in self.cloud.known_roles():
            return self._submit("start", what)
        self.cloud.start(self.player.role(what))
        return None

    def crash(self, role: str, back_after: float = 1.0) -> None:
        """kill -9; its supervisor starts it again."""
        self.cloud.crash(self.player.role(role), back_after)

    def stall(self, role: str) -> None:
        """Freeze a role: not one line of it runs until `resume`."""
        self.cloud.stall(self.player.role(role))

    def resume(self, role: str) -> None:
        self.cloud.resume(self.player.role(role))

    def commit(self, on: str, how: str, by: str = "", times: int = 1) -> None:
        """Make the next COMMITs there fail, or succeed without an answer."""
        if how not in WAYS:
            raise ValueError(f"a COMMIT is {' or '.join(WAYS)}, not {how!r}")
        self.cloud.commits.orders.append(Spoiled(on, how, self.player.role(by) if by else "", times))

    def clock(self, **seconds: float) -> None:
        """Set clocks. `conductor1: 3600`: from now on its clock is an hour ahead; `databases` is the clock of all
        databases."""
        for name, ahead in seconds.items():
            if name != DATABASE_CLOCK and name not in self.cloud.known_roles():
                raise ValueError(f"{name}: not a role; there are {', '.join(sorted(self.cloud.known_roles()))}")
            self.cloud.set_clock(name, float(ahead))

    def database(self, **states: str) -> None:
        """`cell2: refuses`, `hangs` or `answers`."""
        for name, state in states.items():
            if name not in self.cloud.databases or state not in (REFUSES, HANGS, "answers"):
                raise ValueError(f"{name}: {state!r} is unknown; a database refuses, hangs or answers")
            if state == "answers":
                self.cloud.outages.end(name)
            else:
                self.cloud.outages.begin(name, state)

    def write(
        self, server: str, text: str, host: str | None = None, volume: str = "", disk: str = ROOT
    ) -> PendingResponse | None:
        """Write to the guest's disk (`root`, `ephemeral0`, `swap`) or to one of its volumes, as the guest itself
        does."""
        server_id = self.player.names.server_id(server)
        if not volume:
            self.cloud.hardware.write(server_id, text, host, disk)
            return None
        at = host or self.cloud.hardware.running(server_id)[0][0]
        guest_volume = self.cloud.hardware.volume_of(server_id, at, self._volume(volume), text)
        return self._ask(lambda engine: BusVolumes(engine.world.bus).write(guest_volume, text))

    def plant(self, host: str, guest: str, copy: int = 1, power: str = "on") -> None:
        """Plant a guest that was not requested."""
        self.cloud.hardware.plant(host, self.player.names.server_id(guest), copy, power)

    def guest(self, server: str, power: str, host: str) -> None:
        """End a guest as if by itself, or start it bypassing its agent."""
        switch_guest(self.cloud.hardware, host, self.player.names.server_id(server), either(power, "on", "off"))

    def lose(self, **servers: str) -> None:
        """Lose what a machine's disks have of this server, without notice."""
        for host, server in servers.items():
            self.cloud.hardware.lose(host, self.player.names.server_id(server))

    def room(self, **sizes: dict[str, int]) -> None:
        """Change a machine's size; its agent reports it at its next start."""
        for name, size in sizes.items():
            host = self.cloud.hardware.host(name)
            host.vcpus = size.get("vcpus", host.vcpus)
            host.memory_mb = size.get("memory_mb", host.memory_mb)

    def reinstall(self, host: str) -> None:
        """Lose the agent's key with the system disk; the guests' disks stay."""
        self.cloud.hardware.remember(host, {})

    def rename(self, host: str, to: str) -> None:
        """Start a host with the same system disk under another name."""
        self.cloud.add_host(to)
        self.cloud.hardware.remember(to, self.cloud.hardware.recall(host))

    # -- time ---------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.player.let_pass(float(seconds))

    def until(self, what: str) -> None:
        self.player.until(what)

    def check(self, **expected: Any) -> None:
        """Compare as `then:` does, in the middle of the story."""
        unknown = [key for key in expected if key not in SUBJECTS]
        if unknown:
            raise ValueError(f"nothing is called {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
        self.player.violations += [f"check: {sentence}" for sentence in differences(expected, self.player.scene())]


NAMES = [
    name
    for name in (*vars(ImageRequests), *vars(Requests), *vars(OperatorRequests), *vars(Verbs))
    if name.islower() and not name.startswith("_")
]
CONNECTIVES = ("when", "do")


def check_verbs(where: Callable[[Any], str], entries: Sequence[object]) -> None:
    """Check before anything runs that every entry is one known verb, or `when` with its `do`."""
    for entry in entries:
        if not isinstance(entry, Lined):
            raise StoryError(where(entry), f"{entry!r} is not a step; a step is `verb: what`")
        verbs = [key for key in entry if key not in CONNECTIVES]
        for verb in verbs:
            if verb not in NAMES:
                raise StoryError(where(entry), f"unknown verb {verb!r}; there are when, {', '.join(sorted(NAMES))}")
        if len(verbs) + ("when" in entry) != 1 or ("when" in entry) != ("do" in entry):
            raise StoryError(where(entry), f"a step is one verb, or `when` with `do`, not {', '.join(entry)}")
        _check_inner(where, entry)


def _check_inner(where: Callable[[Any], str], entry: Lined) -> None:
    if "when" in entry:
        inner = entry["do"] if isinstance(entry["do"], list) else [entry["do"]]
        check_verbs(where, inner)
        for step in inner:
            late = [verb for verb in step if verb in Verbs.LET_TIME_PASS]
            if late:
                raise StoryError(where(step), f"`{late[0]}` lets time pass and cannot be done `when` something happens")
    if "parallel" in entry:
        check_verbs(where, entry["parallel"])
    if "expect_refused" in entry:
        check_verbs(where, [entry["expect_refused"].get("do")])
