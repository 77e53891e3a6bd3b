"""`kilonova audit`: compare placement's books with the servers' own records, and repair what is safe to repair."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from cyclopts import Parameter

from kilonova.cli.exits import DIFFERENCES, DONE
from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.cli.output import print_data, print_lines

Counted = Literal["findings", "unbalanced", "miscounted", "hardware", "differences", "abandoned"]
COUNTED: tuple[Counted, ...] = ("findings", "unbalanced", "miscounted", "hardware", "differences", "abandoned")


class AuditOutcome(TypedDict):
    outcome: str
    why: str


class ServerFinding(AuditOutcome):
    sentence: str


class ProviderFinding(AuditOutcome):
    provider: str
    resource_class: str
    used: int | None
    held: int


class UseFinding(TypedDict):
    outcome: str
    user: str
    project: str
    kept: dict[str, int]
    counted: dict[str, int]


class DifferenceFinding(TypedDict):
    kind: str
    sentence: str


class AuditReport(TypedDict):
    """A report of audit/findings.py in the API's response."""

    consumers: int
    busy: int
    findings: list[ServerFinding]
    unbalanced: list[ProviderFinding]
    miscounted: list[UseFinding]
    hardware: list[str]
    differences: list[DifferenceFinding]
    abandoned: list[str]
    silent: list[str]
    unreachable: dict[str, str]
    unknown: list[str]
    foreign: list[str]


def audit(
    *,
    login: CloudOptions = DEFAULT_LOGIN,
    repair: Annotated[bool, Parameter(help="Repair what is safe; --no-repair only reports.")] = True,
) -> int:
    """Compare placement's allocations with the servers' records, and repair what is safe.

    Exit code 6: there was a difference, repaired or not.
    """
    report = login.cloud().post("/audits", {"repair": repair})["audit"]
    if login.form == "table":
        print_lines(lines_of(report))
    else:
        print_data(report, login.form)
    return DIFFERENCES if differences(report) else DONE


def lines_of(report: AuditReport) -> list[str]:
    lines = [f"{report['consumers']} consumers have allocations, {report['busy']} have an open operation"]
    lines += [f"{one['outcome']}: {_why(one)}{one['sentence']}" for one in report["findings"]]
    lines += [
        f"{one['outcome']}: {_why(one)}provider {one['provider']} {one['resource_class']}: "
        f"recorded used={one['used']}, allocations={one['held']}"
        for one in report["unbalanced"]
    ]
    lines += [
        f"{one['outcome']}: user {one['user']} in project {one['project']}: recorded use {_amounts(one['kept'])}, "
        f"servers have {_amounts(one['counted'])}"
        for one in report["miscounted"]
    ]
    lines += [f"found: {sentence}" for sentence in report["hardware"]]
    lines += [f"found: {one['kind']}: {one['sentence']}" for one in report["differences"]]
    lines += [f"left: {sentence}" for sentence in report["abandoned"]]
    if report["silent"]:
        lines.append(f"hosts that did not answer: {', '.join(report['silent'])}")
    for cell, why in report["unreachable"].items():
        lines.append(f"cell {cell} does not answer: {why}")
    if report["unknown"]:
        lines.append(f"unknown, their cell does not answer: {', '.join(report['unknown'])}")
    if report["foreign"]:
        lines.append(f"not created by this cloud, left alone: {', '.join(report['foreign'])}")
    count = differences(report)
    return [*lines, f"{count} difference{'' if count == 1 else 's'}"]


def differences(report: AuditReport) -> int:
    return sum(len(report[kind]) for kind in COUNTED)


def _amounts(amounts: dict[str, int]) -> str:
    return " ".join(f"{amount} {name}" for name, amount in amounts.items())


def _why(one: AuditOutcome) -> str:
    return f"{one['why']}; " if one["why"] else ""
