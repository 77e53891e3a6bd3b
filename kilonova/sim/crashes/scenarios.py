"""The operations that are crashed at every point (crashes.py); outcomes.py says what must become of them."""

from __future__ import annotations

from kilonova.settings import Default, HaOptions
from kilonova.sim.crashes.acts import (
    abandoning,
    asked,
    asking,
    attached,
    attaching,
    cell_goes_away,
    created,
    creating,
    creating_and_deleting,
    creating_many,
    detaching,
    resized,
    resizing,
    retrying,
    retrying_and_deleting,
    snapshotting,
)
from kilonova.sim.crashes.crashes import Scenario
from kilonova.sim.crashes.host_acts import (
    arming,
    buried,
    declaring_gone,
    drained,
    draining,
    evacuating_hosts,
    full,
    guest_ends,
    host_dies,
    host_dies_disarmed,
    hosts_fail,
    refused,
    returning,
    reverting_before_it_answers,
)
from kilonova.sim.crashes.outcomes import (
    all_or_none,
    all_whole_or_none,
    buried_or_gone,
    buried_or_never,
    created_or_never,
    evacuated_once,
    failed,
    one_server,
    resized_or_not,
    whole_or_any,
    whole_or_buried,
    whole_or_gone,
    whole_or_never,
    with_its_image,
)
from kilonova.sim.lab.flavors import LARGE, LEAN, OFFER, ROOMY, SMALL, TOPOLOGY, VCPUS
from kilonova.sim.lab.settings import simulated
from kilonova.sim.lab.shape import CloudShape

SPARING = 5.0  # seconds between two writes of heartbeats: there are thousands of runs
PLAIN = CloudShape(flush_seconds=SPARING)
TWO_CELLS = CloudShape(hosts=4, cells=2, flush_seconds=SPARING)
NETWORKED = CloudShape(addresses=4, ports=1, flush_seconds=SPARING)
STAYING = CloudShape(
    hosts=1, flush_seconds=SPARING, settings=simulated(default=Default(allow_resize_to_same_host=True))
)
PINNING = CloudShape(vcpus=VCPUS, topology=TOPOLOGY, offer=OFFER, flush_seconds=SPARING)
STORED = CloudShape(volumes=2, flush_seconds=SPARING)
WATCHED = CloudShape(flush_seconds=SPARING, settings=simulated(ha=HaOptions(automatic=True)))
EVERYTHING = CloudShape(
    addresses=4, ports=1, volumes=2, rare_volumes=True, groups=("anti-affinity",), flush_seconds=SPARING
)
GONE = ("resized", "deleted")

