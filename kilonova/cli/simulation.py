"""`kilonova sim host …`: the machine room of a running cloud. Stories and histories are added by the program itself."""

from __future__ import annotations

from typing import Any, Literal

from cyclopts import App

from kilonova.cli.operations import cloud_of
from kilonova.cli.options import DEFAULT_LOGIN, Login

app = App(name="sim", help="The simulator: stories, random histories, and switches of simulated hosts.")

LOADED_WHEN_USED = {
    "run": "Run stories (files, or directories of them) in virtual time.",
    "histories": "Run random histories with crashes and disasters, one seed after the other.",
    "replay": "Run one history again, exactly as it was.",
    "crashes": "Crash each operation at every point and see that it is completed or undone.",
}


@app.command
def host(
    name: str,
    /,
    *,
    power: Literal["on", "off"] | None = None,
    link: Literal["up", "cut"] | None = None,
    fail: str | None = None,
    times: int = 1,
    how: Literal["error", "refuse", "crash"] = "error",
    plant: str | None = None,
    copy: int = 1,
    lose: str | None = None,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Switch a simulated host of a running cloud.

    Parameters
    ----------
    name
        Name of the host.
    power
        Switch its power.
    link
        Cut or restore its network link.
    fail
        Let this driver verb fail next; * for any.
    times
        Number of failures.
    how
        error: fail, another host may be tried; refuse: fail for good; crash: the agent dies.
    plant
        Create an unrecorded guest of this server id.
    copy
        Copy number of that guest.
    lose
        Lose the guests and disks of this server id on the host.
    """
    from urllib.parse import quote

    order: dict[str, Any] = {word: value for word, value in (("power", power), ("link", link)) if value}
    if fail:
        order["fail"] = {"verb": fail, "times": times, "how": how}
    if plant:
        order["plant"] = {"server": plant, "copy": copy}
    if lose:
        order["lose"] = lose
    now = cloud_of(login).post(f"/simulated/hosts/{quote(name, safe='')}", order)
    print(f"{now['host']}: power {now['power']}, link {now['link']}")
