"""`kilonova plan …`: dry runs. What a request would do, and why, with nothing stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from kilonova.cli.operations import FAILED, cloud_of
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login
from kilonova.domain.errors import Refused
from kilonova.scheduler.report import decision_lines

COMPUTE = {"OpenStack-API-Version": "compute latest"}
WORDS_FOR_NETWORKS = ("auto", "none")

app = App(name="plan", help="Dry runs: what a request would do, with nothing stored.")
Several = Annotated[list[str] | None, Parameter(negative=())]


@app.command
def create(
    *,
    flavor: str = "",
    image: str = "",
    network: Several = None,
    count: int = 1,
    zone: str = "",
    hint: Several = None,
    body: Path | None = None,
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> int:
    """Show which hosts new servers would get and what they would claim, or why no host fits (exit code 4).

    Parameters
    ----------
    flavor
        Id of the flavor.
    image
        Id of the image.
    network
        Id of a network (repeatable), or auto or none.
    count
        Number of servers, all or none.
    zone
        Availability zone, or ZONE:HOST for a forced host.
    hint
        Scheduler hint, as name=value; repeatable.
    body
        JSON file with the whole body of POST /servers, instead of the options above.
    """
    if (body is None) == (not flavor):
        raise Refused("usage", "use either --flavor or --body FILE")
    asked = _read(body) if body is not None else _asked(flavor, image, network or ["none"], count, zone, hint or [])
    plan = cloud_of(login).post("/plans", {"operation": "create", **asked}, COMPUTE)["plan"]
    print(json.dumps(plan, indent=2) if as_json else "\n".join(lines(plan)))
    return FAILED if plan["problem"] else 0


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as why:
        raise Refused("usage", f"{file} cannot be used as a body: {why}") from None
    if not isinstance(found, dict):
        raise Refused("usage", f'{file} cannot be used as a body: it must be {{"server": …}}')
    return found


def _asked(flavor: str, image: str, networks: list[str], count: int, zone: str, hints: list[str]) -> dict[str, Any]:
    one_word = len(networks) == 1 and networks[0] in WORDS_FOR_NETWORKS
    server: dict[str, Any] = {"name": "planned", "flavorRef": flavor, "imageRef": image, "min_count": count}
    server["networks"] = networks[0] if one_word else [{"uuid": network} for network in networks]
    if zone:
        server["availability_zone"] = zone
    return {"server": server, **({"os:scheduler_hints": _hints(hints)} if hints else {})}


def _hints(given: list[str]) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for hint in given:
        name, equals, value = hint.partition("=")
        if not (name and equals):
            raise Refused("usage", f"--hint {hint}: expected name=value")
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def lines(plan: dict[str, Any]) -> list[str]:
    """A line per server, what each needs besides, what is left of the quota, and why."""
    problem, decision = plan["problem"], plan["decision"]
    found = [_failure(problem)] if problem else [_server(one) for one in plan["servers"]]
    found += [_port(port) for port in plan["ports"]]
    found += [_volume(volume) for volume in plan["volumes"]]
    found += [_left(name, amounts) for name, amounts in plan["quota"].items() if amounts["limit"] >= 0]
    if decision is None:
        return found
    return [
        *found,
        *(["of the last one:"] if len(plan["servers"]) > 1 and not problem else []),
        *decision_lines(decision),
    ]


def _failure(problem: dict[str, Any]) -> str:
    waits = problem["code"] in ("not_known", "not_yet")
    return str(problem["message"]) if waits else f"it would fail: {problem['message']}"


def _server(one: dict[str, Any]) -> str:
    takes = ", ".join(f"{amount} {name}" for name, amount in one["resources"].items())
    where = f" on {one['host']}" if one.get("host") else ""
    return f"{one['name']}{where}: takes {takes}"


def _port(port: dict[str, Any]) -> str:
    address = f", address {port['fixed_ip']}" if port.get("fixed_ip") else ""
    return f"port {port['port_id']}" if port.get("port_id") else f"a port on network {port['network_id']}{address}"


def _volume(volume: dict[str, Any]) -> str:
    if volume.get("volume_id"):
        return f"volume {volume['volume_id']} as {volume['device']}"
    source = next(
        (f" of {word} {volume[f'{word}_id']}" for word in ("image", "snapshot") if f"{word}_id" in volume), ""
    )
    size = f" of {volume['size']} GB" if volume.get("size") else ""
    return f"a new volume{size}{source} as {volume['device']}"


def _left(name: str, amounts: dict[str, int]) -> str:
    return f"quota of {name}: {amounts['left']} of {amounts['limit']} left then"
