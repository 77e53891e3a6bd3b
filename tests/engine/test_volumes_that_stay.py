"""A volume that was made for a server and should go with it stays if its owner has said so since."""

import msgspec
import pytest

from kilonova.domain.volume import server_volumes
from kilonova.operations.steps.volumes import record_volumes
from tests.engine.test_restored_soft_deleted import act
from tests.engine.test_restored_volumes import bytes_of


def nothing(cloud, server, volume):
    """It goes with its server."""


def told_to_stay(cloud, server, volume):
    """As the API does it: in the server's own record."""

    def become(there):
        return [msgspec.structs.replace(one, delete_on_termination=False) for one in there]

    cloud.do(lambda engine: engine.world.db.cell("cell1").write(lambda tx: record_volumes(tx, server, become)))


def detached(cloud, server, volume):
    cloud.submit("detach_volume", server, volume_id=volume)
    cloud.loop.run_for(20.0)


@pytest.mark.parametrize(("since", "stays"), [(nothing, False), (told_to_stay, True), (detached, True)])
def test_only_the_servers_record_says_what_goes_with_it(cloud, since, stays):
    cloud = cloud(hosts=1, volumes=1)
    server, _ = cloud.make(volumes=[{"size": 1, "device": "/dev/vdb", "delete_on_termination": True}], wait=30.0)
    (volume,) = [one.volume_id for one in server_volumes(cloud.server(server)["volume_info"])]
    assert cloud.server(server)["vm_state"] == "active" and bytes_of(cloud, volume)
    since(cloud, server, volume)
    act(cloud, "delete", server)
    cloud.loop.run_for(60.0)
    assert cloud.server(server)["deleted"] and bytes_of(cloud, volume) is stays
