"""Weigh the hosts that fit: bring the values of each weigher to 0…1, multiply them and add them up."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.hosts import Floats
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers import WEIGHERS, WeighedHosts, Weigher
from kilonova.settings import Settings


class Weights:
    """The weight of each host, and the share of each weigher."""

    def __init__(self, count: int) -> None:
        self.total: Floats = np.zeros(count, dtype=np.float64)
        self._shares: list[tuple[str, Floats]] = []

    def add(self, weigher: str, share: Floats) -> None:
        self.total += share
        self._shares.append((weigher, share))

    def of(self, position: int) -> dict[str, float]:
        """Return the shares of one host by weigher, without weighers for which all hosts are equal."""
        return {weigher: round(float(share[position]), 6) + 0.0 for weigher, share in self._shares}  # + 0.0: no -0.0


class Scales:
    """The values of all weighers for the hosts that fit: a full host does not change the weights of the others.

    They stay while hosts are filled one after the other. A weigher runs unless its multiplier is 0 for every host.
    """

    def __init__(self, settings: Settings, field: Field, request: ResourceRequest, hosts: Ints) -> None:
        self._settings, self._field, self.request, self.hosts = settings, field, request, hosts
        keys = {key for aggregate in field.hosts.aggregates.values() for key in aggregate.metadata}
        self._weighers = [one for one in WEIGHERS if one.multiplier(settings) or one.key in keys]
        everyone = self._weighed(hosts)
        self._values = [_values(weigher, everyone) for weigher in self._weighers]

    def weights(self) -> Weights:
        weights = Weights(len(self.hosts))
        if len(self.hosts) < 2:
            return weights
        everyone = self._weighed(self.hosts)
        for weigher, values in zip(self._weighers, self._values, strict=True):
            shares = None if values is None else _normalised(values)
            if shares is not None:
                weights.add(weigher.name, weigher.multipliers(everyone) * shares)
        return weights

    def weigh_again(self, position: int) -> None:
        """Update the values of the host at this place of `hosts`: it has got a server."""
        one, everyone = self._weighed(self.hosts[position : position + 1]), self._weighed(self.hosts)
        for number, weigher in enumerate(self._weighers):
            values = self._values[number]
            value = weigher.values(one) if weigher.is_local else None
            if values is not None and value is not None:
                values[position] = value[0]
            elif not weigher.is_local or value is not None:  # depends on other hosts, or hosts are not equal any more
                self._values[number] = _values(weigher, everyone)

    def drop(self, position: int) -> None:
        """Remove the host at this place of `hosts`: it does not fit any more."""
        self.hosts = np.delete(self.hosts, position)
        everyone = self._weighed(self.hosts)
        for number, (weigher, values) in enumerate(zip(self._weighers, self._values, strict=True)):
            if values is not None:
                self._values[number] = np.delete(values, position) if weigher.is_local else _values(weigher, everyone)

    def _weighed(self, hosts: Ints) -> WeighedHosts:
        return WeighedHosts(self._settings, self._field, self.request, hosts)


def _values(weigher: Weigher, weighed: WeighedHosts) -> Floats | None:
    values = weigher.values(weighed) if len(weighed.hosts) > 1 else None
    return None if values is None else values.astype(np.float64)


def _normalised(values: Floats) -> Floats | None:
    """Bring values to 0 (the least) … 1 (the greatest); None: all are equal, so no host gains anything."""
    low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    return None if high == low else (values - low) / (high - low)
