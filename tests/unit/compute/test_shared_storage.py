"""Disks that several hosts see: adopted, locked while open, kept while anyone holds them."""

import pytest

from kilonova.domain.errors import Failed
from tests.unit.compute.simulated_cloud import Cloud, spec


def move_by_adoption(cloud: Cloud, to: str = "host2", copy: int = 2, adopt: int = 1) -> str:
    return cloud.ask(cloud.drivers[to].ensure_disk(spec(copy=copy), adopt=adopt))


def test_a_disk_in_sight_is_adopted_with_what_is_on_it(shared: Cloud) -> None:
    shared.boot("host1")
    shared.hardware.write("s1", "note")
    shared.hardware.switch_power("host1", on=False)
    assert move_by_adoption(shared) == "adopted"
    assert move_by_adoption(shared) == "kept"
    shared.boot("host2", copy=2)
    assert shared.hardware.read("s1") == "image:cirros+note"


def test_a_disk_out_of_sight_is_made_anew(cloud: Cloud) -> None:
    cloud.boot("host1")
    cloud.hardware.write("s1", "note")
    assert move_by_adoption(cloud) == "created"
    assert cloud.hardware.survey("s1")[-1].marker == "image:cirros"


def test_two_shared_storages_do_not_see_each_other(shared: Cloud) -> None:
    from kilonova.compute.drivers.simulated.driver import SimulatedDriver

    shared.hardware.add_host("far", shared_storage="nfs2")
    shared.drivers["far"] = SimulatedDriver(shared.hardware, "far")
    shared.boot("host1")
    assert move_by_adoption(shared, to="far") == "created"


def test_half_a_disk_is_not_adopted(shared: Cloud) -> None:
    shared.hardware.fail("host1", "ensure_disk", how="crash")
    shared.loop.create_task(shared.drivers["host1"].ensure_disk(spec()))
    shared.loop.run_for(1)
    assert move_by_adoption(shared) == "created"


def test_half_a_disk_of_its_own_does_not_keep_a_copy_from_adopting(shared: Cloud) -> None:
    shared.hardware.fail("host1", "ensure_disk", how="crash")
    shared.loop.create_task(shared.drivers["host1"].ensure_disk(spec(copy=1)))
    shared.hardware.fail("host2", "ensure_disk", how="crash")
    shared.loop.create_task(shared.drivers["host2"].ensure_disk(spec(copy=2), adopt=1))
    shared.loop.run_for(1)
    shared.boot("host1", copy=1)
    shared.hardware.write("s1", "note")
    assert move_by_adoption(shared, to="host2") == "adopted"
    assert [found.marker for found in shared.hardware.survey()] == ["image:cirros+note"] * 2
    assert len(shared.hardware.storage.all()) == 1, "the half disk is gone"


def test_the_old_copy_goes_and_the_adopted_disk_stays(shared: Cloud) -> None:
    shared.boot("host1")
    move_by_adoption(shared)
    shared.ask(shared.drivers["host1"].ensure_absent("s1", 1))
    assert [(found.host, found.copy, found.marker) for found in shared.hardware.survey()] == [
        ("host2", 2, "image:cirros")
    ]
    shared.ask(shared.drivers["host2"].ensure_absent("s1", 2))
    assert shared.hardware.storage.all() == []


def test_an_adoption_undone_gives_the_disk_back(shared: Cloud) -> None:
    shared.boot("host1")
    move_by_adoption(shared)
    shared.ask(shared.drivers["host2"].ensure_absent("s1", 2))
    assert shared.hardware.read("s1") == "image:cirros"


def test_the_next_destination_adopts_under_the_same_number(shared: Cloud) -> None:
    """A second try of one operation elsewhere has the same copy number; cleaning the first must not harm it."""
    shared.boot("host1")
    shared.hardware.write("s1", "note")
    shared.hardware.switch_power("host1", on=False)
    assert move_by_adoption(shared, to="host2") == "adopted"
    assert move_by_adoption(shared, to="host3") == "kept"
    shared.boot("host3", copy=2)
    shared.ask(shared.drivers["host2"].ensure_absent("s1", 2))
    assert shared.hardware.read("s1") == "image:cirros+note"
    assert shared.hardware.running("s1") == [("host3", 2)]


def test_an_adopted_disk_is_found_by_its_old_number_and_by_its_new(shared: Cloud) -> None:
    shared.boot("host1")
    shared.ask(shared.drivers["host1"].ensure_power("s1", 1, on=False))
    move_by_adoption(shared, to="host2", copy=2)
    shared.ask(shared.drivers["host1"].ensure_absent("s1", 1))
    assert move_by_adoption(shared, to="host3", copy=3, adopt=1) == "adopted"
    shared.ask(shared.drivers["host2"].ensure_absent("s1", 2))
    assert move_by_adoption(shared, to="host1", copy=4, adopt=2) == "adopted"


def test_a_disk_that_is_open_cannot_be_opened_elsewhere(shared: Cloud) -> None:
    shared.boot("host1")
    move_by_adoption(shared)
    with pytest.raises(Failed, match="disk is in use: copy 1 of server s1 runs on host1"):
        shared.boot("host2", copy=2)
    assert shared.hardware.running("s1") == [("host1", 1)]
    shared.ask(shared.drivers["host1"].ensure_power("s1", 1, on=False))
    shared.boot("host2", copy=2)
    with pytest.raises(Failed, match="disk is in use: copy 2"):
        shared.ask(shared.drivers["host1"].ensure_power("s1", 1, on=True))


def test_a_dead_host_has_no_disk_open(shared: Cloud) -> None:
    shared.boot("host1")
    move_by_adoption(shared)
    shared.hardware.switch_power("host1", on=False)
    shared.boot("host2", copy=2)
    assert shared.hardware.running("s1") == [("host2", 2)]


def test_the_same_host_may_adopt_its_own_local_disk(cloud: Cloud) -> None:
    cloud.boot("host1")
    assert move_by_adoption(cloud, to="host1") == "adopted"


def test_sending_on_shared_storage_is_quick_and_makes_a_disk_of_its_own() -> None:
    cloud = Cloud(shared_storage="nfs1", copy_seconds=100)
    cloud.ask(cloud.drivers["host1"].ensure_disk(spec()))
    before = cloud.loop.time()
    cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2))
    assert cloud.loop.time() == before
    cloud.ask(cloud.drivers["host1"].ensure_absent("s1", 1))
    cloud.boot("host2", copy=2)
    cloud.close()


def test_the_faster_of_two_makers_wins_and_the_slower_keeps_its_work() -> None:
    """Host1 hangs in the middle, host2 completes the same disk and its guest writes: host1 must not start over."""
    cloud = Cloud(shared_storage="nfs1", copy_seconds=10)
    slow = cloud.loop.create_task(cloud.drivers["host1"].ensure_disk(spec()))
    cloud.loop.run_for(1)
    cloud.hardware.host("host2").copy_seconds = 1
    cloud.boot("host2")
    cloud.hardware.write("s1", "note")
    assert cloud.ask(slow) == "kept"
    assert cloud.hardware.read("s1") == "image:cirros+note"
    cloud.close()
