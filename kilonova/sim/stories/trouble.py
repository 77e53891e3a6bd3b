"""The faults that a story causes from outside: cut the bus, spoil a COMMIT, stop a process; and which process committed
what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilonova.domain.errors import CommitFailed, CommitUnknown
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.shape import CloudShape
from kilonova.sim.loop.faults import Weather
from kilonova.sim.loop.process import current_process

WAYS = ("failed", "unknown")


@dataclass
class Spoiled:
    """The next `times` COMMITs on a database (of one role, or of any) go wrong."""

    database: str
    how: str
    by: str = ""
    times: int = 1

    def concerns(self, database: str, role: str, how: str) -> bool:
        return self.times > 0 and self.how == how and self.database == database and self.by in ("", role)


class Commits:
    """A listener to every COMMIT of every role; see sim/loop/faults.py."""

    def __init__(self, weather: Weather) -> None:
        self.weather = weather
        self.orders: list[Spoiled] = []
        self.commits_seen: list[tuple[str, str]] = []  # (database, role), until they are read
        self.log_line: Callable[[str, str], None] = lambda role, text: None

    def before_commit(self, store_name: str) -> None:
        if self._spoils(store_name, "failed"):
            raise CommitFailed(f"{store_name}: the story failed it")
        self.commits_seen.append((store_name, role_here()))

    def after_commit(self, store_name: str) -> None:
        if self._spoils(store_name, "unknown"):
            raise CommitUnknown(f"{store_name}: the story cut the connection")

    def _spoils(self, database: str, how: str) -> bool:
        role = role_here()
        order = next((order for order in self.orders if order.concerns(database, role, how)), None)
        if order is None:
            return False
        order.times -= 1
        self.log_line(role, f"COMMIT on {database}: {how}")
        return True

    def stop(self) -> None:
        self.orders.clear()
        self.weather.stop()


def role_here() -> str:
    process = current_process()
    return process.name if process is not None else ""


class StoryCloud(SimCloud):
    """A cloud in which all clocks agree, so that a log can be read."""

    def __init__(self, shape: CloudShape, seed: str) -> None:
        self.weather = Weather(seed)
        self.commits = Commits(self.weather)
        super().__init__(shape, seed=seed, weather=self.weather, faults=self.commits)
        self.weather.hardware = self.hardware

    def _skew(self, name: str) -> float:
        return 0.0

    def known_roles(self) -> set[str]:
        """Return all roles that ever lived, and every machine."""
        return {*self._lives, *self.hardware.hosts()}

    def stall(self, role: str) -> None:
        self.loop.freeze(self.roles[role].process)

    def resume(self, role: str) -> None:
        self.loop.thaw(self.roles[role].process)

    def cut_bus(self, cut: bool) -> None:
        """Cut the bus: no role hears another."""
        if cut:
            self.weather.cut.update(self.roles)
        else:
            self.weather.cut.clear()
