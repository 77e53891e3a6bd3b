"""A dry run says beforehand what happens: the fate of each disk, the proof of death, what is claimed and what is left.
Nothing is stored by it."""

from collections import Counter

import msgspec
import pytest

from kilonova.domain.server import Flavor
from kilonova.engine.accept import Ask
from kilonova.engine.rehearse import rehearse
from kilonova.hosts import states as hosts
from kilonova.operations.whole_hosts.declare_gone import declare_gone, rehearse_gone
from kilonova.operations.whole_hosts.rehearse import rehearse_host
from kilonova.operations.whole_hosts.requests import Bulk
from kilonova.settings import Default
from kilonova.sim.lab.flavors import ROOMY
from kilonova.sim.lab.settings import simulated
from tests.engine.conftest import SMALL

HELD = {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}


def silent(cloud):
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(70.0)


def declared(cloud):
    cloud.hardware.switch_power("host1", False)
    cloud.do(lambda engine: hosts.declare_down(engine, "host1"))


def fenced(cloud):
    cloud.do(lambda engine: hosts.fence(engine, "host1"))


DEATHS = {"silence": silent, "forced_down": declared, "fence": fenced}


def outlook(cloud, kind, server, **params):
    ask = Ask(kind=kind, server_id=server, cause=cloud.cause(), params=params)
    return cloud.do(lambda engine: rehearse(engine, engine.world.db.cell("cell1"), ask)).outlook


def stored(cloud):
    """All journals, servers, copies and claims."""
    records = cloud.records()
    return [records.table(name) for name in ("operations", "servers", "copies", "migrations")], records.held


@pytest.mark.parametrize("proven_by", DEATHS)
@pytest.mark.parametrize("storage", ["", "pool"], ids=["local", "shared"])
def test_evacuate(cloud, proven_by, storage):
    cloud = cloud(hosts=2, shared_storage=storage, volumes=1)
    volume = {"volume_id": cloud.stock.volumes[0], "device": "/dev/vdb"}
    server, _ = cloud.make(host="host1", volumes=[volume])
    cloud.hardware.write(server, "mine")
    DEATHS[proven_by](cloud)
    before = stored(cloud)
    plan = outlook(cloud, "evacuate", server)
    assert stored(cloud) == before
    root, data = plan["disks"]
    lost = {"disk": "root", "fate": "re-created", "from_image": "img"}
    assert root == ({"disk": "root", "fate": "kept"} if storage else lost)
    assert data == {"disk": "/dev/vdb", "fate": "kept", "volume": volume["volume_id"]}
    assert plan["proven_by"] == proven_by and plan["proof"].startswith("host1 ")
    assert (plan["host"], plan["ends"], plan["claims"]) == ("host2", "active", {"host2": HELD})
    assert plan["left"] == [{"host": "host1", "copies": [1], "claims": {"host1": HELD}}]
    cloud.submit("evacuate", server)
    cloud.loop.run_for(30.0)
    (new,) = [one for one in cloud.hardware.survey(server) if one.host == "host2"]
    assert ("mine" in new.marker) == (root["fate"] == "kept")
    held = cloud.records().held[server]
    assert {provider for provider, _ in held} == {*plan["claims"], *plan["left"][0]["claims"]}


def test_evacuate_what_boots_from_a_volume(cloud):
    cloud = cloud(hosts=2, volumes=1)
    server, _ = cloud.make(host="host1", volumes=[{"volume_id": cloud.stock.volumes[0], "is_root": True}])
    silent(cloud)
    assert [disk["fate"] for disk in outlook(cloud, "evacuate", server, stopped=True)["disks"]] == ["kept"]
    assert outlook(cloud, "evacuate", server, stopped=True)["ends"] == "stopped"


def test_evacuate_where_no_host_fits(cloud):
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.do(lambda engine: hosts.disable(engine, "host2"))
    silent(cloud)
    plan = outlook(cloud, "evacuate", server)
    assert (plan["host"], plan["disks"], plan["claims"]) == (None, [], {})
    assert [left["host"] for left in plan["left"]] == ["host1"]


