"""`kilonova finding …`: what abandoned steps left, until an operator settles it."""

from __future__ import annotations

import json
import time
from typing import Any

from cyclopts import App

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login

app = App(name="finding", help="What abandoned steps left: list, settle.")


@app.command(name="list")
def list_(
    *,
    settled: bool = False,
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> None:
    """List what abandoned steps left and nobody has settled.

    Parameters
    ----------
    settled
        Also list those that were settled.
    """
    found = cloud_of(login).get(f"/findings?settled={'true' if settled else 'false'}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for finding in found["findings"]:
        print(_line(finding))


@app.command
def settle(
    finding: str,
    /,
    *,
    reason: str,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Record that you have dealt with what an abandoned step left.

    The next audit frees what it still holds in placement, and its host checks its guests again.

    Parameters
    ----------
    finding
        Id of the finding.
    reason
        Why; it is recorded with your name.
    """
    cloud_of(login).post(f"/findings/{word(finding)}/settle", {"reason": reason})
    print(f"{finding} is settled; compare the records now: kilonova audit")


def _line(finding: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(finding["created_at"]))
    undo = "undo of " if finding["way"] == "undo" else ""
    where = "" if finding["on"] == "control" else f" on {finding['on']}"
    why = f": {finding['error']['message']}" if finding["error"] else ""
    state = f"  settled by {finding['settled_by']}" if finding["settled_by"] else ""
    return f"{finding['id']}  {when}  server {finding['server'] or '-'}  {undo}{finding['step']}{where}{why}{state}"
