"""A volume that goes with its server by restored records is kept (law 15)."""

import msgspec
import pytest

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import to_json
from kilonova.domain.volume import WantedVolume, server_volumes
from kilonova.engine.restored import begin_era
from kilonova.engine.restored_volumes import keep_volumes_in_control
from kilonova.schema.tables.control import request_specs
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.store import rows
from tests.engine.rows_of_one import play
from tests.engine.test_restored import SMALL
from tests.engine.test_restored_soft_deleted import BOTH, act, put_back
from tests.support.neighbours import zeros


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


def test_each_volume_that_went_with_a_server_is_named_once(tmp_path):
    """Also of a server that is still being built, and of none; the volumes stay with the requests."""

    async def body(tx):
        created = {"a": ("s", 1), "b": (None, 1), "c": ("s", 0)}
        for name, (server, goes) in created.items():
            await rows.put(tx, volumes, **zeros(volumes, id=name, created_for=server, goes_with_server=goes))
        attached = {"a": ("s", 1), "d": ("t", 1), "e": ("t", 0)}
        for name, (server, goes) in attached.items():
            of = {"id": f"of {name}", "volume_id": name, "server_id": server, "goes_with_server": goes}
            await rows.put(tx, attachments, **zeros(attachments, **of))
        for name, goes in (("both", (True, True)), ("one", (False, True)), ("none", (False,))):
            wanted = [WantedVolume(volume_id=str(n), delete_on_termination=one) for n, one in enumerate(goes)]
            spec = ServerSpec(project_id="p", user_id="u", created_at=1.0, name=name, flavor=SMALL, volumes=wanted)
            await rows.put(tx, request_specs, server_id=name, spec=to_json(spec))
        kept = [sentence.partition(" by the old records")[0] for sentence in await keep_volumes_in_control(tx)]
        went = {"a": "server s", "b": "server ", "d": "server t"}
        assert kept == [f"volume {name}: went with {server}" for name, server in went.items()]
        for table in (volumes, attachments):
            assert await rows.fetch_all(tx, table, goes_with_server=1) == []
        for row in await rows.fetch_all(tx, request_specs):
            assert "delete_on_termination" not in row["spec"] and f'"name":"{row["server_id"]}"' in row["spec"]
        assert await keep_volumes_in_control(tx) == [], "it may be repeated"

    play(tmp_path, body, "control")
