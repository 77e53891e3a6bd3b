"""`kilonova sim …`: the simulated hosts of a running cloud; stories and histories, which need none."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from kilonova.cli.names import server_id
from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.cli.output import print_outcome
from kilonova.cli.rest import segment
from kilonova.domain.json import Json

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
    end: str | None = None,
    login: CloudOptions = DEFAULT_LOGIN,
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
    end
        Let the guest of this server id end by itself.
    """
    order: dict[str, Json] = {key: value for key, value in (("power", power), ("link", link)) if value}
    if fail:
        order["fail"] = {"verb": fail, "times": times, "how": how}
    if plant:
        order["plant"] = {"server": plant, "copy": copy}
    if lose:
        order["lose"] = lose
    if end:
        order["guest"] = {"server": end, "power": "off"}
    now = login.cloud().post(f"/simulated/hosts/{segment(name)}", order)
    print_outcome([f"{now['host']}: power {now['power']}, link {now['link']}"], now, login.form)


@app.command
def write(server: str, text: str, /, *, disk: str = "root", login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Write a text to a disk of a simulated server; its console log shows it at the next boot.

    Parameters
    ----------
    server
        Name or id of the server.
    text
        What to write.
    disk
        root, or the id of a volume.
    """
    cloud = login.cloud()
    path = f"/simulated/servers/{segment(server_id(cloud, server))}/write"
    answer = cloud.post(path, {"disk": disk, "text": text})
    print_outcome([f"{disk} of {server} holds {text}"], answer, login.form)


for _name, _summary in LOADED_WHEN_USED.items():
    app.command(f"kilonova.sim.cli:{_name}", name=_name, help=_summary)
