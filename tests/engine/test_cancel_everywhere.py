"""Cancel at every step of every operation, while the step is under way and has had its effect.

From the point of no return on it is refused; before it, everything is undone and the books balance. Which step that
point is stands here once more, by hand: an operation that forgets to mark it is noticed.
"""

import contextlib
import logging
from dataclasses import replace

import pytest

from kilonova.domain.errors import Refused
from kilonova.engine.cancel import cancel
from kilonova.hosts.states import disable, find_host
from kilonova.operations import REGISTRY
from kilonova.operations.quarantine import adopt_quarantined
from kilonova.operations.whole_hosts.requests import evacuate_host
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.journal import operations
from kilonova.sim.crashes import acts, host_acts, scenarios
from kilonova.sim.crashes.acts import asked, asking, created, resized, resizing
from kilonova.sim.crashes.host_acts import buried, host_dies
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.crashes.scenarios import PLAIN, STORED
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.flavors import LARGE, LEAN
from kilonova.sim.lab.records import is_idle, read_records
from kilonova.sim.lab.rest import come_to_rest
from kilonova.store import rows

ALWAYS = "as soon as it is accepted"
# The step from which on an operation can only go on; None: it can be undone until its end.
POINTS = {
    "place": "hand_over",
    "place_many": "start_placing",
    "build": None,
    "delete": "list_what_exists",
    "soft_delete": None,
    "restore": None,
    "delete_unplaced": ALWAYS,
    "migrate": None,
    "resize": None,
    "confirm_resize": "confirm_resize",
    "revert_resize": "grant_runner",
    "evacuate": "grant_runner",
    "evacuate_host": None,
    "drain_host": None,
    "return_host": None,
    "relocate": "confirm_resize",
    "host_gone": ALWAYS,
    "start": None,
    "stop": None,
    "follow_power": None,
    "reboot": "reboot_instance",
    "hard_reboot": "reboot_instance",
    "rebuild": "remove_old_copy",
    "rebuild_volume": "reimage_volume",
    "rebuild_in_cell0": "rebuild_instance_in_cell0",
    "snapshot": None,
    "snapshot_volumes": None,
    "attach_volume": None,
    "detach_volume": "release_volume",
    "adopt": "adopt_copy",
}
EARLIER = {("rebuild", "make_room"), ("rebuild", "make_only_copy")}  # where the host has no room for both disks
EVERYTHING = scenarios.EVERYTHING
LOST = 700  # the number of a copy that the records do not know


def evacuating_host(cloud):
    host = read_records(cloud).server(SERVER)["host"]
    cause = cloud.cause()

    async def ask(engine):
        journal, _ = await find_host(engine, host)
        return await evacuate_host(engine, journal, host, cause)

    cloud.ask(ask)


def deleting_unplaced(cloud):
    """The delete comes while no conductor is there to place the server."""
    cloud.kill("conductor1")
    acts.creating(cloud)
    cloud.loop.run_for(1.0)
    asking("delete")(cloud)
    cloud.loop.run_for(1.0)
    cloud.start("conductor1")


def unknown_copy(cloud):
    """The server's disk is lost, and another host has a copy that nobody recorded."""
    host = read_records(cloud).server(SERVER)["host"]
    other = next(name for name in cloud.hardware.hosts() if name != host)
    cloud.hardware.plant(other, SERVER, LOST, "off")
    cloud.kill(other)
    cloud.start(other)
    cloud.loop.run_for(20.0)
    cloud.hardware.lose(host, SERVER)

    async def body(tx):
        await rows.change(tx, servers, {"vm_state": "error"}, id=SERVER)

    cloud.alone(lambda stores: stores.cell("cell1").write(body), "the records")


def adopting(cloud):
    host = next(found.host for found in cloud.hardware.survey(SERVER) if found.copy == LOST)
    cloud.ask(lambda engine: adopt_quarantined(engine, host, SERVER, None, cloud.cause()))


def snapshotted(cloud):
    acts.snapshotting("snapshot")(cloud)
    cloud.loop.run_for(20.0)


def first_host_fails(cloud):
    """Every host refuses its first guest: whichever is chosen, another one is chosen after it."""
    for host in cloud.hardware.hosts():
        cloud.hardware.fail(host, "ensure_power", 1, "error")


def nobody_takes_it(cloud):
    for host in cloud.hardware.hosts():
        cloud.do(lambda engine, host=host: disable(engine, host))


def former_host_fails(cloud):
    """The copy that a revert goes back to cannot be switched on."""
    (move,) = read_records(cloud).table("migrations")
    cloud.hardware.fail(move["source_host"], "ensure_power", 1000, "refuse")


def preserving(kind, **params):
    return asking(kind, image="another", preserve_ephemeral=True, **params)