SCENARIOS = [
    Scenario("create", [], creating, created_or_never, NETWORKED),
    Scenario("create_many", [], creating_many, all_or_none, PLAIN),
    Scenario("create_while_its_cell_is_away", [cell_goes_away], creating, created_or_never, PLAIN),
    Scenario("delete", [created], asking("delete"), one_server("active", "deleted"), NETWORKED),
    Scenario("create_with_everything", [], creating, whole_or_never, EVERYTHING),
    Scenario("create_many_with_everything", [], creating_many, all_whole_or_none, EVERYTHING),
    Scenario("delete_with_everything", [created], asking("delete"), whole_or_gone, EVERYTHING),
    Scenario("migrate", [created], asking("migrate"), one_server("active", "resized"), NETWORKED),
    Scenario("confirm", [created, asked("migrate")], asking("confirm_resize"), one_server("active", "resized"), PLAIN),
    Scenario(
        "revert", [created, asked("migrate")], asking("revert_resize"), one_server("active", "resized"), NETWORKED
    ),
    Scenario(
        "revert_after_silence",
        [created, asked("migrate"), host_dies],
        reverting_before_it_answers,
        one_server("active", "resized"),
        PLAIN,
    ),
    Scenario("resize", [created], resizing(LARGE), one_server("active", "resized"), NETWORKED),
    Scenario("resize_on_its_host", [created], resizing(ROOMY), one_server("active", "resized"), STAYING),
    Scenario("resize_pinned", [created], resizing(LARGE), one_server("active", "resized"), PINNING),
    Scenario("resize_with_volumes", [created, attached], resizing(LARGE), one_server("active", "resized"), STORED),
    Scenario("confirm_a_resize", [created, resized(LARGE)], asking("confirm_resize"), resized_or_not(LARGE), PLAIN),
    Scenario("revert_a_resize", [created, resized(LEAN)], asking("revert_resize"), resized_or_not(SMALL), NETWORKED),
    Scenario("delete_a_resized_server", [created, resized(LARGE)], asking("delete"), one_server(*GONE), NETWORKED),
    Scenario("stop", [created], asking("stop"), one_server("active", "stopped"), PLAIN),
    Scenario("guest_ends", [created], guest_ends, one_server("active", "stopped"), PLAIN),
    Scenario("start", [created, asked("stop")], asking("start"), one_server("active", "stopped"), PLAIN),
    Scenario("soft_delete", [created], asking("soft_delete"), one_server("active", "soft-delete"), PLAIN),
    Scenario("restore", [created, asked("soft_delete")], asking("restore"), one_server("active", "soft-delete"), PLAIN),
    Scenario("reboot", [created], asking("reboot"), one_server("active"), PLAIN),
    Scenario("hard_reboot", [created, asked("stop")], asking("hard_reboot"), one_server("active", "stopped"), PLAIN),
    Scenario("rebuild", [created], asking("rebuild", image="another"), one_server("active"), PLAIN),
    Scenario("rebuild_full", [created, full], asking("rebuild", image="another"), one_server("active"), PLAIN),
    Scenario(
        "rebuild_volume",
        [created],
        asking("rebuild_volume", image="another", reimage=True),
        one_server("active"),
        EVERYTHING,
    ),
    Scenario("snapshot", [created], snapshotting("snapshot"), with_its_image("active"), PLAIN),
    Scenario(
        "snapshot_and_delete",
        [created],
        snapshotting("snapshot", "delete"),
        with_its_image("active", "deleted"),
        PLAIN,
    ),
    Scenario("snapshot_volumes", [created], snapshotting("snapshot_volumes"), with_its_image("active"), EVERYTHING),
    Scenario("rebuild_in_cell0", [buried], retrying, whole_or_buried, EVERYTHING),
    Scenario("rebuild_in_cell0_and_delete", [buried], retrying_and_deleting, whole_or_any, EVERYTHING),
    Scenario("evacuate", [created, host_dies], asking("evacuate"), one_server("active"), NETWORKED),
    Scenario(
        "evacuate_shared",
        [created, host_dies],
        asking("evacuate"),
        one_server("active"),
        CloudShape(shared_storage="pool", flush_seconds=SPARING),
    ),
    Scenario("evacuate_host", [created, host_dies], evacuating_hosts, one_server("active"), NETWORKED),
    Scenario("failure_watch", [created, host_dies_disarmed], arming, evacuated_once, WATCHED),
    Scenario("drain_host", [created], draining, one_server("active"), NETWORKED),
    Scenario("drain_host_with_everything", [created], draining, one_server("active"), EVERYTHING),
    Scenario("return_host", [created, drained], returning, one_server("active"), NETWORKED),
    Scenario("host_gone", [created, host_dies, asked("evacuate")], declaring_gone, one_server("active"), NETWORKED),
    Scenario(
        "host_gone_resized",
        [created, asked("migrate"), host_dies],
        declaring_gone,
        one_server("active", "resized"),
        NETWORKED,
    ),
    Scenario("create_pinned", [], creating, created_or_never, PINNING),
    Scenario("migrate_pinned", [created], asking("migrate"), one_server("active", "resized"), PINNING),
    Scenario("rebuild_pinned", [created], asking("rebuild", image="another"), one_server("active"), PINNING),
    Scenario("delete_pinned", [created], asking("delete"), one_server("active", "deleted"), PINNING),
    Scenario("create_among_cells", [], creating, created_or_never, TWO_CELLS),
    Scenario("migrate_among_cells", [created], asking("migrate"), one_server("active", "resized"), TWO_CELLS),
    Scenario("attach_volume", [created, attached], attaching, one_server("active"), STORED),
    Scenario("detach_volume", [created, attached], detaching, one_server("active"), STORED),
    Scenario("migrate_with_volumes", [created, attached], asking("migrate"), one_server("active", "resized"), STORED),
    Scenario(
        "revert_with_volumes",
        [created, attached, asked("migrate")],
        asking("revert_resize"),
        one_server("active", "resized"),
        STORED,
    ),
    Scenario("evacuate_with_volumes", [created, attached, host_dies], asking("evacuate"), one_server("active"), STORED),
    Scenario(
        "abandon_a_rebuild", [created, refused("rebuild", image="another")], abandoning, one_server("active"), PLAIN
    ),
    Scenario("abandon_a_migration", [created, refused("migrate")], abandoning, one_server("active"), NETWORKED),
    Scenario("no_room", [], creating, failed, CloudShape(vcpus=1, memory_mb=512, flush_seconds=SPARING)),
    Scenario("build_fails", [hosts_fail], creating, buried_or_never, EVERYTHING),
    Scenario("build_fails_and_delete", [hosts_fail], creating_and_deleting, buried_or_gone, EVERYTHING),
    Scenario("no_address", [], creating, failed, CloudShape(addresses=1, ports=1, flush_seconds=SPARING)),
]
