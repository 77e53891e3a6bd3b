"""`kilonova ha …`: silent hosts, and the automatic reactions to them."""

from __future__ import annotations

from typing import Annotated, TypedDict

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions, Reason, Seconds
from kilonova.cli.output import Columns, Long, print_lines, print_list, print_outcome, print_record
from kilonova.cli.times import duration, moment
from kilonova.domain.json import JsonObject

app = App(name="ha", help="Failure watch: status, disarm, arm.")


class Disarming(TypedDict):
    until: float | None
    user_id: str
    reason: str


class WatchStatus(TypedDict):
    hosts: int
    silent: list[JsonObject]
    cells_away: list[str]
    automatic: bool
    armed: bool
    disarmed: Disarming | None


SILENT: Columns = {
    "host": "host",
    "cell": "cell",
    "state": "state",
    "silent for": lambda one: duration(one["silent_seconds"]),
    "servers": "servers",
    "decision": "decision",
    "why": lambda one: Long(one["why"]),
}
RECORDS: Columns = {
    "host": "host",
    "since": "created_at",
    "state": "state",
    "operation": "operation_id",
    "evidence": lambda one: Long(one["evidence"]),
    "proof": lambda one: Long(one["proof"]),
    "result": lambda one: Long(one["sentence"]),
}


@app.command
def status(*, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Show silent hosts with the evidence, what is done about each and why, and the newest records."""
    watch = login.cloud().get("/ha")["ha"]
    if login.form != "table":
        print_record(watch, {name: name for name in watch}, login.form)
        return
    print_lines([_sentence(watch)])
    for heading, key, columns in (("silent hosts", "silent", SILENT), ("records", "records", RECORDS)):
        if watch[key]:
            print(f"\n{heading}")
            print_list(watch[key], columns, "table")


@app.command
def disarm(
    *,
    seconds: Annotated[Seconds, Parameter(name="--for", help="How long, as 90, 90s, 5m or 2h; at most 30d.")],
    reason: Reason,
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """Fence and evacuate nothing automatically for some time. What is under way ends."""
    _change({"action": "disarm", "seconds": seconds, "reason": reason}, login)


@app.command
def arm(*, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """End a disarm, also one that the watch has set itself because a fence command lied."""
    _change({"action": "arm"}, login)


def _change(body: JsonObject, login: CloudOptions) -> None:
    watch = login.cloud().post("/ha", body)["ha"]
    print_outcome([_sentence(watch)], watch, login.form)


def _sentence(watch: WatchStatus) -> str:
    silent = len(watch["silent"])
    heard = f"{silent} of {watch['hosts']} hosts silent"
    away = f"; cells that do not answer: {', '.join(watch['cells_away'])}" if watch["cells_away"] else ""
    sentences = [] if watch["automatic"] else ["automatic evacuation is off ([ha] automatic)"]
    if not watch["armed"] and watch["disarmed"] is not None:
        sentences.append(_disarmed(watch["disarmed"]))
    return f"{'; '.join(sentences or ['armed'])}; {heard}{away}"


def _disarmed(disarming: Disarming) -> str:
    until = "until somebody arms it" if disarming["until"] is None else f"until {moment(disarming['until'])}"
    by = f" by {disarming['user_id']}" if disarming["user_id"] else ""
    return f"disarmed {until}{by}: {disarming['reason']}"
