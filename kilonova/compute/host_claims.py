"""The share of this host's CPUs, memory pages and PCI devices that each copy of a guest holds.

The host decides: a claim is fitted here, against the other claims, and stored before anything of the copy is created.
It is taken once per copy, survives a crash, and is dropped with the copy. While a server moves, both of its copies hold
their claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.guest import CopyReport
from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware, fit
from kilonova.world import HostMemory

PREFIX = "claim/"  # of the claims in the host's memory


class HostClaims:
    """`world.Claims` of one agent."""

    def __init__(self, memory: HostMemory, remembered: Mapping[str, Any]) -> None:
        self._memory = memory
        self._claims: dict[tuple[str, int], HostClaim] = {}
        self.hardware = HostHardware()  # as the driver last reported
        for name, value in remembered.items():
            if name.startswith(PREFIX):
                server, _, copy = name.removeprefix(PREFIX).rpartition("/")
                self._claims[server, int(copy)] = msgspec.convert(value, HostClaim)

    def of(self, server: str, copy: int) -> HostClaim | None:
        return self._claims.get((server, copy))

    def take(
        self, server: str, copy: int, requested: HardwareRequest | None, *, beside: int | None = None
    ) -> HostClaim | None:
        """`beside`: the copy that this one replaces and never runs together with; they hold the same."""
        if requested is None or not requested.needs_claim:
            return None
        held = self.of(server, copy)
        if held is None and beside is not None:
            held = self.of(server, beside)
        if held is None:
            claim = fit(requested, self.hardware, list(self._claims.values()))
            if isinstance(claim, str):
                raise Failed("no_hardware", f"the host's hardware does not fit: {claim}", elsewhere=True)
            held = claim
        self._keep(server, copy, held)
        return held

    def drop(self, server: str, copy: int) -> None:
        if self._claims.pop((server, copy), None) is not None:
            self._memory.drop(_name(server, copy))

    def with_claims(self, reports: Sequence[CopyReport]) -> list[CopyReport]:
        """Return the copies with their claims. If the claim's record was lost, the guest's definition still has it.

        A claim without a copy is reported as an absent copy, so that a verdict decides about it.
        """
        for report in reports:
            if report.claim is not None and (report.server, report.copy) not in self._claims:
                self._keep(report.server, report.copy, report.claim)
        reported = {(report.server, report.copy) for report in reports}
        lone = [
            CopyReport(server, copy, "absent", whole=False, defined=False, claim=claim)
            for (server, copy), claim in sorted(self._claims.items(), key=lambda item: item[0])
            if (server, copy) not in reported
        ]
        return [msgspec.structs.replace(r, claim=self._claims.get((r.server, r.copy))) for r in reports] + lone

    def _keep(self, server: str, copy: int, claim: HostClaim) -> None:
        if self._claims.get((server, copy)) != claim:
            self._memory.keep(_name(server, copy), msgspec.to_builtins(claim))
            self._claims[server, copy] = claim


def _name(server: str, copy: int) -> str:
    return f"{PREFIX}{server}/{copy}"
