"""`kilonova explain SERVER|OPERATION`: why it went where it went, or why there was no place for it."""

from __future__ import annotations

import json
from typing import Annotated, Any

from cyclopts import Parameter

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login
from kilonova.domain.errors import Refused

FEW = 20  # hosts that get a line each
NEAREST = 5  # of more


def explain(
    thing: str,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
    whole: Annotated[bool, Parameter(negative=(), help="Every host that is kept, however many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which hosts were looked at and why each was taken or not: host, filter, number.

    Parameters
    ----------
    thing
        The id of an operation, or of a server: then its newest decision.
    """
    cloud = cloud_of(login)
    try:
        found = cloud.get(f"/operations/{word(thing)}/explain")
    except Refused as why:
        if why.code != "not_found":
            raise
        found = cloud.get(f"/servers/{word(thing)}/explain")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print("\n".join(lines(found, whole=whole)))


def lines(found: dict[str, Any], *, whole: bool = False) -> list[str]:
    """Each attempt with its decision and what became of it; the number is left out when there is one only."""
    attempts = [*found["earlier"], {"decision": found["decision"], "problem": found["problem"]}]
    said = [f"operation {found['operation']}"]
    for number, attempt in enumerate(attempts, 1):
        several = len(attempts) > 1
        said += [f"  attempt {number}"] if several else []
        said += [f"{'    ' if several else '  '}{line}" for line in _attempt(attempt, whole)]
    return said


def _attempt(attempt: dict[str, Any], whole: bool) -> list[str]:
    decision, problem = attempt["decision"], attempt["problem"]
    said = told(decision, whole=whole) if decision is not None else ["it chose no host"]
    return [*said, *([f"failed at {problem['step']}: {problem['message']}"] if problem else [])]


def told(decision: dict[str, Any], *, whole: bool = False) -> list[str]:
    """The choice, then why not the others: a line per host and filter, or, of many hosts, what each filter rejects."""
    chosen = decision.get("chosen")
    said = [f"chosen: {chosen['host']}" if chosen else "chosen: none"]
    if decision.get("alternates"):
        said.append(f"alternates: {', '.join(one['host'] for one in decision['alternates'])}")
    hosts = _by_host(decision.get("verdicts", []))
    if whole or len(hosts) <= FEW:
        said += _matrix(hosts)
    else:
        said += _counts(decision, hosts)
    said += _unclaimed(decision.get("unclaimed", {}))
    return [*said, *(f"it would fit with: {change}" for change in decision.get("changes", []))]


def _by_host(verdicts: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What speaks against each host, in the order of the decision: the taken, then the nearest first."""
    hosts: dict[str, list[dict[str, Any]]] = {}
    for one in verdicts:
        hosts.setdefault(one["host"], []).extend([] if one["passed"] else [one])
    return hosts


def _matrix(hosts: dict[str, list[dict[str, Any]]]) -> list[str]:
    width = max((len(host) for host in hosts), default=0)
    said = []
    for host, against in hosts.items():
        words = [f"{one['filter']}: {one['sentence']}" for one in against] or ["passes every filter"]
        said += [f"{host:<{width}}  {each}" for each in words]
    return said


def _unclaimed(counts: dict[str, int]) -> list[str]:
    where = ", ".join(f"{count} on {host}" for host, count in counts.items())
    return [f"servers counted there that had not claimed yet: {where}"] if counts else []


def _counts(decision: dict[str, Any], hosts: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What each filter rejects, with the nearest host as its example; then the nearest hosts themselves."""
    said = [f"{decision['fitting']} of {decision['considered']} hosts fit"]
    for count in sorted(decision["counts"], key=lambda one: -int(one["rejected"])):
        if count["rejected"]:
            near = (one for against in hosts.values() for one in against if one["filter"] == count["filter"])
            example = next((f", the nearest {one['host']}: {one['sentence']}" for one in near), "")
            said.append(f"{count['filter']} rejects {count['rejected']}{example}")
    rejected = {host: against for host, against in hosts.items() if against}
    said += _matrix(dict(list(rejected.items())[:NEAREST]))
    left = len(rejected) - NEAREST
    return [*said, f"and {left} more hosts that are kept here: say --whole"] if left > 0 else said
