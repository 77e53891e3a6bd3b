"""The hardware of hosts as the scheduler knows it, read again where it changed. It proposes; the host decides.

Hosts with the same hardware and the same claims are judged once: ten thousand empty ones are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import msgspec
import numpy as np

from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware, fit, free_cells
from kilonova.domain.pci import free_devices
from kilonova.domain.server import flavor_from
from kilonova.placement.snapshot import Ints
from kilonova.store.host_hardware import claim_from, claims_on, documents, versions
from kilonova.world import Row, Store, Tx

MOST_REQUESTS = 64  # distinct ones, cached; a cloud has few flavors that need hardware
UNKNOWN = "the host has not reported its hardware yet"
SPARE = 1000  # unused kinds of hardware before they are removed


@dataclass(frozen=True)
class HardwareFacts:
    hardware: HostHardware
    claims: tuple[HostClaim, ...]
    free: tuple[int, ...]  # dedicated CPUs of each cell, the most first: cheap to compare
    devices: int  # free ones
    likeness: int  # the same number: the same in everything above


Judge = Callable[[HardwareFacts, HardwareRequest], str | None]  # a sentence, or None when it fits


class HardwareBook:
    def __init__(self) -> None:
        self._facts: dict[str, HardwareFacts] = {}
        self._versions: dict[str, dict[str, int]] = {}  # by cell and host
        self._numbers = count()
        self._alike: dict[tuple[HostHardware, tuple[HostClaim, ...]], HardwareFacts] = {}
        self._judged: dict[tuple[Judge, HardwareRequest], dict[int, str | None]] = {}

    async def sync(self, store: Store) -> None:
        """Read the changed hosts of a cell."""
        known = self._versions.get(store.name, {})

        async def body(tx: Tx) -> tuple[dict[str, int], dict[str, str], Sequence[Row]]:
            current = await versions(tx)
            changed = [host for host, version in current.items() if known.get(host) != version]
            if not changed:
                return current, {}, []
            return current, dict(await documents(tx, changed)), await claims_on(tx, changed)

        current, changed, rows = await store.read(body)
        self._versions[store.name] = current
        for host in known.keys() - current.keys():
            self._facts.pop(host, None)
        by_host: dict[str, list[Row]] = {host: [] for host in changed}
        for row in rows:
            by_host[row["host"]].append(row)
        for host, document in changed.items():
            hardware = _hardware(document)
            self._facts[host] = self._facts_of(hardware, _claims(hardware, by_host[host]))
        self._clear_away()

    def facts(self, host: str) -> HardwareFacts | None:
        return self._facts.get(host)

    def free_in_cell(self, hosts: Sequence[str], rank: int) -> Ints:
        """Free dedicated CPUs in the cell of each host that has the most (rank 0), the second most, …; -1: no cell."""
        free = (facts.free if (facts := self._facts.get(host)) is not None else () for host in hosts)
        return np.array([cells[rank] if rank < len(cells) else -1 for cells in free], dtype=np.int64)

    def free_devices(self, hosts: Sequence[str]) -> Ints:
        known = (self._facts.get(host) for host in hosts)
        return np.array([0 if facts is None else facts.devices for facts in known], dtype=np.int64)

    def filled(self) -> HardwareBook:
        """Return a book with its own hosts, to be filled on trial; cached judgements are shared."""
        same = HardwareBook()
        same.__dict__ = self.__dict__ | {"_facts": dict(self._facts)}
        return same

    def take(self, host: str, requested: HardwareRequest) -> None:
        """Take hardware on trial, as the host would."""
        facts = self._facts.get(host)
        claim = fit(requested, facts.hardware, facts.claims) if facts is not None else ""
        if facts is not None and not isinstance(claim, str):
            self._facts[host] = self._facts_of(facts.hardware, (*facts.claims, claim))

    def judging(self, judge: Judge, requested: HardwareRequest) -> Callable[[str], str | None]:
        """Return a function that judges a host, computed once for all that are alike."""
        if (judge, requested) not in self._judged and len(self._judged) >= MOST_REQUESTS:
            self._judged.pop(next(iter(self._judged)))
        results = self._judged.setdefault((judge, requested), {})

        def judged(host: str) -> str | None:
            facts = self._facts.get(host)
            if facts is None:
                return UNKNOWN
            if facts.likeness not in results:
                results[facts.likeness] = judge(facts, requested)
            return results[facts.likeness]

        return judged

    def _facts_of(self, hardware: HostHardware, claims: tuple[HostClaim, ...]) -> HardwareFacts:
        known = self._alike.get((hardware, claims))
        if known is None:
            free = sorted((len(cell.dedicated) for cell in free_cells(hardware, claims)), reverse=True)
            taken = {address for claim in claims for address in claim.addresses}
            devices = len(free_devices(hardware.devices, taken))
            known = HardwareFacts(hardware, claims, tuple(free), devices, next(self._numbers))
            self._alike[hardware, claims] = known
        return known

    def _clear_away(self) -> None:
        """Remove likenesses that no host has now; servers that came and went leave them."""
        if len(self._alike) <= len(self._facts) + SPARE:
            return
        self._alike = {(facts.hardware, facts.claims): facts for facts in self._facts.values()}
        self._judged.clear()


@lru_cache(maxsize=1000)
def _hardware(document: str) -> HostHardware:
    return msgspec.json.decode(document, type=HostHardware)


def _claims(hardware: HostHardware, rows: Sequence[Row]) -> tuple[HostClaim, ...]:
    """Return the claims of copies, and those expected of copies in the making: the host would fit them likewise."""
    claims: list[HostClaim] = [claim for row in rows if (claim := claim_from(row["claim"])) is not None]
    for row in rows:
        requested = flavor_from(row["flavor"]).hardware if row["claim"] is None else None
        if requested is not None and requested.needs_claim:
            expected = fit(requested, hardware, claims)
            if not isinstance(expected, str):
                claims.append(expected)
    return tuple(claims)
