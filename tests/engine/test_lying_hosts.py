"""A host with nothing but its own credentials says what it likes: of other hosts' servers, of copies it never had, of
itself beyond all bounds. Nothing that belongs to others changes, whatever it says."""

import math

import msgspec
import pytest

from kilonova.domain.guest import CopyReport, HostInventory, Hypervisor
from kilonova.domain.hardware import HostHardware
from kilonova.domain.host import host_name_error
from kilonova.domain.numa import HostCell, Pages
from kilonova.hosts import report_bounds
from kilonova.hosts.states import declare_down
from tests.engine.speaking import INVENTORY, Speaker

JUDGED = ("servers", "copies", "debts", "migrations", "operations", "steps", "allocations", "inventories", "hosts")


def standing(cloud, *others_than):
    """All that is recorded, but what the liar says of itself."""
    tables = {name: cloud.records().table(name) for name in JUDGED if name not in others_than}
    liar = next(host["provider_id"] for host in cloud.records().table("hosts") if host["name"] == "host2")
    tables["hosts"] = [row for row in tables.get("hosts", []) if row["name"] != "host2"]
    for host in tables["hosts"]:
        host.pop("last_seen")
    provider = next(row["id"] for row in cloud.records().table("resource_providers") if row["uuid"] == liar)
    tables["inventories"] = [row for row in tables.get("inventories", []) if row["provider_id"] != provider]
    return tables


@pytest.fixture
def scene(cloud):
    """`a` runs on host1; `b` was evacuated from host1 to host3, and host1, declared down, owes its copy. host2 lies."""
    cloud = cloud(hosts=3)
    a, _ = cloud.make("a", host="host1")
    b, _ = cloud.make("b", host="host1")
    c, _ = cloud.make("c", host="host3")
    cloud.kill("host1")
    cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.submit("evacuate", b, host="host3")
    cloud.loop.run_for(60.0)
    assert cloud.server(b)["host"] == "host3"
    assert [(debt["host"], debt["server_id"]) for debt in cloud.records().table("debts")] == [("host1", b)]
    return cloud, Speaker(cloud, "host2"), (a, b, c)


