"""The files of a host's plugged ports, as the next agent reads them."""

import msgspec
import pytest

from kilonova.compute.network.plugged import PluggedPort, PluggedPorts, plug
from kilonova.domain.host_network import HostPort, HostRouter, NetworkDocument
from tests.unit.compute.network.test_bridged import ONE, TWO

DOCUMENT = NetworkDocument(peers={"n": ["192.0.2.1"]}, routers=[HostRouter(router_id="r")])


def loaded(folder):
    ports = PluggedPorts(folder)
    ports.load()
    return ports


def test_what_is_kept_is_there_after_a_restart_until_it_is_dropped(tmp_path):
    folder = tmp_path / "host1" / "new"
    ports = loaded(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    one, two = (plug(None, ("server", 1), port) for port in (ONE, TWO))
    for record in (one, two):
        ports.keep(record)
    assert loaded(folder).records == {ONE.port_id: one, TWO.port_id: two} == ports.records
    later = plug(one, ("server", 2), msgspec.structs.replace(ONE, mtu=1400))
    ports.keep(later)
    assert loaded(folder).records[ONE.port_id] == later
    for _ in range(2):
        ports.drop(ONE.port_id)
    assert loaded(folder).records == {TWO.port_id: two} == ports.records


def test_a_record_that_is_the_same_is_not_written_again(tmp_path):
    ports = loaded(tmp_path)
    ports.keep(plug(None, ("server", 1), ONE))
    (path,) = tmp_path.iterdir()
    path.unlink()
    ports.keep(plug(None, ("server", 1), ONE))
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"server": 1}'])
def test_a_file_that_cannot_be_read_holds_up_no_other(tmp_path, content):
    ports = loaded(tmp_path)
    ports.keep(plug(None, ("server", 1), ONE))
    ports.keep_document(DOCUMENT)
    (tmp_path / "0-broken.json").write_bytes(content)
    (tmp_path / "document.json").write_bytes(content)
    again = loaded(tmp_path)
    assert set(again.records) == {ONE.port_id}
    assert again.load_document() == NetworkDocument()


def test_the_document_is_kept_without_its_ports(tmp_path):
    ports = loaded(tmp_path)
    assert ports.load_document() == NetworkDocument()
    ports.keep_document(msgspec.structs.replace(DOCUMENT, ports=[HostPort("server", ONE)]))
    assert loaded(tmp_path).load_document() == DOCUMENT and loaded(tmp_path).records == {}
    for _ in range(2):
        ports.keep_document(NetworkDocument(ports=[HostPort("server", ONE)]))
        assert not list(tmp_path.iterdir())


def test_the_copy_that_was_plugged_last_is_named():
    record = plug(None, ("server", 1), ONE)
    for user in (("server", 2), ("server", 1), ("other", 1)):
        record = plug(record, user, ONE)
    assert record.copies == [("server", 2), ("server", 1), ("other", 1)]
    assert (record.server, record.copy) == ("other", 1)
    left = record.without(("other", 1))
    assert left is not None and (left.server, left.copy, left.copies) == ("server", 1, record.copies[:2])
    assert record.without(("nobody", 1)) == record
    assert plug(None, ("server", 1), ONE).without(("server", 1)) is None
    old = PluggedPort(server="server", copy=3, port=ONE)
    assert old.copies == [("server", 3)]
    assert plug(old, ("server", 4), ONE).copies == [("server", 3), ("server", 4)]
