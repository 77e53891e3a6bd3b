"""`kilonova plan …`: dry runs. They show what a request would do, and why, and store nothing.

Every dry run of the table in domain/plans.py is a command; that of `create` is written out, since its options replace
the body of another API.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from kilonova.cli.asking import show_plan
from kilonova.cli.names import flavor_id, host_name, image_id, network_id, server_id
from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject, as_text
from kilonova.domain.plans import PLANS, SERVER, Plan

NETWORK_CHOICES = ("auto", "none")
BY_NAME = {"flavor": flavor_id, "image": image_id, "host": host_name}  # fields that may have a name

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
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Show which hosts new servers would get and what they would claim, or why no host fits (exit code 4).

    Parameters
    ----------
    flavor
        Name or id of the flavor.
    image
        Name or id of the image.
    network
        Name or id of a network (repeatable), or auto or none.
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
    cloud = login.cloud()
    if body is not None:
        return show_plan(cloud, {"operation": "create", **_read(body)}, login)
    hints = _hints(hint or [])
    server: dict[str, Json] = {"name": "planned", "flavorRef": flavor_id(cloud, flavor), "min_count": count}
    server["imageRef"] = image_id(cloud, image) if image else ""
    networks = network or ["none"]
    is_choice = len(networks) == 1 and networks[0] in NETWORK_CHOICES
    server["networks"] = networks[0] if is_choice else [{"uuid": network_id(cloud, one)} for one in networks]
    if zone:
        server["availability_zone"] = zone
    about = {"server": server, **({"os:scheduler_hints": hints} if hints else {})}
    return show_plan(cloud, {"operation": "create", **about}, login)


def _command(operation: str, plan: Plan) -> Callable[..., int]:
    """Return the command of a dry run: its subject is the argument, the fields of the body are options."""

    def run(*subjects: str, login: CloudOptions = DEFAULT_LOGIN, **fields: str | bool) -> int:
        if not subjects:
            raise Refused("usage", f"name at least one {plan.on}")
        cloud = login.cloud()
        given: dict[str, Json] = {name: value for name, value in fields.items() if value}
        given |= {name: find(cloud, as_text(given[name])) for name, find in BY_NAME.items() if name in given}
        ids = [(server_id if plan.on == SERVER else host_name)(cloud, one) for one in subjects]
        about = {plan.several: ids} if plan.several else {plan.on: ids[0]}
        return show_plan(cloud, {"operation": operation, **about, **given}, login)

    keyword = inspect.Parameter.KEYWORD_ONLY
    about = "Name or id of the server." if plan.on == SERVER else "Name or id of the host."
    parameters = [
        inspect.Parameter(
            plan.several or plan.on,
            inspect.Parameter.VAR_POSITIONAL if plan.several else inspect.Parameter.POSITIONAL_ONLY,
            annotation=_text(about),
        ),
        *(inspect.Parameter(name, keyword, annotation=_text(meaning)) for name, meaning in plan.needs.items()),
        *(
            inspect.Parameter(name, keyword, annotation=_text(meaning), default="")
            for name, meaning in plan.takes.items()
        ),
        *(
            inspect.Parameter(name, keyword, annotation=_flag(meaning), default=False)
            for name, meaning in plan.flags.items()
        ),
        inspect.Parameter("login", keyword, annotation=CloudOptions, default=DEFAULT_LOGIN),
    ]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    run.__doc__ = f"{plan.summary} Exit code 4: it would fail."
    return run


def _text(meaning: str) -> Any:
    return Annotated[str, Parameter(help=meaning)]


def _flag(meaning: str) -> Any:
    return Annotated[bool, Parameter(help=meaning, negative=())]


for _operation, _plan in PLANS.items():
    if _plan.on:
        app.command(_command(_operation, _plan), name=_plan.command)


def _read(file: Path) -> JsonObject:
    try:
        body = json.loads(file.read_text())
    except (OSError, ValueError) as why:
        raise Refused("usage", f"{file} cannot be used as a body: {why}") from None
    if not isinstance(body, dict):
        raise Refused("usage", f'{file} cannot be used as a body: it must be {{"server": …}}')
    return body


def _hints(given: list[str]) -> JsonObject:
    hints: dict[str, list[str]] = {}
    for hint in given:
        name, equals, value = hint.partition("=")
        if not (name and equals):
            raise Refused("usage", f"--hint {hint}: expected name=value")
        hints.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in hints.items()}