# What is there before, what is asked, and the shape of the cloud.
SCENES = {
    "place": ([], acts.creating, EVERYTHING),
    "place_many": ([], acts.creating_many, EVERYTHING),
    "build": ([], acts.creating, EVERYTHING),
    "delete": ([created], asking("delete"), EVERYTHING),
    "soft_delete": ([created], asking("soft_delete"), PLAIN),
    "restore": ([created, asked("soft_delete")], asking("restore"), PLAIN),
    "delete_unplaced": ([], deleting_unplaced, EVERYTHING),
    "migrate": ([created], asking("migrate"), EVERYTHING),
    "resize": ([created], resizing(LARGE), EVERYTHING),
    "confirm_resize": ([created, asked("migrate")], asking("confirm_resize"), EVERYTHING),
    "revert_resize": ([created, asked("migrate")], asking("revert_resize"), EVERYTHING),
    "evacuate": ([created, host_dies], asking("evacuate"), EVERYTHING),
    "evacuate_host": ([created, host_dies], evacuating_host, PLAIN),
    "drain_host": ([created], host_acts.draining, PLAIN),
    "return_host": ([created, host_acts.drained], host_acts.returning, PLAIN),
    "relocate": ([created], host_acts.draining, EVERYTHING),
    "host_gone": ([created, asked("migrate"), host_dies], host_acts.declaring_gone, PLAIN),
    "start": ([created, asked("stop")], asking("start"), PLAIN),
    "stop": ([created], asking("stop"), PLAIN),
    "follow_power": ([created], host_acts.guest_ends, PLAIN),
    "reboot": ([created], asking("reboot"), PLAIN),
    "hard_reboot": ([created], asking("hard_reboot"), PLAIN),
    "rebuild": ([created], asking("rebuild", image="another"), PLAIN),
    "rebuild_volume": ([created], asking("rebuild_volume", image="another", reimage=True), EVERYTHING),
    "rebuild_in_cell0": ([buried], acts.retrying, EVERYTHING),
    "snapshot": ([created], acts.snapshotting("snapshot"), PLAIN),
    "snapshot_volumes": ([created], acts.snapshotting("snapshot_volumes"), EVERYTHING),
    "attach_volume": ([created, acts.attached], acts.attaching, STORED),
    "detach_volume": ([created, acts.attached], acts.detaching, STORED),
    "adopt": ([created, unknown_copy], adopting, EVERYTHING),
    # steps that only a second attempt has
    "build select_destinations": ([first_host_fails], acts.creating, EVERYTHING),
    "build claim": ([first_host_fails], acts.creating, EVERYTHING),
    "build grant_runner": ([first_host_fails], acts.creating, EVERYTHING),
    # a step that only a destination needs that was down and answers again
    "revert_resize check_source_again": (
        [created, asked("migrate"), host_dies],
        host_acts.reverting_before_it_answers,
        EVERYTHING,
    ),
    # steps that only a flavor brings with it, or a word of the owner
    "revert_resize raise_usage": ([created, resized(LEAN)], asking("revert_resize"), EVERYTHING),
    "revert_resize record_flavor": ([created, resized(LEAN)], asking("revert_resize"), EVERYTHING),
    "rebuild make_room": ([created, host_acts.full], asking("rebuild", image="another"), PLAIN),
    "rebuild make_only_copy": ([created, host_acts.full], asking("rebuild", image="another"), PLAIN),
    "rebuild preserve_ephemeral": ([created], preserving("rebuild"), PLAIN),
    "rebuild_volume preserve_ephemeral": ([created], preserving("rebuild_volume", reimage=True), EVERYTHING),
    # a step that only a server has of which images were made
    "delete discard_images": ([created, snapshotted], asking("delete"), PLAIN),
    # steps that only a server in cell0 has
    "place leave_cell0": ([buried], acts.retrying, EVERYTHING),
    "delete recall_rebuild": ([buried], asking("delete"), EVERYTHING),
    "delete remove_rows": ([buried], asking("delete"), EVERYTHING),
}
# Nobody can come between a step that is done at once and the one before it.
STEPS = [(kind, step.name) for kind, operation in REGISTRY.items() for step in operation.steps if not step.at_once]
# Steps of an operation that has failed, and how it ends: what failed is not the canceller's.
ENDINGS = [(kind, step.name) for kind, operation in REGISTRY.items() for step in operation.ending]
FAILING = {
    "place": ([nobody_takes_it], acts.creating, EVERYTHING, "accepted", "undone"),
    "place_many": ([nobody_takes_it], acts.creating_many, EVERYTHING, "accepted", "undone"),
    "build": ([host_acts.hosts_fail], acts.creating, EVERYTHING, "accepted", "undone"),
    "revert_resize": (
        [created, resized(LARGE), former_host_fails],
        asking("revert_resize"),
        EVERYTHING,
        "no_return",
        "failed",
    ),
}


def test_every_operation_is_here():
    assert POINTS.keys() == REGISTRY.keys() <= SCENES.keys()
    for kind, point in POINTS.items():
        assert point in (None, ALWAYS) or point in [step.name for step in REGISTRY[kind].steps]


