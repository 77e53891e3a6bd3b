"""A move that was finished before the backup, and confirmed or reverted since: no only copy is removed (law 15)."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.rehearse import rehearse
from kilonova.hosts.states import declare_down
from kilonova.settings import Default
from kilonova.sim.lab.settings import simulated
from tests.engine.test_restored_soft_deleted import BOTH, act, differences, put_back


def moved(cloud):
    """Finished, neither confirmed nor reverted."""
    server, _ = cloud.make(host="host1")
    act(cloud, "migrate", server)
    assert cloud.server(server)["vm_state"] == "resized"
    return server


@BOTH
def test_one_that_was_confirmed_since_cannot_be_reverted(cloud, names):
    lab = cloud(hosts=2)
    server = moved(lab)
    backup = lab.back_up()
    act(lab, "confirm_resize", server)
    put_back(lab, backup, names)
    assert lab.server(server)["vm_state"] == "resized"
    with pytest.raises(Refused, match="its old copy is gone; confirm"):
        lab.submit("revert_resize", server)
    assert [(one.host, one.whole) for one in lab.hardware.survey(server)] == [("host2", True)]
    act(lab, "confirm_resize", server)
    assert lab.server(server)["vm_state"] == "active"
    assert lab.hardware.running(server) == [("host2", 2)]
    assert differences(lab) == ([], [])


def test_nothing_is_reverted_before_the_source_has_reported(cloud):
    lab = cloud(hosts=2)
    server = moved(lab)
    backup = lab.back_up()
    act(lab, "confirm_resize", server)
    put_back(lab, backup, ("cell1",), silent="host1")
    with pytest.raises(Refused, match="host1 has not reported its guests since"):
        lab.submit("revert_resize", server)
    ask = Ask(kind="revert_resize", server_id=server, cause=lab.cause())
    with pytest.raises(Refused, match="host1 has not reported its guests since"):  # a dry run says so, too
        lab.do(lambda engine: rehearse(engine, engine.world.db.cell("cell1"), ask))
    lab.start_all()
    lab.loop.run_for(70.0)
    with pytest.raises(Refused, match="its old copy is gone"):
        lab.submit("revert_resize", server)


def test_nothing_is_confirmed_before_the_destination_has_reported(cloud):
    lab = cloud(hosts=2)
    server = moved(lab)
    backup = lab.back_up()
    act(lab, "revert_resize", server)
    act(lab, "stop", server)
    put_back(lab, backup, ("cell1",), silent="host2")
    with pytest.raises(Refused, match=r"host2 has not reported since|does not answer"):
        lab.submit("confirm_resize", server)
    lab.start_all()
    lab.loop.run_for(70.0)
    assert lab.server(server)["vm_state"] == "error"
    assert [(one.host, one.copy, one.whole) for one in lab.hardware.survey(server)] == [("host1", 1, True)]


@BOTH
def test_the_newest_copy_is_not_removed_by_a_confirm_that_nobody_asked_for(cloud, names):
    """Reverted since the backup while the destination was down, which still has its copy; then the source died, too."""
    lab = cloud(hosts=2, settings=simulated(default=Default(resize_confirm_window=400)))
    server = moved(lab)
    backup = lab.back_up()
    lab.hardware.switch_power("host2", False)
    lab.do(lambda engine: declare_down(engine, "host2"))
    act(lab, "revert_resize", server)
    lab.loop.run_for(60.0)
    assert lab.server(server)["runner_host"] == "host1"
    act(lab, "stop", server)
    for name in ("api", "conductor1"):
        lab.kill(name)
    lab.hardware.switch_power("host2", True)
    put_back(lab, backup, names)
    lab.loop.run_for(1000.0)
    assert lab.server(server)["vm_state"] == "resized"
    assert ("host1", 1, True) in [(one.host, one.copy, one.whole) for one in lab.hardware.survey(server)]
    act(lab, "confirm_resize", server)
    assert lab.server(server)["vm_state"] in ("active", "stopped"), "its owner may say so"


def test_a_move_of_now_is_confirmed_after_its_window(cloud):
    lab = cloud(hosts=2, settings=simulated(default=Default(resize_confirm_window=400)))
    server, _ = lab.make(host="host1")
    put_back(lab, lab.back_up(), ("cell1",))
    act(lab, "migrate", server)
    assert lab.server(server)["vm_state"] == "resized"
    lab.loop.run_for(600.0)
    assert lab.server(server)["vm_state"] == "active"


@pytest.mark.parametrize("since", ["nothing", "reverted", "moved away"])
def test_a_revert_that_had_given_the_source_its_permission_back(cloud, since):
    """It ends there: the server is what it was before the move, and nothing waits for a confirm or revert any more."""
    lab = cloud(hosts=3, boot_seconds=60.0)
    server, _ = lab.make(host="host1", wait=200.0)
    lab.submit("migrate", server, host="host2")
    lab.loop.run_for(200.0)
    lab.submit("revert_resize", server)
    lab.loop.run_for(30.0)
    (move,) = lab.records().table("migrations")
    assert (move["status"], move["open"], lab.server(server)["runner_host"]) == ("reverted", 1, "host1")
    backup = lab.back_up()
    if since != "nothing":
        lab.loop.run_for(300.0)
    if since == "moved away":
        lab.submit("migrate", server, host="host3")
        lab.loop.run_for(300.0)
        lab.submit("confirm_resize", server)
        lab.loop.run_for(60.0)
    put_back(lab, backup, ("cell1",))
    (move,) = lab.records().table("migrations")
    assert (move["status"], move["open"]) == ("reverted", 0)
    state = lab.server(server)["vm_state"]
    assert state == "error" if since == "moved away" else state in ("active", "stopped")
    assert any(one.whole for one in lab.hardware.survey(server))


@pytest.mark.parametrize("kind", ["migrate", "evacuate"])
def test_one_that_was_under_way_is_closed(cloud, kind):
    """Nobody goes on with it: it is neither confirmed nor reverted, and the server can be moved again."""
    lab = cloud(hosts=3, copy_seconds=20.0)
    server, _ = lab.make(host="host1")
    if kind == "evacuate":
        lab.kill("host1")
        lab.do(lambda engine: declare_down(engine, "host1"))
    lab.submit(kind, server)
    lab.loop.run_for(5.0)
    assert [row["open"] for row in lab.records().table("migrations")] == [1]
    put_back(lab, lab.back_up(), ("cell1",))
    assert [(row["status"], row["open"]) for row in lab.records().table("migrations")] == [("error", 0)]
