"""A decision as lines of text: the chosen host and why, then why not the others. Reads it as it is stored."""

from __future__ import annotations

from typing import Any

FEW = 20  # hosts that get a line each
NEAREST = 5  # of more

Verdicts = dict[str, list[dict[str, Any]]]  # by host: the verdicts against it


def decision_lines(decision: dict[str, Any], *, whole: bool = False) -> list[str]:
    """A line per host and filter or, of many, how many each filter rejects. `whole`: every host that is stored."""
    lines = _taken(decision)
    hosts = _by_host(decision.get("verdicts", []))
    lines += _matrix(hosts) if whole or len(hosts) <= FEW else _counts(decision, hosts)
    lines += _unclaimed(decision.get("unclaimed", {}))
    return [*lines, *(f"it would fit with: {change}" for change in decision.get("changes", []))]


def _taken(decision: dict[str, Any]) -> list[str]:
    chosen = decision.get("chosen")
    if not chosen:
        unknown = decision.get("unknown")
        return [f"chosen: none; of {unknown} hosts it is not known whether they fit" if unknown else "chosen: none"]
    words = [decision[name] for name in ("rule", "missed") if decision.get(name)]
    lines = ["; ".join([f"chosen: {_weight(chosen)}", *words])]
    if decision.get("alternates"):
        lines.append(f"alternates: {', '.join(_weight(one) for one in decision['alternates'])}")
    return lines


def _weight(choice: dict[str, Any]) -> str:
    parts = ", ".join(f"{weigher} {share:g}" for weigher, share in choice.get("weights", {}).items())
    return f"{choice['host']} (weight {choice['weight']:g}" + (f": {parts})" if parts else ")")


def _by_host(verdicts: list[dict[str, Any]]) -> Verdicts:
    """Return rejections by host, in the order of the decision: the chosen and its alternates, then the nearest."""
    hosts: Verdicts = {}
    for one in verdicts:
        hosts.setdefault(one["host"], []).extend([] if one["passed"] else [one])
    return hosts


def _matrix(hosts: Verdicts) -> list[str]:
    width = max((len(host) for host in hosts), default=0)
    lines = []
    for host, against in hosts.items():
        reasons = [f"{_judge(one)}: {one['sentence']}" for one in against] or ["passes every filter"]
        lines += [f"{host:<{width}}  {reason}" for reason in reasons]
    return lines


def _judge(verdict: dict[str, Any]) -> str:
    return f"{verdict['filter']} (unknown)" if verdict["passed"] is None else str(verdict["filter"])


def _unclaimed(counts: dict[str, int]) -> list[str]:
    where = ", ".join(f"{count} on {host}" for host, count in counts.items())
    return [f"servers counted there that had not claimed yet: {where}"] if counts else []


def _counts(decision: dict[str, Any], hosts: Verdicts) -> list[str]:
    """Return lines: how many hosts each filter rejects, with the nearest as an example; then the nearest hosts."""
    lines = [f"{decision['fitting']} of {decision['considered']} hosts fit"]
    for verb, passed in (("rejects", False), ("is unknown of", None)):
        kind = "rejected" if passed is False else "unknown"
        for count in sorted(decision["counts"], key=lambda one: -int(one.get(kind, 0))):
            if count.get(kind):
                example = _example(hosts, count["filter"], passed)
                lines.append(f"{count['filter']} {verb} {count[kind]}{example}")
    rejected = {host: against for host, against in hosts.items() if against}
    lines += _matrix(dict(list(rejected.items())[:NEAREST]))
    left = len(rejected) - NEAREST
    return [*lines, f"and {left} more hosts that are stored; --whole shows them"] if left > 0 else lines


def _example(hosts: Verdicts, name: str, passed: bool | None) -> str:
    near = (one for against in hosts.values() for one in against if one["filter"] == name and one["passed"] is passed)
    return next((f", the nearest {one['host']}: {one['sentence']}" for one in near), "")
