"""`kilonova doctor`: what is wrong with this cloud, and what to type."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypedDict

from kilonova.cli.audit import differences
from kilonova.cli.exits import DIFFERENCES, DONE
from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.cli.output import Columns, print_lines, print_list
from kilonova.cli.quarantine import held
from kilonova.cli.rest import Cloud
from kilonova.cli.times import duration, moment
from kilonova.cli.unplaced import all_unplaced

SLOW = 1800.0  # seconds without a change after which a running operation is worth a look
LISTED = 20  # problems of one kind that are shown one by one


class ShownHost(TypedDict):
    """The fields of a host that `doctor` uses."""

    name: str
    state: str
    proven_by: str


class ShownOperation(TypedDict):
    """The fields of an operation that `doctor` uses."""

    operation: str
    server: str | None


class Diagnosis(NamedTuple):
    kind: str
    about: str  # the name or id of the affected object
    sentence: str
    commands: list[str]  # to type, in this order


def doctor(*, login: CloudOptions = DEFAULT_LOGIN) -> int:
    """Show what is wrong with the cloud, and what to type. Exit code 6: something is wrong."""
    cloud = login.cloud()
    problems = [problem for check in CHECKS for problem in _few(list(check(cloud)))]
    if login.form != "table":
        print_list([problem._asdict() for problem in problems], COLUMNS, login.form)
    elif problems:
        print_lines(line for problem in problems for line in _lines(problem))
        print(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}")
    else:
        print("no problem found")
    return DIFFERENCES if problems else DONE


COLUMNS: Columns = {
    "kind": "kind",
    "about": "about",
    "sentence": "sentence",
    "commands": lambda problem: "; ".join(problem["commands"]),
}


def _lines(problem: Diagnosis) -> list[str]:
    about = f" {problem.about}" if problem.about else ""
    return [f"{problem.kind}{about}: {problem.sentence}", *(f"    {command}" for command in problem.commands)]


def _few(problems: list[Diagnosis]) -> list[Diagnosis]:
    if len(problems) <= LISTED:
        return problems
    more = f"{len(problems) - LISTED} more of this kind, not shown"
    return [*problems[:LISTED], Diagnosis(problems[0].kind, "", more, [])]


def _readiness(cloud: Cloud) -> Iterator[Diagnosis]:
    if reason := cloud.unready():
        yield Diagnosis("cloud", cloud.url, f"not ready: {reason}", _commands_in(reason))


def _cells(cloud: Cloud) -> Iterator[Diagnosis]:
    for cell in cloud.get("/cells")["cells"]:
        if not cell["reachable"]:
            since = "" if cell["away_since"] is None else f" since {moment(cell['away_since'])}"
            why = f": {cell['away_because']}" if cell["away_because"] else ""
            text = f"its database does not answer{since}{why}; start it or restore it from its backup"
            commands = [f"kilonova cell show {cell['name']}"]
            yield Diagnosis("cell", cell["name"], text, commands)


def _hosts(cloud: Cloud) -> Iterator[Diagnosis]:
    hosts = [host for host in cloud.get("/hosts")["hosts"] if host["state"] not in ("up", "disabled", "draining")]
    for host in hosts:
        name = host["name"]
        count = sum(1 for _ in cloud.all("/servers", "servers", host=name))
        here = f"{count} server{'' if count == 1 else 's'} there"
        empty = host["state"] == "down" and not count
        advice = "; start it again or, if it never comes back, declare it gone" if empty else ""
        yield Diagnosis("host", name, f"{host['state']}: {host['sentence']}; {here}{advice}", _for_host(host, count))


def _for_host(host: ShownHost, servers: int) -> list[str]:
    name, state = host["name"], host["state"]
    if state != "down":  # it pays its debts, or nothing is proven about it
        return [f"kilonova host show {name}"]
    if servers:
        unfenced = " --accept-unfenced" if host["proven_by"] == "silence" else ""
        command = f"kilonova host evacuate {name}{unfenced}"
        return [f"{command} --dry-run", f"{command} --wait"]
    return [f"kilonova host gone {name} --dry-run --reason TEXT", f"kilonova host gone {name} --reason TEXT"]


def _failure_watch(cloud: Cloud) -> Iterator[Diagnosis]:
    """Report on the failure watch only where it would act: elsewhere the hosts' states are enough."""
    watch = cloud.get("/ha")["ha"]
    if not watch["automatic"]:
        return
    if (disarming := watch["disarmed"]) is not None:
        until = "" if disarming["until"] is None else f" until {moment(disarming['until'])}"
        yield Diagnosis("failure watch", "", f"disarmed{until}: {disarming['reason']}", ["kilonova ha arm"])
    for one in watch["silent"]:
        if one["decision"] == "held" and one["servers"]:
            yield Diagnosis("failure watch", one["host"], f"not evacuated: {one['why']}", ["kilonova ha status"])
    for one in watch["records"]:
        if one["state"] in ("fence_failed", "incomplete"):
            text = f"{one['state'].replace('_', ' ')}: {one['sentence']}"
            yield Diagnosis("failure watch", one["host"], text, ["kilonova ha status"])


