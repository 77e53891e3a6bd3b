"""Host x stage: who passes what. Every stage judges all hosts, so that the reasons are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from kilonova.placement.snapshot import Bools, Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.hosts import Floats
from kilonova.scheduler.offers import NAME as CAPACITY
from kilonova.scheduler.offers import Offers
from kilonova.scheduler.verdict import FilterCount, FilterResult


class Stage(NamedTuple):
    name: str
    mask: Bools | None  # None: all pass
    sentence: Callable[[int], str]
    remedy: Callable[[int], str | None]
    about_state: bool = False
    unknown: Bools | None = None  # of hosts that do not pass: that proves nothing about them

    def passes(self, at: int) -> bool:
        return self.mask is None or bool(self.mask[at])

    def verdict(self, at: int) -> bool | None:
        """Return True if the host passes, False if it does not, None if that is unknown."""
        if self.passes(at):
            return True
        return None if self.unknown is not None and self.unknown[at] else False


class Matrix:
    def __init__(self, field: Field) -> None:
        self.field = field
        self.stages: list[Stage] = []
        self.fits: Bools = field.all() if field.here is None else field.here.copy()
        self.may_fit: Bools = self.fits.copy()  # these, and those that are unknown
        self._bad_state: Bools | None = None  # hosts that some stage has rejected for their state

    def add(self, stage: Stage) -> None:
        if stage.mask is not None:
            self.may_fit &= stage.mask if stage.unknown is None else stage.mask | stage.unknown
        if stage.about_state and stage.mask is not None:
            bad_state = self._bad_state
            self._bad_state = ~stage.mask if bad_state is None else bad_state | ~stage.mask
            self.fits &= stage.mask
            stage = stage if bad_state is None else stage._replace(mask=stage.mask | bad_state)
        self.stages.append(stage)
        if stage.mask is not None:
            self.fits &= stage.mask

    def counts(self) -> Iterable[FilterCount]:
        considered, here = self.field.considered, self.field.here
        for stage in self.stages:
            mask = stage.mask if here is None or stage.mask is None else stage.mask & here
            passed = considered if mask is None else int(np.count_nonzero(mask))
            unknown = self._unknown(stage)
            yield FilterCount(stage.name, passed, considered - passed - unknown, unknown)

    def _unknown(self, stage: Stage) -> int:
        if stage.mask is None or stage.unknown is None:
            return 0
        here = self.field.here
        unknown = stage.unknown & ~stage.mask
        return int(np.count_nonzero(unknown if here is None else unknown & here))

    def failures(self, hosts: Ints) -> Ints:
        """Return how many stages reject each of these hosts."""
        counts: Ints = np.zeros(len(hosts), dtype=np.int64)
        for stage in self.stages:
            if stage.mask is not None:
                counts += ~stage.mask[hosts]
        return counts

    def nearest(self, offers: Offers, limit: int | None) -> list[int]:
        """Hosts that do not fit, nearest first: rejected by the fewest stages, then lacking the least."""
        here = self.field.here
        rejected = np.flatnonzero(~self.fits if here is None else here & ~self.fits)
        if not len(rejected):
            return []
        distance = self.failures(rejected).astype(np.float64)
        missing = offers.missing(rejected)
        distance += missing / (1.0 + missing)  # below 1: it only decides among those rejected as often
        if limit is not None and limit < len(rejected):
            near = _least(distance, limit)
            rejected, distance = rejected[near], distance[near]
        ordered: list[int] = rejected[np.argsort(distance, kind="stable")].tolist()
        return ordered

    def rejections(self, at: int) -> list[Stage]:
        return [stage for stage in self.stages if not stage.passes(at)]

    def verdicts(self, taken: Iterable[int], others: Iterable[int]) -> Iterable[FilterResult]:
        """Yield every stage of the hosts that are taken, and the rejections of the others."""
        names = self.field.names
        for at in taken:
            for stage in self.stages:
                yield FilterResult(names[at], stage.name, True, stage.sentence(at))
        for at in others:
            for stage in self.rejections(at):
                yield FilterResult(names[at], stage.name, stage.verdict(at), stage.sentence(at))


def _least(distance: Floats, count: int) -> Ints:
    """Return the positions of the `count` smallest; of equals the first, so that the same hosts give the same
    result."""
    last = np.partition(distance, count - 1)[count - 1]
    nearer, equal = np.flatnonzero(distance < last), np.flatnonzero(distance == last)
    positions: Ints = np.sort(np.concatenate([nearer, equal[: count - len(nearer)]]))
    return positions


def capacity_stage(offers: Offers) -> Stage:
    return Stage(CAPACITY, offers.fits, offers.sentence, lambda at: _more(offers, at))


def _more(offers: Offers, at: int) -> str | None:
    units = {"VCPU": "more VCPU", "MEMORY_MB": "MB more memory", "DISK_GB": "GB more disk"}
    host, lacking = offers.field.names[at], offers.lacking(at)
    room = [f"{amount} {units.get(name, f'more {name}')}" for name, amount in lacking.items()]
    missing, unwanted = offers.wrong_traits(at)
    changes = [f"{' and '.join(room)} free on {host}"] if room else []
    changes += [f"{host} with trait {name}" for name in missing] + [f"{host} without trait {name}" for name in unwanted]
    return ", and ".join(changes) or None