LIES = {
    "adopted, off": lambda server, copy: {"adopted": [(server, copy, False)]},
    "adopted, on": lambda server, copy: {"adopted": [(server, copy, True)]},
    "not started": lambda server, copy: {"failed": [(server, copy, "broken")]},
    "destroyed": lambda server, copy: {"destroyed": [(server, copy)]},
    "stopped": lambda server, copy: {"stopped": [(server, copy)]},
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_host_did_with_others_servers_changes_nothing(scene, lie):
    cloud, liar, servers = scene
    before = standing(cloud)
    for server in servers:
        for copy in range(4):
            liar.register()
            assert liar.returned(**LIES[lie](server, copy))
    assert standing(cloud) == before


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("speaks_as", ["host1", "host3"])
def test_what_is_said_in_another_hosts_name_changes_nothing(scene, lie, speaks_as):
    """The session of a host is known to its agent alone; the liar has its own."""
    cloud, liar, servers = scene
    liar.register()
    epochs = {host["name"]: host["epoch"] for host in cloud.records().table("hosts")}
    before = standing(cloud)
    liar.host, liar.epoch = speaks_as, epochs[speaks_as]
    for server in servers:
        for copy in range(4):
            assert not liar.returned(**LIES[lie](server, copy))
    assert standing(cloud) == before


def test_another_hosts_name_needs_its_key(scene):
    cloud, liar, (a, *_) = scene
    before = standing(cloud)
    liar.host = "host1"
    assert "another key" in liar.register(CopyReport(a, 1, "on", True)).refused
    assert standing(cloud) == before


@pytest.mark.parametrize("power", ["on", "off", "absent"])
@pytest.mark.parametrize("whole", [True, False])
def test_copies_of_servers_that_run_elsewhere_are_not_adopted(scene, power, whole):
    cloud, liar, servers = scene
    before = standing(cloud)
    reported = [CopyReport(server, copy, power, whole) for server in servers for copy in (1, 2, 3, 99)]
    verdicts = liar.register(*reported).verdicts
    assert {verdict.action for verdict in verdicts} <= {"destroy", "quarantine"}
    assert not any(verdict.run or verdict.guest for verdict in verdicts)
    assert standing(cloud) == before


def test_a_host_cannot_get_rid_of_the_copy_it_is_to_keep(scene):
    """Of its own servers it may say what runs; that the copy which counts was removed, nobody had asked for."""
    cloud, _, (_, _, c) = scene
    keeper = Speaker(cloud, "host3")
    keeper.register(CopyReport(c, 1, "on", True))
    assert keeper.returned(destroyed=[(c, 1)])
    assert [(row["host"], row["copy"]) for row in cloud.records().table("copies") if row["server_id"] == c] == [
        ("host3", 1)
    ]
    assert cloud.server(c)["runner_host"] == "host3"


def test_of_its_own_server_a_host_says_that_it_is_off(scene):
    cloud, _, (_, _, c) = scene
    keeper = Speaker(cloud, "host3")
    keeper.register(CopyReport(c, 1, "off", True))
    assert keeper.returned(adopted=[(c, 2, False)])
    assert cloud.server(c)["vm_state"] == "active", "another copy's power says nothing"
    keeper.register(CopyReport(c, 1, "off", True))
    assert keeper.returned(adopted=[(c, 1, False)])
    assert cloud.server(c)["vm_state"] == "stopped"


def test_of_its_own_server_a_host_says_why_it_could_not_be_started(scene):
    cloud, _, (_, _, c) = scene
    keeper = Speaker(cloud, "host3")
    keeper.register(CopyReport(c, 1, "off", True))
    assert keeper.returned(adopted=[(c, 1, False)], failed=[(c, 1, "no space left")])
    assert cloud.server(c)["vm_state"] == "stopped"
    (fault,) = [row for row in cloud.records().table("faults") if row["server_id"] == c]
    assert fault["details"] == "host3 could not start it when it returned: no space left"


def test_a_debt_is_paid_by_the_host_that_owes_it_alone(scene):
    cloud, liar, (_, b, _) = scene
    liar.join(destroyed=[(b, 1)])
    assert [debt["server_id"] for debt in cloud.records().table("debts")] == [b]
    debtor = Speaker(cloud, "host1")
    debtor.register()
    debtor.returned(destroyed=[(b, 1)])
    assert cloud.records().table("debts") == []


def inventory(**other):
    return msgspec.structs.replace(INVENTORY, **other)


def numbers(total, reserved=0, ratio=1.0, name="VCPU"):
    return inventory(classes={**INVENTORY.classes, name: (total, reserved, ratio)})


def cells(*given):
    return inventory(hardware=HostHardware(cells=given))


def cell(number=0, shared=(0, 1), dedicated=(), memory_mb=1024, pages=()):
    return HostCell(id=number, shared=shared, dedicated=dedicated, cores=(), memory_mb=memory_mb, pages=pages)


ABSURD = {
    "a negative amount": numbers(-1),
    "an enormous amount": numbers(2**31),
    "more than any column holds": numbers(2**70),
    "negative reserve": numbers(8, -1),
    "more reserved than there is": numbers(8, 9),
    "no ratio": numbers(8, 0, 0.0),
    "a negative ratio": numbers(8, 0, -1.0),
    "an enormous ratio": numbers(8, 0, 1e300),
    "no number as ratio": numbers(8, 0, math.nan),
    "an endless ratio": numbers(8, 0, math.inf),
    "an unknown class": numbers(8, name="MAGIC"),
    "a class in small letters": numbers(8, name="CUSTOM_magic"),
    "a class without a name": numbers(8, name=""),
    "too many classes": inventory(classes={f"CUSTOM_{n}": (1, 0, 1.0) for n in range(report_bounds.MOST_CLASSES + 1)}),
    "an unknown trait": inventory(traits=["MAGIC"]),
    "a custom trait that nobody made": inventory(traits=["CUSTOM_MAGIC"]),
    "too many traits": inventory(traits=["CUSTOM_A"] * (report_bounds.MOST_TRAITS + 1)),
    "a hypervisor of no version": inventory(hypervisor=Hypervisor(version=-1)),
    "a metric that is no number": inventory(hypervisor=Hypervisor(metrics={"cpu": math.nan})),
    "a CPU of a negative number": cells(cell(shared=(-1,))),
    "a CPU of an enormous number": cells(cell(shared=(2**40,))),
    "a CPU twice": cells(cell(0), cell(1)),
    "a NUMA cell twice": cells(cell(0), cell(0, shared=(2,))),
    "negative memory": cells(cell(memory_mb=-1)),
    "enormous pages": cells(cell(pages=(Pages(4, 2**70),))),
}


@pytest.mark.parametrize("what", ABSURD)
def test_an_absurd_inventory_is_refused_and_changes_nothing(scene, what):
    cloud, _, _ = scene
    before = [cloud.records().table(name) for name in ("inventories", "resource_classes", "traits", "host_hardware")]
    # not over the bus: JSON has no NaN, but another codec may
    message = Speaker(cloud, "host2").message(inventory=ABSURD[what])
    answer = cloud.do(lambda engine: report_bounds.report_error(message, engine.world.db.placement))
    assert answer.startswith("host host2: "), answer
    assert before == [
        cloud.records().table(name) for name in ("inventories", "resource_classes", "traits", "host_hardware")
    ]


def test_an_absurd_inventory_ends_the_agent_with_the_reason(scene):
    cloud, liar, _ = scene
    before = cloud.records().table("inventories")
    answer = liar.register(inventory=numbers(2**31))
    assert answer.refused == "host host2: reports 2147483648 VCPU; 0 to 2147483647 are taken"
    assert answer.epoch == 0 and answer.verdicts == []
    assert cloud.records().table("inventories") == before


@pytest.mark.parametrize(
    "copies",
    [
        [CopyReport("x", 0, "on", True)],
        [CopyReport("x", -1, "on", True)],
        [CopyReport("x", 2**63, "on", True)],
        [CopyReport("", 1, "on", True)],
        [CopyReport("x" * 65, 1, "on", True)],
        [CopyReport("x\n", 1, "on", True)],
        [CopyReport("x", 1, "maybe", True)],
        [CopyReport("x", 1, "on", True), CopyReport("x", 1, "off", True)],
        [CopyReport("x", number, "on", True) for number in range(1, report_bounds.MOST_COPIES + 2)],
    ],
    ids=lambda copies: str(copies[0])[11:40] if len(copies) < 3 else "too many",
)
def test_absurd_copies_are_refused(scene, copies):
    cloud, liar, _ = scene
    assert liar.register(*copies).refused.startswith("host host2: reports ")
    assert cloud.records().table("quarantine") == []


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "-a", "a-", ".a", "a/b", "a\nb", "a*", "ä", "..", "a" * 201, "a;b", ">"]
)
def test_a_host_name_has_a_form(scene, name):
    cloud, liar, _ = scene
    liar.host = name
    refusal = liar.register().refused
    assert "host name" in refusal
    assert sorted(host["name"] for host in cloud.records().table("hosts")) == ["host1", "host2", "host3"]
    assert sorted(host["host"] for host in cloud.records().table("host_mappings")) == ["host1", "host2", "host3"]