def test_rebuild(cloud):
    cloud = cloud(hosts=2, volumes=1)
    server, _ = cloud.make(host="host1", volumes=[{"volume_id": cloud.stock.volumes[0], "device": "/dev/vdb"}])
    before = stored(cloud)
    plan = outlook(cloud, "rebuild", server, image="other")
    assert stored(cloud) == before
    assert [(disk["disk"], disk["fate"]) for disk in plan["disks"]] == [("root", "re-created"), ("/dev/vdb", "kept")]
    assert (plan["claims"], plan["left"], plan["host"], plan["ends"]) == ({}, [], "host1", "active")
    held = cloud.records().held
    cloud.submit("rebuild", server, image="other")
    cloud.loop.run_for(30.0)
    (only,) = cloud.hardware.survey(server)
    assert only.marker == "image:other" and cloud.records().held == held, "nothing is claimed and nothing is left"


@pytest.mark.parametrize("reimage", [False, True])
def test_rebuild_what_boots_from_a_volume(cloud, reimage):
    cloud = cloud(hosts=2, volumes=1)
    server, _ = cloud.make(host="host1", volumes=[{"volume_id": cloud.stock.volumes[0], "is_root": True}])
    (disk,) = outlook(cloud, "rebuild_volume", server, image="another", reimage=reimage)["disks"]
    assert (disk["fate"], disk.get("from_image")) == (("re-created", "another") if reimage else ("kept", None))


@pytest.mark.parametrize("proven_by", DEATHS)
def test_a_whole_host_and_then_host_gone(cloud, proven_by):
    cloud = cloud(hosts=3)
    server, _ = cloud.make("a", host="host1")
    moved, _ = cloud.make("b", host="host1")
    came, _ = cloud.make("c", host="host3")
    cloud.submit("migrate", moved, host="host2")
    cloud.submit("migrate", came, host="host1")
    cloud.loop.run_for(20.0)
    DEATHS[proven_by](cloud)
    plan = cloud.do(lambda engine: rehearse_host(engine, "evacuate_host", ["host1"], Bulk(), cloud.cause()))
    assert plan.hosts["host1"].proven_by == proven_by
    assert {move.server: move.disks[0]["fate"] for move in plan.moves} == {server: "re-created"}
    assert set(plan.refused) == {came}
    cloud.submit("evacuate", server, host="host2")
    cloud.loop.run_for(20.0)
    before = stored(cloud)
    plan = cloud.do(lambda engine: rehearse_gone(engine, "host1"))
    assert stored(cloud) == before
    assert plan.proven_by == proven_by and plan.proof.startswith("host1 ")
    assert (plan.reverts, plan.confirm_only, plan.claims) == ([came], [moved], {})
    assert {(one.server, one.fate) for one in plan.disks} == {(s, "lost") for s in (server, moved, came)}
    assert plan.settled == {"copies": 3, "debts": 1, "evacuations": 1} and plan.left == {"quarantined": 0}
    used = sum(sum(given.values()) for held in cloud.records().held.values() for given in held.values())

    async def gone(engine):
        journal, _ = await hosts.find_host(engine, "host1")
        return await declare_gone(engine, journal, "host1", "fire", cloud.cause())

    accepted = cloud.do(gone)
    cloud.loop.run_for(30.0)
    assert cloud.operation(accepted.operation_id)["state"] == "done"
    records = cloud.records()
    after = sum(sum(given.values()) for held in records.held.values() for given in held.values())
    each = sum(SMALL.resources().values())
    assert used - after == 3 * each, "the shares of the evacuation, of the source and of the destination on host1"
    assert [row for row in records.table("copies") if row["host"] == "host1"] == []


FORM = {"host", "ends", "disks", "claims", "left", "removed"}
LARGER = Flavor("larger", 2, 2048, 40, ephemeral_gb=8, swap_mb=1024)


def content(cloud, server):
    """What each disk of the copy that runs holds."""
    ((host, copy),) = cloud.hardware.running(server)
    disk = cloud.hardware.disk(cloud.hardware.host(host), server, copy)
    return {"root": disk.marker, **{name: one.marker for name, one in disk.others.items()}}


