"""Random histories of a whole cloud: operations of every kind, requested once or repeated, while roles crash or stall
at any await, messages get lost, late, doubled and reordered, commits fail or stay unknown, clocks disagree, and hosts
die and return."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kilonova.settings import ConductorOptions, Default, HaOptions
from kilonova.sim.histories.acts import LYING, POLICIES, History, WatchShape
from kilonova.sim.histories.acts import draw as draw
from kilonova.sim.histories.player import HistoryPlayer
from kilonova.sim.histories.watch import FenceCommand
from kilonova.sim.invariants import hardware_claims, images
from kilonova.sim.invariants.invariants import overbooked, refused_blindly, under_way, violations
from kilonova.sim.invariants.living_hosts import LOOK_EVERY as LOOK_EVERY_SECONDS
from kilonova.sim.invariants.living_hosts import LivingHosts
from kilonova.sim.invariants.watch_promises import WatchPromises
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.flavors import OFFER, TOPOLOGY, VCPUS
from kilonova.sim.lab.records import Records, read_records
from kilonova.sim.lab.rest import audited, come_to_rest, come_to_rest_settled
from kilonova.sim.lab.settings import simulated
from kilonova.sim.lab.shape import CloudShape
from kilonova.sim.loop.faults import CommitLuck, Weather

LOOK_EVERY = 4  # acts
LAST_SECONDS = 200.0  # after the last act, until a host that fell silent is fenced and evacuated


@dataclass
class HistoryResult:
    """The result of a history."""

    history: History
    violations: list[str]
    digest: str  # sha256 over all journals
    operations: int
    records: Records = field(repr=False, default_factory=Records)


def make_cloud(history: History, *, marks: bool = False) -> SimCloud:
    """The cloud that a history happens to; the caller closes it."""
    weather = Weather(history.seed, history.lost, history.late, history.doubled)
    luck = CommitLuck(history.seed, history.failed, history.unknown)
    luck.weather = weather
    settings = simulated(
        default=Default(
            service_down_time=60.0,
            report_interval=10.0,
            reclaim_instance_interval=history.reclaimed_after,
            resize_confirm_window=history.confirmed_after,
        ),
        conductor=ConductorOptions(lease_seconds=15.0, poll_seconds=5.0),
        ha=_rules(history.watch),
    )
    ports = 1 + max((act.server for act in history.acts), default=0) if history.addresses else 0
    shape = CloudShape(
        hosts=history.hosts,
        cells=history.cells,
        conductors=history.conductors,
        vcpus=VCPUS,
        topology=TOPOLOGY,
        offer=OFFER,
        shared_storage="pool" if history.shared else "",
        addresses=history.addresses + ports if history.addresses else 0,
        ports=ports,
        volumes=LYING if history.volumes else 0,
        rare_volumes=history.volumes,
        groups=POLICIES,
        settings=settings,
        marks=marks,
    )
    cloud = SimCloud(shape, seed=history.seed, weather=weather, faults=luck)
    weather.hardware = cloud.hardware
    if history.watch is not None:
        cloud.fence = FenceCommand(cloud, history.watch)
    return cloud


def _rules(shape: WatchShape | None) -> HaOptions:
    if shape is None:
        return HaOptions()
    return HaOptions(
        automatic=True,
        storm_hosts=shape.storm_hosts,
        storm_percent=shape.storm_percent,
        storm_window=shape.storm_window,
        fence_timeout=shape.fence_timeout,
    )


def run(history: History) -> HistoryResult:
    cloud = make_cloud(history)
    try:
        return _play(cloud, history)
    finally:
        cloud.close()


def _play(cloud: SimCloud, history: History) -> HistoryResult:
    cloud.start_all()
    cloud.loop.run_for(70.0)
    player, promises = HistoryPlayer(cloud), _promises(cloud)
    last = 0.0 if promises is None else LAST_SECONDS
    living, seen = LivingHosts(cloud), list[str]()
    for number, act in enumerate(history.acts, start=1):
        seen += [f"before act {number}: {what}" for what in _wait(cloud, player, living, promises, act.after)]
        if number % LOOK_EVERY == 0:  # nothing happens at this instant, so what is read belongs together
            seen += [f"before act {number}: {what}" for what in under_way(read_records(cloud), cloud)]
        player.perform(act)
        seen += [f"after act {number}: {what}" for what in hardware_claims.at_any_time(cloud)]
    seen += [f"after all acts: {what}" for what in _wait(cloud, player, living, promises, last, to_the_end=True)]
    player.stop()
    records = come_to_rest(cloud)
    if records.unsettled():
        seen += [f"before findings are settled: {what}" for what in violations(records, cloud, at_rest=True)]
        records = come_to_rest_settled(cloud)
    problems = [*seen, *violations(records, cloud, at_rest=True), *overbooked(records), *player.lost(records)]
    problems += [*refused_blindly(records), *images.done_without_image(records)]
    problems += [*player.done_twice(), *player.wrong, *audited(cloud)]
    problems += promises.at_rest(records) if promises is not None else []
    return HistoryResult(history, problems, digest(records), len(records.table("operations")), records)


def _promises(cloud: SimCloud) -> WatchPromises | None:
    return WatchPromises(cloud, cloud.fence) if isinstance(cloud.fence, FenceCommand) else None


def _wait(
    cloud: SimCloud,
    player: HistoryPlayer,
    living: LivingHosts,
    promises: WatchPromises | None,
    seconds: float,
    *,
    to_the_end: bool = False,
) -> list[str]:
    """Let time pass; `to_the_end` of what hosts are watched for."""
    seen: list[str] = []
    until = max(cloud.loop.time() + seconds, player.trouble.watch_until if to_the_end else 0.0)
    while (left := until - cloud.loop.time()) > 0.0:
        is_watched = cloud.loop.time() < player.trouble.watch_until
        if promises is None and not is_watched:
            break
        cloud.loop.run_for(min(left, LOOK_EVERY_SECONDS))
        seen += living.look() if is_watched else []
        if promises is not None:
            promises.look()
    cloud.loop.run_for(max(left, 0.0))  # also for no time at all: then callbacks that are due now run
    return seen


def digest(records: Records) -> str:
    """Return a digest of all journals: two runs of one history must agree to the last byte."""
    total = hashlib.sha256()
    for database in sorted(records.databases):
        for table, keys in (("operations", ("id",)), ("steps", ("operation_id", "ordinal"))):
            rows = records.databases[database].get(table, [])
            for row in sorted(rows, key=lambda r: tuple(str(r[key]) for key in keys)):
                total.update(msgspec.json.encode(row))
    return total.hexdigest()


def shrink(history: History, fails: Callable[[History], bool]) -> History:
    """Leave out acts, halves first, as long as it still fails."""
    acts, size = list(history.acts), max(1, len(history.acts) // 2)
    while size >= 1:
        start = 0
        while start < len(acts):
            fewer = acts[:start] + acts[start + size :]
            if fails(msgspec.structs.replace(history, acts=fewer)):
                acts = fewer
            else:
                start += size
        size //= 2
    return msgspec.structs.replace(history, acts=acts)
