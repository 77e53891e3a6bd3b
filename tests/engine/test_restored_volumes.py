"""A volume that goes with its server by restored records is kept (law 15)."""

import msgspec
import pytest

from kilonova.domain.params import ServerSpec
from kilonova.domain.volume import server_volumes
from kilonova.engine.restored import begin_era
from tests.engine.test_restored_soft_deleted import BOTH, act, put_back


@pytest.fixture
def lab(cloud):
    return cloud(hosts=2, volumes=2)


def attach(cloud, server, volume):
    cloud.submit("attach_volume", server, id=f"bdm of {server}", volume_id=volume, delete_on_termination=True)
    cloud.loop.run_for(20.0)


def bytes_of(cloud, volume):
    return f"volume-{volume}" in cloud.files.sizes


@BOTH
@pytest.mark.parametrize("since", ["detached", "attached elsewhere"])
def test_it_may_be_in_use_elsewhere_since_the_backup(lab, names, since):
    server, _ = lab.make(host="host1")
    other, _ = lab.make("b", host="host1")
    volume = lab.stock.volumes[0]
    attach(lab, server, volume)
    backup = lab.back_up()
    lab.submit("detach_volume", server, volume_id=volume)
    lab.loop.run_for(20.0)
    if since == "attached elsewhere":
        attach(lab, other, volume)
    put_back(lab, backup, names)
    act(lab, "delete", server)
    lab.loop.run_for(60.0)
    assert lab.server(server)["deleted"]
    assert bytes_of(lab, volume), "its owner has it, whatever the old record of the server says"


def test_one_that_was_attached_since_the_restore_goes_with_its_server(lab):
    server, _ = lab.make(host="host1")
    volume = lab.stock.volumes[0]
    put_back(lab, lab.back_up(), ("cell1",))
    attach(lab, server, volume)
    act(lab, "delete", server)
    lab.loop.run_for(60.0)
    assert not bytes_of(lab, volume)


def test_each_is_listed(lab):
    server, _ = lab.make(host="host1")
    attach(lab, server, lab.stock.volumes[0])
    for name in list(lab.roles):
        lab.kill(name)
    kept = [one.volume_sentences for one in lab.alone(begin_era, "a new era", faulty=False)]
    (sentence,) = [sentence for sentences in kept for sentence in sentences]
    text = f"volume {lab.stock.volumes[0]}: went with server {server} by the old records; it is kept"
    assert sentence.startswith(text)
    assert not any(one.volume_sentences for one in lab.alone(begin_era, "a new era", faulty=False))
    (volume,) = server_volumes(lab.server(server)["volume_info"])
    assert volume.attachment_id and not volume.delete_on_termination


def test_one_that_was_made_for_a_server_that_was_being_built(cloud):
    """Only control knows yet that it goes with the server; the request is kept for when it is built again."""
    lab = cloud(hosts=1, volumes=1, boot_seconds=200.0)
    wanted = [{"size": 1, "device": "/dev/vdb", "delete_on_termination": True}]
    server, _ = lab.make(volumes=wanted, wait=30.0)
    (volume,) = [row["id"] for row in lab.records().table("volumes") if row["created_for"] == server]
    put_back(lab, lab.back_up(), ("cell1",))
    (document,) = [row["spec"] for row in lab.records().table("request_specs") if row["server_id"] == server]
    spec = msgspec.json.decode(document, type=ServerSpec)
    assert [one.delete_on_termination for one in spec.volumes] == [False]
    act(lab, "delete", server)
    lab.loop.run_for(60.0)
    assert lab.server(server)["deleted"] and bytes_of(lab, volume)
