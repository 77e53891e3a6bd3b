"""Findings of an audit, with the proof: the allocations, the owned amounts, and the state at both readings."""

from __future__ import annotations

from typing import Literal

import msgspec

from kilonova.audit.differences import Difference
from kilonova.audit.reading import Reading, ServerVersion
from kilonova.placement.books import Imbalance

Amounts = dict[str, int]
Places = dict[tuple[str, str], Amounts]  # (host, holder) → resource class → amount
Kind = Literal["orphan", "excess", "missing", "different"]
Outcome = Literal["found", "repaired", "left"]


class FindingShare(msgspec.Struct, frozen=True):
    host: str
    resources: Amounts
    holder: str = ""  # the evacuation that holds it; empty: the consumer itself


class Finding(msgspec.Struct, frozen=True):
    """A difference that both readings saw, of a server without an operation."""

    consumer: str
    server: str
    kind: Kind
    sentence: str
    holds: list[FindingShare]
    owns: list[FindingShare]
    proof: ServerVersion
    outcome: Outcome = "found"
    why: str = ""  # it was left


class Unbalanced(msgspec.Struct, frozen=True):
    """`used` of a provider's class is not the sum of what is held there."""

    provider: str
    resource_class: str
    used: int | None
    held: int
    outcome: Outcome = "found"
    why: str = ""

    @classmethod
    def of(cls, imbalance: Imbalance) -> Unbalanced:
        return cls(imbalance.provider, imbalance.resource_class, imbalance.used, imbalance.held)


class Miscounted(msgspec.Struct, frozen=True):
    """The recorded use of a user in a project is not the sum of its servers."""

    project: str
    user: str
    kept: Amounts
    counted: Amounts
    outcome: Outcome = "found"


class Report(msgspec.Struct, frozen=True):
    began: float
    ended: float
    consumers: int  # that hold something
    busy: int  # passed over: an operation is open
    findings: list[Finding]
    unbalanced: list[Unbalanced]
    miscounted: list[Miscounted]
    unknown: list[str]  # their cell does not answer
    unreachable: dict[str, str]  # cell → why
    foreign: list[str]  # hold something, and never were a server or migration of this cloud
    hardware: list[str] = []  # host claims that cannot be
    abandoned: list[str] = []  # steps whose remains are not settled; nothing of them is freed
    differences: list[Difference] = []  # of hosts, ports and volumes from the servers' records; never repaired
    silent: list[str] = []  # hosts that did not report their copies

    @property
    def is_clean(self) -> bool:
        books = self.findings or self.unbalanced or self.miscounted
        return not (books or self.hardware or self.abandoned or self.differences)


def finding_of(reading: Reading, consumer: str) -> Finding:
    holds, owns = reading.held.get(consumer, {}), reading.expected.get(consumer, {})
    return Finding(
        consumer=consumer,
        server=reading.server(consumer),
        kind=_kind(holds, owns),
        sentence=f"{consumer} holds {_amounts_text(holds)}, owns {_amounts_text(owns)}",
        holds=_shares(holds),
        owns=_shares(owns),
        proof=reading.standing(consumer),
    )


def _kind(holds: Places, owns: Places) -> Kind:
    if not owns:
        return "orphan"
    if not holds:
        return "missing"
    return "excess" if owns.items() <= holds.items() else "different"


def _shares(places: Places) -> list[FindingShare]:
    return [FindingShare(host, amounts, holder) for (host, holder), amounts in sorted(places.items())]


def _amounts_text(places: Places) -> str:
    return (
        ", ".join(
            " ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))
            + f" on {host}"
            + (f" for {holder}" if holder else "")
            for (host, holder), amounts in sorted(places.items())
        )
        or "nothing"
    )
