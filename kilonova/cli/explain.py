"""`kilonova explain SERVER|OPERATION`: why it went where it went, or why there was no place for it."""

from __future__ import annotations

import json
from typing import Any

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_CLOUD, DEFAULT_DATA, AsJson, Clouds, Data, OsCloud, Url
from kilonova.domain.errors import Refused


def explain(
    thing: str,
    /,
    *,
    url: Url = "",
    data: Data = DEFAULT_DATA,
    clouds: Clouds = None,
    os_cloud: OsCloud = DEFAULT_CLOUD,
    as_json: AsJson = False,
) -> None:
    """Say which hosts were looked at and why each was taken or not: host, filter, number.

    Parameters
    ----------
    thing
        The id of an operation, or of a server: then its newest decision.
    """
    cloud = cloud_of(url, data, clouds, os_cloud)
    try:
        found = cloud.get(f"/operations/{word(thing)}/explain")
    except Refused as why:
        if why.code != "not_found":
            raise
        found = cloud.get(f"/servers/{word(thing)}/explain")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"operation {found['operation']}")
    decision = found["decision"]
    if decision is None:
        print("  it chose no host")
        return
    for line in told(decision):
        print(f"  {line}")


def told(decision: dict[str, Any]) -> list[str]:
    """The choice, then a line per host: what it failed at, with the numbers."""
    chosen, lines = decision.get("chosen"), []
    lines.append(f"chosen: {chosen['host']}" if chosen else "chosen: none")
    if decision.get("alternates"):
        lines.append(f"alternates: {', '.join(one['host'] for one in decision['alternates'])}")
    verdicts = decision.get("verdicts", [])
    width = max((len(one["host"]) for one in verdicts), default=0)
    for host in dict.fromkeys(one["host"] for one in verdicts):
        failed = [one for one in verdicts if one["host"] == host and not one["passed"]]
        words = [f"{one['filter']}: {one['sentence']}" for one in failed] or ["passes every filter"]
        lines += [f"{host:<{width}}  {each}" for each in words]
    lines += [f"it would fit with: {change}" for change in decision.get("changes", [])]
    return lines
