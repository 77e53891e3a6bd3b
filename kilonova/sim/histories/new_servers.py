"""The new servers of a history: what they ask for."""

from __future__ import annotations

from kilonova.domain.details import Details
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.operations.create.accept import NewServer
from kilonova.sim.histories.acts import WIDE as WIDE_SERVER
from kilonova.sim.histories.acts import WIDE_EVERY, Act
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.flavors import HEAVY, LEAN, PINNED, ROOMY, SMALL, TWICE, WIDE

HEAVY_EVERY, HEAVY_SERVER = 8, 4  # servers 4, 12, … claim more than their flavor says
OTHERS = (ROOMY, LEAN, PINNED, TWICE, SMALL)
PINNED_EVERY = 2  # one server in this number requests its own CPUs and device


def new_servers(cloud: SimCloud, act: Act, slots: list[int], ids: list[str | None]) -> list[NewServer]:
    """Return equal new servers. Only a single one may request resources that exist once."""
    alone = len(slots) == 1
    given = [cloud.laid.ports[act.server]] if alone and act.given and act.server < len(cloud.laid.ports) else []
    return [
        NewServer(
            id=server,
            name=f"s{slot}",
            flavor=_flavor(act.server),
            image="img",
            networks=cloud.laid.wanted(act.ports, given) if cloud.laid.network else [],
            volumes=_volumes(cloud, act, alone=alone),
            secrets={"admin_pass": f"{slot}-{server}"},
            group=act.group or None,
            details=Details(scheduler_hints={"group": [act.group]} if act.group else {}),
        )
        for slot, server in zip(slots, ids, strict=True)
    ]


def _flavor(server: int) -> Flavor:
    if server % PINNED_EVERY == 1:
        return PINNED
    if server % HEAVY_EVERY == HEAVY_SERVER:
        return HEAVY
    return WIDE if server % WIDE_EVERY == WIDE_SERVER else SMALL


def other_flavor(number: int) -> Flavor:
    """Return the flavor of a resize. Some servers have it, or a larger disk: then the request is refused."""
    return OTHERS[number % len(OTHERS)]


def _volumes(cloud: SimCloud, act: Act, *, alone: bool) -> list[WantedVolume]:
    """See acts.VOLUMES."""
    if not cloud.stock.volumes:
        return []
    labels = [label for label in act.volumes if alone or not volume_named(cloud, label)]
    return [_wanted(cloud, label, device=f"/dev/vd{'abcdef'[n + 1]}") for n, label in enumerate(labels)]


def _wanted(cloud: SimCloud, label: str, device: str) -> WantedVolume:
    goes = label.endswith("!")
    if there := volume_named(cloud, label):
        return WantedVolume(volume_id=there, device=device, delete_on_termination=goes)
    if label.startswith("boot"):
        return WantedVolume(
            snapshot_id=cloud.stock.snapshot, is_root=True, device="/dev/vda", delete_on_termination=goes
        )
    return WantedVolume(size=1, device=device, delete_on_termination=goes)


def volume_named(cloud: SimCloud, label: str) -> str:
    """Return an existing volume, or none."""
    name = label.rstrip("!")
    if name == "shared":
        return cloud.stock.shared
    return cloud.stock.volumes[int(name) - 1] if name.isdigit() else ""
