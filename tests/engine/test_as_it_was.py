"""What a server is, has and claims stays so through every operation that does not change it."""

import msgspec
import pytest

from kilonova.domain.server import POWER_SHUTDOWN, STOPPED
from kilonova.hosts.states import declare_down
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.flavors import HEAVY, SMALL

COURSES = [["migrate"], ["migrate", "confirm_resize"], ["migrate", "revert_resize"], ["rebuild"], ["evacuate"]]


def submit(cloud, kind, server):
    if kind == "evacuate":
        host = cloud.server(server)["host"]
        cloud.kill(host)
        cloud.hardware.switch_power(host, False)
        cloud.do(lambda engine: declare_down(engine, host))
    cloud.submit(kind, server, **({"image": "other"} if kind == "rebuild" else {}))
    cloud.loop.run_for(60.0)


@pytest.mark.parametrize("course", COURSES, ids=[" ".join(course) for course in COURSES])
def test_a_stopped_server_stays_off(cloud, course):
    cloud = cloud(hosts=2)
    server, _ = cloud.make()
    cloud.submit("stop", server)
    cloud.loop.run_for(20.0)
    for kind in course:
        submit(cloud, kind, server)
    row = cloud.server(server)
    assert row["vm_state"] == ("resized" if course == ["migrate"] else STOPPED)
    assert row["power_state"] == POWER_SHUTDOWN and cloud.hardware.running(server) == []
    assert check(cloud, at_rest="evacuate" not in course) == []


@pytest.mark.parametrize("flavor", [SMALL, HEAVY], ids=["its flavor", "more than its flavor"])
@pytest.mark.parametrize("course", COURSES, ids=[" ".join(course) for course in COURSES])
def test_what_a_server_claims_goes_with_it(cloud, course, flavor):
    """Also where that is not just its flavor on its host: the record says what it is."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(flavor=flavor)
    for kind in course:
        submit(cloud, kind, server)
    held = cloud.records().held[server]
    here = cloud.server(server)["host"]
    assert held[here, ""]["VCPU"] == (2 if flavor is HEAVY else 1)
    assert check(cloud, at_rest="evacuate" not in course) == []


def test_a_volume_that_was_never_attached_stays_when_its_server_is_deleted(cloud):
    """It was to go with the server; but the delete came before the server had it, so it is its owner's as before."""
    cloud = cloud(hosts=1, volumes=1)
    server, _ = cloud.make()
    volume = cloud.stock.volumes[0]
    cloud.kill("conductor1")
    cloud.submit("attach_volume", server, id="bdm", volume_id=volume, delete_on_termination=True)
    cloud.submit("delete", server)
    cloud.start("conductor1")
    cloud.loop.run_for(60.0)
    assert cloud.server(server)["deleted"]
    assert {row["id"]: row["status"] for row in cloud.records().table("volumes")}[volume] == "available"
    assert check(cloud) == []


@pytest.mark.parametrize("attached", [True, False])
def test_a_host_that_returns_gives_its_guest_the_volumes_it_shall_have(cloud, attached):
    """Its volume was connected anew, or forced off, while the host was away."""
    cloud = cloud(hosts=1, volumes=1)
    volume = cloud.stock.volumes[0]
    server, _ = cloud.make(volumes=[{"volume_id": volume}])
    (guest,) = cloud.hardware.host("host1").guests.values()
    was = guest.spec
    cloud.kill("host1")
    cloud.hardware.switch_power("host1", False)
    guest.spec = msgspec.structs.replace(was, volumes=[] if attached else [*was.volumes, *was.volumes])
    cloud.hardware.switch_power("host1", True)
    cloud.start("host1")
    cloud.loop.run_for(60.0)
    (guest,) = cloud.hardware.host("host1").guests.values()
    assert [one.attachment for one in guest.spec.volumes] == [one.attachment for one in was.volumes]
    assert cloud.hardware.running(server) == [("host1", 1)] and check(cloud) == []
