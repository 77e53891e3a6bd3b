"""A living host never counts as down, whatever becomes of the databases (law 9)."""

from __future__ import annotations

from kilonova.domain.host import HostState
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.loop.faults import Weather
from kilonova.store.hosts import judge_all
from kilonova.world import Stores, Tx

LOOK_EVERY = 5.0  # seconds


class LivingHosts:
    """A watch over hosts while a database is unreachable, and afterwards."""

    def __init__(self, cloud: SimCloud) -> None:
        self.cloud = cloud
        self._since: dict[str, float] = {}  # by host: it was seen alive at every look since then

    def look(self) -> list[str]:
        """Return the hosts that were alive for longer than a host may be silent and still count as down by silence."""
        now, limit = self.cloud.loop.time(), self.cloud.shape.settings.default.service_down_time
        beating = {host for host, since in self.alive_since().items() if now - since > limit + LOOK_EVERY}
        states = self.cloud.alone(self._judged, "the hosts", faulty=False) if beating else {}
        return [
            f"{name} is alive and counts as down: {state.sentence}"
            for name, state in states.items()
            if name in beating and state.status == "down" and not state.declared
        ]

    def alive_since(self) -> dict[str, float]:
        """Return, by living host, the time of the first check since which it was alive at every check."""
        now = self.cloud.loop.time()
        alive = [host for host in self.cloud.hardware.hosts() if self._is_alive(host)]
        self._since = {host: self._since.get(host, now) for host in alive}
        return self._since

    def _is_alive(self, host: str) -> bool:
        """Return True if the host is on and reachable, and its agent has registered and sends heartbeats."""
        cloud, role = self.cloud, self.cloud.roles.get(host)
        if role is None or role.part is None or not role.part.epoch or role.process.frozen is not None:
            return False
        if not cloud.hardware.is_linked(host):
            return False
        weather = cloud.faults.weather if cloud.faults is not None else None
        return weather is None or (host not in weather.cut and (not weather.side or self.has_company(host)))

    def has_company(self, host: str) -> bool:
        """Return True if a running conductor is on the host's side of the bus."""
        weather: Weather = self.cloud.faults.weather
        conductors = [role for name, role in self.cloud.roles.items() if name.startswith("conductor")]
        hearing = [role.name for role in conductors if role.process.frozen is None and role.name not in weather.cut]
        return any(weather.joins(name, host) for name in hearing)

    async def _judged(self, stores: Stores) -> dict[str, HostState]:
        limit, states = self.cloud.shape.settings.default.service_down_time, dict[str, HostState]()

        async def body(tx: Tx) -> dict[str, HostState]:
            return await judge_all(tx, limit)

        for name in stores.cells():
            states |= await stores.cell(name).read(body)
        return states