@pytest.mark.parametrize("name", ["a", "host1", "compute-1.example.org", "A_1", "10.0.0.1", "a" * 200])
def test_usual_host_names_are_fine(name):
    assert host_name_error(name) == ""


def test_an_error_of_a_newer_agent_is_understood(cloud):
    """And a result or an error that nobody can read fails its step; it does not hang."""
    cloud = cloud(hosts=2)
    speaker = Speaker(cloud, "host1").join()
    for error in ({"code": "x", "message": "no", "news": [1]}, {"nothing": "of that"}, {"code": 1, "message": 2}):
        _, operation = cloud.make(host="host1")
        (order,) = speaker.beat().steps
        assert speaker.finish(order, result=None, error=error)
        cloud.loop.run_for(5.0)
        for undo in speaker.beat().steps:
            assert speaker.finish(undo)
        cloud.loop.run_for(5.0)
        assert cloud.operation(operation)["state"] in ("undone", "failed")


def test_a_result_that_cannot_be_read_fails_its_step(cloud):
    cloud = cloud(hosts=2)
    speaker = Speaker(cloud, "host1").join()
    _, operation = cloud.make(host="host1")
    (order,) = speaker.beat().steps
    assert speaker.finish(order, result={"disk": "created", "claim": {"cells": "many"}})
    cloud.loop.run_for(5.0)
    (undo,) = speaker.beat().steps
    assert (undo.name, undo.way) == (order.name, "undo")
    assert speaker.finish(undo)
    cloud.loop.run_for(5.0)
    failed = next(r for r in cloud.records().table("steps") if r["operation_id"] == operation and r["error"])
    assert "bad_report" in failed["error"] and "cannot be read" in failed["error"]


def test_an_inventory_at_the_bounds_is_fine(scene):
    _, liar, _ = scene
    assert liar.register(inventory=numbers(2**31 - 1, 0, 10_000.0)).refused == ""
    assert liar.register(inventory=HostInventory({})).refused == ""
