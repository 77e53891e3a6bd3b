"""A step that waits says when it looks again, and is looked at then: not at the next look for work, seconds later."""

from kilonova.settings import ConductorOptions
from kilonova.sim.lab.settings import simulated


def test_a_server_with_a_new_volume_waits_no_longer_than_for_the_volume(cloud):
    lab = cloud(hosts=1, volumes=1, boot_seconds=0.5, settings=simulated(conductor=ConductorOptions(poll_seconds=60.0)))
    server, _ = lab.make(volumes=[{"size": 1, "device": "/dev/vdb"}], wait=5.0)
    assert lab.server(server)["vm_state"] == "active"
