"""What the verbs shall do, in plain dictionaries: the oracle of the stateful test."""

from __future__ import annotations

from dataclasses import dataclass, field

from kilonova.placement.groups import GroupRule

Place = tuple[str, str]  # host, holder
Own = ""


@dataclass
class Model:
    """All servers have one size in one class, so a place is held or not: `places[consumer]` → {place: amount}."""

    capacity: dict[str, int] = field(default_factory=dict)
    accepting: dict[str, bool] = field(default_factory=dict)
    places: dict[str, dict[Place, int]] = field(default_factory=dict)
    claimed_last: dict[str, str] = field(default_factory=dict)  # server → on whose behalf its last write claimed
    rule: GroupRule | None = None  # of the one group that every server is in

    def used(self, host: str) -> int:
        return sum(amount for held in self.places.values() for (where, _), amount in held.items() if where == host)

    def claim(self, server: str, hosts: list[str], amount: int) -> str | None:
        own = self._own(server)
        hosts = [host for host in hosts if self._group_allows(server, host)]
        return self._take(server, hosts, amount, behalf="", freed=own, leaving={}, to=(server, Own))

    def claim_move(self, server: str, migration: str, hosts: list[str], amount: int) -> str | None:
        again = bool(self.places.get(migration)) or self.claimed_last.get(server) == migration
        own = self._own(server)
        freed, leaving = (own, {}) if again else ({}, own)
        hosts = [host for host in hosts if self._group_allows(server, host)]
        return self._take(server, hosts, amount, behalf=migration, freed=freed, leaving=leaving, to=(migration, Own))

    def claim_evacuation(
        self, server: str, evacuation: str, hosts: list[str], amount: int, dead_host: str = ""
    ) -> str | None:
        again = bool(self._held(server, evacuation)) or self.claimed_last.get(server) == evacuation
        own = self._own(server)
        freed, leaving = (own, {}) if again else ({}, own)
        to = (server, evacuation)
        allowed = [host for host in hosts if self._group_allows(server, host, dead_host)]
        return self._take(server, allowed, amount, behalf=evacuation, freed=freed, leaving=leaving, to=to)

    def return_move(self, server: str, migration: str) -> None:
        source = dict(self.places.get(migration, {}))
        if source or self.claimed_last.get(server) == migration:
            self._drop(server, self._own(server))
            self.places.pop(migration, None)
            self._add(server, Own, source)
        self.claimed_last.pop(server, None)

    def drop_move(self, server: str, migration: str) -> None:
        self.places.pop(migration, None)
        self.claimed_last.pop(server, None)

    def drop_source(self, server: str, migration: str) -> None:
        self.places.pop(migration, None)

    def return_evacuation(self, server: str, evacuation: str) -> None:
        source = self._held(server, evacuation)
        if source or self.claimed_last.get(server) == evacuation:
            self._drop(server, self._own(server))
            self._drop(server, source)
            self._add(server, Own, source)
        self.claimed_last.pop(server, None)

    def drop_holder(self, server: str, evacuation: str) -> None:
        self._drop(server, self._held(server, evacuation))

    def release(self, server: str, migration: str) -> None:
        for consumer in (server, migration):
            self.places.pop(consumer, None)
        self.claimed_last.pop(server, None)

    def take_away(self, consumer: str) -> None:
        self._drop(consumer, self._own(consumer))

    def held(self) -> dict[str, dict[Place, int]]:
        return {consumer: held for consumer, held in self.places.items() if held}

    def counted(self) -> set[tuple[str, str]]:
        """(server, host): a server counts where it or its open move holds something, not where an evacuation does."""
        return {
            (consumer.removeprefix("m-"), host)
            for consumer, held in self.places.items()
            for host, holder in held
            if holder == Own
        }

    def _group_allows(self, server: str, host: str, dead_host: str = "") -> bool:
        if self.rule is None:
            return True
        others = {(other, where) for other, where in self.counted() if other != server and where != dead_host}
        there = {other for other, where in others if where == host}
        if self.rule.policy == "anti-affinity":
            return len(there) < self.rule.max_per_host
        return self.rule.policy != "affinity" or not others or bool(there)

    def _take(
        self,
        server: str,
        hosts: list[str],
        amount: int,
        *,
        behalf: str,
        freed: dict[Place, int],
        leaving: dict[Place, int],
        to: tuple[str, str],
    ) -> str | None:
        self.claimed_last.pop(server, None)
        for host in hosts:
            if self._fits(host, amount, freed.get((host, Own), 0)):
                self._drop(server, freed)
                self._drop(server, leaving)
                self._add(*to, leaving)
                self._add(server, Own, {(host, Own): amount})
                if behalf:
                    self.claimed_last[server] = behalf
                return host
        return None

    def _fits(self, host: str, amount: int, given_back: int) -> bool:
        more = amount - given_back
        return more <= 0 or (self.accepting[host] and self.used(host) + more <= self.capacity[host])

    def _held(self, consumer: str, holder: str) -> dict[Place, int]:
        return {place: amount for place, amount in self.places.get(consumer, {}).items() if place[1] == holder}

    def _own(self, server: str) -> dict[Place, int]:
        return self._held(server, Own)

    def _drop(self, consumer: str, places: dict[Place, int]) -> None:
        for place in places:
            self.places.get(consumer, {}).pop(place, None)

    def _add(self, consumer: str, holder: str, places: dict[Place, int]) -> None:
        for (host, _), amount in places.items():
            self.places.setdefault(consumer, {})[host, holder] = amount