def write_to_all(cloud, server, text):
    for name in content(cloud, server):
        cloud.hardware.write(server, text, name=name)


def held(cloud):
    """By provider, of all consumers together."""
    total = Counter()
    for shares in cloud.records().held.values():
        for (provider, _), resources in shares.items():
            total.update({(provider, name): amount for name, amount in resources.items()})
    return +total


def amounts(*shares):
    total = Counter()
    for share in shares:
        for provider, resources in share.items():
            total.update({(provider, name): amount for name, amount in resources.items()})
    return total


def claims_of(copies):
    return [one["claims"] for one in copies]


def follow(cloud, kind, server, **params):
    """The plan, once it has come true: host, state, claims and copies are as it says."""
    before, books = stored(cloud), held(cloud)
    plan = outlook(cloud, kind, server, **params)
    assert set(plan) == FORM and stored(cloud) == before
    cloud.submit(kind, server, **params)
    cloud.loop.run_for(60.0)
    row = cloud.server(server)
    assert (row["host"], row["vm_state"]) == (plan["host"], plan["ends"])
    assert held(cloud) == +(books + amounts(plan["claims"]) - amounts(*claims_of(plan["removed"])))
    there = {(one.host, one.copy) for one in cloud.hardware.survey(server)}
    assert {(one["host"], copy) for one in plan["left"] for copy in one["copies"]} <= there
    assert not {(one["host"], copy) for one in plan["removed"] for copy in one["copies"]} & there
    return {disk["disk"]: disk["fate"] for disk in plan["disks"]}


@pytest.mark.parametrize(("kind", "params"), [("migrate", {}), ("resize", {"flavor": msgspec.to_builtins(LARGER)})])
@pytest.mark.parametrize("ending", ["confirm_resize", "revert_resize", "delete"])
def test_a_move_and_its_end(cloud, kind, params, ending):
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1", flavor=ROOMY)
    write_to_all(cloud, server, "before")
    assert follow(cloud, kind, server, **params) == {"root": "kept", "ephemeral0": "kept", "swap": "re-created"}
    assert {name: "before" in text for name, text in content(cloud, server).items()} == {
        "root": True,
        "ephemeral0": True,
        "swap": False,
    }
    write_to_all(cloud, server, "since")
    fates = follow(cloud, ending, server)
    expected = {"confirm_resize": "kept", "revert_resize": "reverted", "delete": "lost"}[ending]
    assert fates == dict.fromkeys(("root", "ephemeral0", "swap"), expected)
    if ending != "delete":
        texts = content(cloud, server).values()
        assert {("before" in text or "since" in text, "since" in text) for text in texts} == {
            (True, expected == "kept")
        }


def test_delete_takes_only_the_volumes_that_go_with_the_server(cloud):
    cloud = cloud(hosts=1, volumes=2)
    goes, stays = (
        {"volume_id": volume, "device": device, "delete_on_termination": device == "/dev/vdb"}
        for volume, device in zip(cloud.stock.volumes, ("/dev/vdb", "/dev/vdc"), strict=True)
    )
    server, _ = cloud.make(host="host1", volumes=[goes, stays])
    assert follow(cloud, "delete", server) == {"root": "lost", "/dev/vdb": "lost", "/dev/vdc": "kept"}
    assert {row["id"] for row in cloud.records().table("volumes") if row["status"] == "available"} == {
        stays["volume_id"]
    }


def test_a_resize_to_its_own_host_keeps_both_copies_there(cloud):
    cloud = cloud(hosts=1, settings=simulated(default=Default(allow_resize_to_same_host=True)))
    server, _ = cloud.make(host="host1")
    plan = outlook(cloud, "resize", server, flavor=msgspec.to_builtins(LARGER))
    assert (plan["host"], plan["left"]) == ("host1", [{"host": "host1", "copies": [1], "claims": {"host1": HELD}}])
    assert [disk["fate"] for disk in plan["disks"]] == ["kept", "created", "created"]
    follow(cloud, "resize", server, flavor=msgspec.to_builtins(LARGER))
