"""A decision as lines of text: the chosen host and why, then why not the others. Reads it as it is stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.json import JsonObject
from kilonova.scheduler.verdict import FilterCount, FilterResult

FEW = 20  # hosts that get a line each
NEAREST = 5  # of more

Verdicts = dict[str, list[FilterResult]]  # by host: the verdicts against it


class _Taken(msgspec.Struct):
    """A host that was chosen, or an alternate."""

    host: str
    weight: float
    weights: dict[str, float] = {}


class StoredDecision(msgspec.Struct):
    """The reported fields of a Decision."""

    chosen: _Taken | None = None
    alternates: list[_Taken] = []
    verdicts: list[FilterResult] = []
    counts: list[FilterCount] = []
    considered: int = 0
    fitting: int = 0
    unknown: int = 0
    rule: str = ""
    missed: str = ""
    unclaimed: dict[str, int] = {}
    changes: list[str] = []


def decision_lines(document: JsonObject, *, whole: bool = False) -> list[str]:
    """A line per host and filter or, of many, how many each filter rejects. `whole`: every host that is stored."""
    decision = msgspec.convert(document, StoredDecision)
    hosts = _by_host(decision.verdicts)
    lines = _taken(decision)
    lines += _matrix(hosts) if whole or len(hosts) <= FEW else _counts(decision, hosts)
    lines += _unclaimed(decision.unclaimed)
    return [*lines, *(f"it would fit with: {change}" for change in decision.changes)]


def _taken(decision: StoredDecision) -> list[str]:
    if decision.chosen is None:
        unknown = decision.unknown
        return [f"chosen: none; of {unknown} hosts it is not known whether they fit" if unknown else "chosen: none"]
    remarks = [remark for remark in (decision.rule, decision.missed) if remark]
    lines = ["; ".join([f"chosen: {_weight(decision.chosen)}", *remarks])]
    if decision.alternates:
        lines.append(f"alternates: {', '.join(map(_weight, decision.alternates))}")
    return lines


def _weight(choice: _Taken) -> str:
    parts = ", ".join(f"{weigher} {share:g}" for weigher, share in choice.weights.items())
    return f"{choice.host} (weight {choice.weight:g}" + (f": {parts})" if parts else ")")


def _by_host(verdicts: Sequence[FilterResult]) -> Verdicts:
    """Return rejections by host, in the order of the decision: the chosen and its alternates, then the nearest."""
    hosts: Verdicts = {}
    for one in verdicts:
        hosts.setdefault(one.host, []).extend([] if one.passed else [one])
    return hosts


def _matrix(hosts: Verdicts) -> list[str]:
    width = max((len(host) for host in hosts), default=0)
    lines = []
    for host, against in hosts.items():
        reasons = [f"{_judge(one)}: {one.sentence}" for one in against] or ["passes every filter"]
        lines += [f"{host:<{width}}  {reason}" for reason in reasons]
    return lines


def _judge(verdict: FilterResult) -> str:
    return f"{verdict.filter} (unknown)" if verdict.passed is None else verdict.filter


def _unclaimed(counts: dict[str, int]) -> list[str]:
    where = ", ".join(f"{count} on {host}" for host, count in counts.items())
    return [f"servers counted there that had not claimed yet: {where}"] if counts else []


def _counts(decision: StoredDecision, hosts: Verdicts) -> list[str]:
    """Return lines: how many hosts each filter rejects, with the nearest as an example; then the nearest hosts."""
    lines = [f"{decision.fitting} of {decision.considered} hosts fit"]
    rejected_by = [(one.filter, one.rejected, "rejects", False) for one in decision.counts]
    unknown_to = [(one.filter, one.unknown, "is unknown of", None) for one in decision.counts]
    for kind in (rejected_by, unknown_to):
        for name, count, verb, passed in sorted(kind, key=lambda one: -one[1]):
            if count:
                lines.append(f"{name} {verb} {count}{_example(hosts, name, passed)}")
    rejected = {host: against for host, against in hosts.items() if against}
    lines += _matrix(dict(list(rejected.items())[:NEAREST]))
    left = len(rejected) - NEAREST
    return [*lines, f"and {left} more hosts that are stored; --whole shows them"] if left > 0 else lines


def _example(hosts: Verdicts, name: str, passed: bool | None) -> str:
    near = (one for against in hosts.values() for one in against if one.filter == name and one.passed is passed)
    return next((f", the nearest {one.host}: {one.sentence}" for one in near), "")
