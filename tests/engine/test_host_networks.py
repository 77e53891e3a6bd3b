"""What a host is told when it asks about networks and guests: its own, and nothing of others."""

from __future__ import annotations

from kilonova.conductor.host_networks import HostNetworks
from kilonova.domain.host_network import ContentsAnswer, ContentsQuestion, NetworkAnswer, NetworkQuestion


def identity(cloud, host):
    row = next(row for row in cloud.records().table("hosts") if row["name"] == host)
    return {"host": host, "session": row["session"], "epoch": row["epoch"]}


def contents(cloud, server, who):
    return cloud.do(lambda engine: HostNetworks(engine).on_contents(ContentsQuestion(server=server, **who)))


def network(cloud, who, **fields):
    return cloud.do(lambda engine: HostNetworks(engine).on_network(NetworkQuestion(**who, **fields)))


def test_only_the_host_that_may_run_the_server_reads_its_contents(cloud):
    cloud = cloud(hosts=2)
    server, _ = cloud.make("web")
    runner = cloud.server(server)["runner_host"]
    other = next(host for host in ("host1", "host2") if host != runner)
    answer = contents(cloud, server, identity(cloud, runner))
    assert answer.guest is not None and answer.guest.server == server and answer.secrets is not None
    assert contents(cloud, server, identity(cloud, other)) == ContentsAnswer()
    assert contents(cloud, "nobody", identity(cloud, runner)) == ContentsAnswer()


def test_a_host_that_is_not_registered_under_its_name_is_told_nothing(cloud):
    cloud = cloud(hosts=1)
    server, _ = cloud.make("web")
    who = identity(cloud, "host1")
    for wrong in ({"session": "another"}, {"epoch": who["epoch"] + 1}, {"host": "host9"}):
        assert contents(cloud, server, who | wrong) == ContentsAnswer()
        assert network(cloud, who | wrong) == NetworkAnswer()


def test_each_host_is_known_by_its_own_registration(cloud):
    cloud = cloud(hosts=2)
    one, two = identity(cloud, "host1"), identity(cloud, "host2")
    for who, other in ((one, two), (two, one)):
        assert network(cloud, who).document
        assert network(cloud, who | {"session": other["session"]}) == NetworkAnswer()


def test_a_document_that_the_host_has_is_not_sent_again(cloud):
    cloud = cloud(hosts=1)
    who = identity(cloud, "host1")
    first = network(cloud, who, tunnel_address="192.0.2.1")
    assert first.document and first.version
    assert network(cloud, who, tunnel_address="192.0.2.1", have=first.version) == NetworkAnswer(version=first.version)