def is_past(kind, name):
    """Whether the point of no return was taken when this step is under way."""
    if (kind, name) in EARLIER:
        return True
    point, names = POINTS[kind], [step.name for step in REGISTRY[kind].steps]
    return point is not None and (point == ALWAYS or names.index(name) >= names.index(point))


class Interruption:
    """Asks once for the cancellation of all live operations of a kind, from inside one of their steps."""

    def __init__(self, cloud, kind, work):
        self.cloud, self.kind, self.work = cloud, kind, work
        self.said, self.operation = [], ""

    async def do(self, ctx):
        result = await self.work(ctx)
        if not self.said:
            self.said.append("under way")
            self.said[0] = await self.cloud.ask(self.ask)
        return result

    async def ask(self, engine):
        for journal in engine.world.db.journals():
            for row in await journal.read(self.live):
                self.operation = row["id"]
                try:
                    await cancel(engine, journal, row["id"], "somebody")
                except Refused as why:
                    return why.code
                return "accepted"
        return "there was none"

    async def live(self, tx):
        return await rows.fetch_all(tx, operations, kind=self.kind, live=1)


@pytest.fixture
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@contextlib.contextmanager
def interrupted(kind, name, scene):
    """A cloud at idle in which that step was done with a cancel in its middle, and what was said to the cancel."""
    before, act, shape = scene
    cloud = SimCloud(replace(shape, conductors=1), seed=f"{kind} {name}")
    step = REGISTRY[kind].step(name)
    work = step.do
    try:
        cloud.start_all()
        cloud.loop.run_for(15.0)
        for prepare in before:
            prepare(cloud)
        interruption = Interruption(cloud, kind, work)
        object.__setattr__(step, "do", interruption.do)
        act(cloud)
        for _ in range(120):
            cloud.loop.run_for(1.0)
            if interruption.said and is_idle(cloud):
                break
        yield cloud, interruption
    finally:
        object.__setattr__(step, "do", work)
        cloud.close()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("kind", "name"), STEPS, ids=[f"{kind} {name}" for kind, name in STEPS])
def test_cancel_is_refused_once_the_point_of_no_return_was_taken(kind, name):
    with interrupted(kind, name, SCENES.get(f"{kind} {name}") or SCENES[kind]) as (cloud, interruption):
        assert interruption.said == ["no_return" if is_past(kind, name) else "accepted"]
        records = come_to_rest(cloud)
        ids = kind, interruption.operation
        ended = [row["state"] for row in records.table("operations") if (row["kind"], row["id"]) == ids]
        assert ended == ["done" if is_past(kind, name) else "cancelled"]
        assert kind == "adopt" or violations(records, cloud, at_rest=True) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("kind", "name"), ENDINGS, ids=[f"{kind} {name}" for kind, name in ENDINGS])
def test_cancel_changes_nothing_once_it_has_failed(kind, name):
    """It ends with its own reason, which decides whether a server in cell0 may be rebuilt. No step is done twice."""
    *scene, answer, state = FAILING[kind]
    with interrupted(kind, name, scene) as (cloud, interruption):
        assert interruption.said == [answer]
        records = come_to_rest(cloud)
        (ended,) = [
            row for row in records.table("operations") if (row["kind"], row["id"]) == (kind, interruption.operation)
        ]
        assert ended["state"] == state and "cancelled" not in ended["error"]
        done = [row["name"] for row in records.table("steps") if row["operation_id"] == interruption.operation]
        assert done.count(name) == 1
        assert "cancelled" not in [row["cell0_failure"] for row in records.table("servers")]
        assert violations(records, cloud, at_rest=True) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", [kind for kind, operation in REGISTRY.items() if operation.supersedes])
def test_cancel_of_who_took_over_is_refused_where_nobody_else_would_undo(kind):
    """A migration is in the middle, another operation takes over from it, and no conductor has taken a step of that one
    yet. One that inherits what has to be undone may be cancelled; of the others nobody would be left to undo it."""
    cloud = SimCloud(replace(EVERYTHING, conductors=1), seed=kind)
    try:
        cloud.start_all()
        cloud.loop.run_for(15.0)
        created(cloud)
        asking("migrate")(cloud)
        cloud.loop.run_for(0.7)
        if kind == "evacuate":
            host_dies(cloud)
        cloud.kill("conductor1")
        asking(kind)(cloud)
        cloud.loop.run_for(0.5)
        interruption = Interruption(cloud, kind, None)
        assert cloud.do(interruption.ask) == ("accepted" if REGISTRY[kind].inherits else "no_return")
        cloud.start("conductor1")
        records = come_to_rest(cloud)
        ended = {row["kind"]: row["state"] for row in records.table("operations")}
        assert (ended["migrate"], ended[kind]) == ("superseded", "cancelled" if REGISTRY[kind].inherits else "done")
        assert violations(records, cloud, at_rest=True) == []
    finally:
        cloud.close()