def _operations(cloud: Cloud) -> Iterator[Diagnosis]:
    for one in cloud.get("/operations?state=waiting&limit=1000")["operations"]:
        text, show = f"{_of(one)} waits for {one['waiting_for']}", f"kilonova op show {one['id']}"
        yield Diagnosis("operation", one["id"], text, _commands_in(one["waiting_for"]) or [show])
    for state in ("running", "undoing"):
        for one in cloud.get(f"/operations?state={state}&limit=1000")["operations"]:
            idle = time.time() - one["updated_at"]
            if idle > SLOW:
                text = f"{_of(one)} is {state}, without a change for {duration(idle)}"
                yield Diagnosis("operation", one["id"], text, [f"kilonova op show {one['id']}"])


def _of(operation: ShownOperation) -> str:
    return str(operation["operation"]) + (f" of server {operation['server']}" if operation["server"] else "")


def _commands_in(sentence: str | None) -> list[str]:
    """The commands that a sentence of the cloud names: `kilonova …` or `openstack …` up to its full stop."""
    import re

    commands = re.findall(r"`?((?:kilonova|openstack) [^`;.,]+)", sentence or "")
    return [command.strip() for command in commands]


def _unplaced(cloud: Cloud) -> Iterator[Diagnosis]:
    for one in all_unplaced(cloud):
        server, what = one["server"], f"{one['name']} has no host ({one['failure']})"
        if one["host"]:
            text, commands = f"{what}; it would go to {one['host']} now", [f"kilonova server retry {server} --wait"]
        else:
            fits = f"; it would fit with: {one['changes'][0]}" if one["changes"] else ""
            text, commands = f"{what}: {one['why_not']}{fits}", [f"kilonova explain {server}"]
        yield Diagnosis("server", server, text, commands)


def _broken_servers(cloud: Cloud) -> Iterator[Diagnosis]:
    """Yield servers in ERROR; those in cell0 are listed as unplaced."""
    for one in cloud.all("/servers", "servers", vm_state="error"):
        if one["cell"] not in (None, "cell0"):
            text = f"{one['name']} is in ERROR on {one['host'] or 'no host'}"
            yield Diagnosis("server", one["id"], text, [f"kilonova server show {one['id']}"])


def _quarantine(cloud: Cloud) -> Iterator[Diagnosis]:
    for one in held(cloud):
        if one["action"]:
            continue
        subject = f"{one['host']} {one['server']} --copy {one['copy']}"
        text = f"copy {one['copy']} on {one['host']} is in quarantine: {one['reason']}"
        commands = [f"kilonova quarantine adopt {subject}", f"kilonova quarantine remove {subject}"]
        yield Diagnosis("guest", one["server"], text, commands)


def _findings(cloud: Cloud) -> Iterator[Diagnosis]:
    for one in cloud.get("/findings?settled=false")["findings"]:
        undo = "undo of " if one["way"] == "undo" else ""
        text = f"{undo}{one['step']} on {one['on']} was abandoned; see to what it left, then settle it"
        commands = [f"kilonova op show {one['operation']}", f"kilonova finding settle {one['id']} --reason TEXT"]
        yield Diagnosis("finding", one["id"], text, commands)


def _audits(cloud: Cloud) -> Iterator[Diagnosis]:
    for audit in cloud.get("/audits?limit=1")["audits"]:
        outcomes = [one for kind in ("findings", "unbalanced", "miscounted") for one in audit[kind]]
        left = differences(audit) - sum(one["outcome"] == "repaired" for one in outcomes)
        if left:
            text = f"the last one left {left} difference{'' if left == 1 else 's'}"
            yield Diagnosis("audit", "", text, ["kilonova audit --no-repair", "kilonova audit"])


CHECKS: tuple[Callable[[Cloud], Iterator[Diagnosis]], ...] = (
    _readiness,
    _cells,
    _hosts,
    _failure_watch,
    _operations,
    _unplaced,
    _broken_servers,
    _quarantine,
    _findings,
    _audits,
)
