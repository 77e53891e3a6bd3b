"""Submit an operation: as a dry run, without waiting, or followed until it ends."""

from __future__ import annotations

from kilonova.cli.exits import DONE, FAILED
from kilonova.cli.options import CloudOptions, Following, Waiting
from kilonova.cli.output import print_data, print_lines, print_outcome
from kilonova.cli.rest import Cloud
from kilonova.domain.json import JsonObject

LATEST = {"OpenStack-API-Version": "compute latest"}


def request(cloud: Cloud, body: JsonObject, following: Following, login: CloudOptions, sentence: str) -> int:
    """Ask for the operation that `body` names. `sentence` says that it was accepted."""
    if following.dry_run:
        return show_plan(cloud, body, login)
    answer = cloud.post("/operations", body)
    operations = list(answer.get("operations", {}).values()) or [answer["operation"]]
    return accepted(cloud, operations, following, login, f"{sentence}: operation {', '.join(operations)}", answer)


def accepted(
    cloud: Cloud,
    operations: list[str],
    waiting: Waiting,
    login: CloudOptions,
    sentence: str,
    answer: JsonObject,
    ends: str = "done",
) -> int:
    """Follow an accepted operation, or print how to. `ends`: the state in which the request is fulfilled."""
    if waiting.wait:
        from kilonova.cli.progress import follow

        return follow(cloud, operations, waiting.timeout, login.form, ends)
    print_outcome([f"{sentence}; watch it: kilonova op watch {' '.join(operations)}"], answer, login.form)
    return DONE


def show_plan(cloud: Cloud, body: JsonObject, login: CloudOptions) -> int:
    """Print a dry run; exit code 4 if it would fail, in whole or for some servers."""
    plan = cloud.post("/plans", body, LATEST)["plan"]
    if login.form == "table":
        from kilonova.cli.plan_text import lines

        print_lines(lines(plan))
    else:
        print_data(plan, login.form)
    return FAILED if plan.get("problem") or plan.get("misfits") else DONE
