"""A guest that takes longer to boot than any deadline: no clock fails a step that may have left it running (law 3).

Every operation that starts a guest is here; what would fail it by the clock would start the guest twice, or nowhere.
"""

import msgspec
import pytest

from kilonova.domain.errors import Failed
from kilonova.operations import REGISTRY
from kilonova.sim.crashes.scenarios import SPARING
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.flavors import LARGE

BOOT = 660.0  # seconds; the longest deadline of a step that starts a guest is 600
WAIT = 1.5 * BOOT
PARAMS = {
    "rebuild": {"image": "another"},
    "rebuild_volume": {"image": "another", "reimage": True},
    "resize": {"flavor": msgspec.to_builtins(LARGE)},
}
# What is asked before, and then.
ASKED = {
    "build": [],
    "start": ["stop", "start"],
    "restore": ["soft_delete", "restore"],
    "reboot": ["reboot"],
    "hard_reboot": ["hard_reboot"],
    "rebuild": ["rebuild"],
    "rebuild_volume": ["rebuild_volume"],
    "migrate": ["migrate"],
    "relocate": ["relocate"],
    "resize": ["resize"],
    "revert_resize": ["migrate", "revert_resize"],
    "evacuate": ["evacuate"],
}


def test_every_operation_that_starts_a_guest_is_here():
    starting = {kind for kind, operation in REGISTRY.items() if any(step.starts_guest for step in operation.steps)}
    assert starting == ASKED.keys()


@pytest.mark.parametrize("kind", ASKED)
def test_a_slow_boot_fails_nothing(cloud, kind):
    cloud = cloud(hosts=2, boot_seconds=BOOT, flush_seconds=SPARING, volumes=1)
    root = {"volume_id": cloud.stock.volumes[0], "device": "/dev/vda", "is_root": True}
    server, operation = cloud.make(host="host1", wait=WAIT, volumes=[root] if kind == "rebuild_volume" else [])
    for word in ASKED[kind]:
        if word == "evacuate":
            cloud.hardware.switch_power("host1", False)
            cloud.loop.run_for(100.0)
        operation = cloud.submit(word, server, **PARAMS.get(word, {})).operation_id
        for _ in range(int(WAIT / 90)):
            cloud.loop.run_for(90.0)
            assert len(cloud.hardware.running(server)) <= 1
    assert cloud.operation(operation)["state"] == "done"
    assert {state for _, _, _, state in cloud.steps(operation)} == {"done"}, "tried once, and never given up"
    assert len(cloud.hardware.running(server)) == 1
    assert check(cloud, at_rest=kind != "evacuate") == []


def test_a_slow_boot_while_undoing_fails_nothing(cloud):
    """A migration whose destination refuses: the source starts its guest again, slowly."""
    cloud = cloud(hosts=2, boot_seconds=BOOT, flush_seconds=SPARING)
    server, _ = cloud.make(host="host1", wait=WAIT)
    cloud.hardware.fail("host2", "ensure_power", 1, "refuse")
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(WAIT)
    assert cloud.operation(operation)["state"] == "undone"
    undone = [(name, state) for name, way, _, state in cloud.steps(operation) if way == "undo"]
    assert undone.count(("resize_instance", "done")) == 1 and {state for _, state in undone} == {"done"}
    assert cloud.hardware.running(server) == [("host1", 1)]
    assert check(cloud) == []


RESTARTING = [
    (kind, step.name) for kind, operation in REGISTRY.items() for step in operation.course if step.undo_starts_guest
]


@pytest.mark.parametrize(("kind", "name"), RESTARTING, ids=[f"{kind} {name}" for kind, name in RESTARTING])
def test_no_deadline_ends_an_undo_that_starts_a_guest(cloud, kind, name):
    """Ended by the clock it would be begun again and again, and a guest that boots slowly would never be up."""
    cloud = cloud(hosts=2, boot_seconds=BOOT, flush_seconds=SPARING, volumes=1)
    root = {"volume_id": cloud.stock.volumes[0], "device": "/dev/vda", "is_root": True}
    server, _ = cloud.make(host="host1", wait=WAIT, volumes=[root] if kind == "rebuild_volume" else [])
    for word in ASKED.get(kind, [kind])[:-1]:
        cloud.submit(word, server)
        cloud.loop.run_for(WAIT)
    (before,) = cloud.hardware.running(server)
    step = REGISTRY[kind].step(name)
    work = step.do

    async def fail(host):
        await work(host)
        raise Failed("broken", "told to fail", final=True)

    object.__setattr__(step, "do", fail)
    try:
        operation = cloud.submit(kind, server, **PARAMS.get(kind, {})).operation_id
        cloud.loop.run_for(WAIT)
    finally:
        object.__setattr__(step, "do", work)
    assert cloud.operation(operation)["state"] == "undone"
    undone = [(name, state) for name, way, _, state in cloud.steps(operation) if way == "undo"]
    assert undone.count((name, "done")) == 1 and {state for _, state in undone} == {"done"}
    assert cloud.hardware.running(server) == [before]
    assert check(cloud) == []
