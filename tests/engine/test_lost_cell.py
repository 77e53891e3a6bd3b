"""A cell whose database is lost without a backup: its records are made again, its guests are adopted (law 15)."""

import pytest

from kilonova.audit.run import audit
from kilonova.domain.errors import Unreachable
from kilonova.engine.lost_cell import remake
from kilonova.engine.restored import TURNS, begin_era
from kilonova.hosts import states as hosts
from kilonova.operations.create import place
from kilonova.operations.quarantine import adopt_quarantined
from kilonova.schema.tables import cell
from kilonova.sim.lab.rest import audited, come_to_rest
from kilonova.store import rows
from kilonova.store.fences import pass_fence
from tests.engine.test_quarantine import held
from tests.engine.test_restored_records import status

WORD = {"name": "cell1", "store_id": "lost", "replacement": "new", "era": 2}


@pytest.fixture
def lab(cloud):
    return cloud(**{"hosts": 3, "addresses": 8, "volumes": 1, "copy_seconds": 4.0})


def lose(cloud, *tables, **keys):
    """All that cell1 has, or the rows of these tables."""
    for name in list(cloud.roles):
        cloud.kill(name)

    async def body(tx):
        for table in tables or cell.metadata.sorted_tables:
            await rows.remove(tx, table, **keys)

    cloud.alone(lambda stores: stores.cell("cell1").write(body), "the loss", faulty=False)


def make_again(cloud, *, times=1):
    remade = [cloud.alone(lambda stores: remake(stores, WORD), "the word", faulty=False) for _ in range(times)]
    come_to_rest(cloud)
    return remade


def survey(cloud, server):
    return [(one.host, one.copy, one.power) for one in cloud.hardware.survey(server)]


def providers(cloud):
    return {row["name"]: row["uuid"] for row in cloud.records().table("resource_providers")}


def test_servers_are_what_their_guests_are(lab):
    on, _ = lab.make("on", host="host1", networks=[{"network_id": lab.laid.network}])
    off, _ = lab.make("off", host="host2")
    lab.submit("attach_volume", on, id="bdm", volume_id=lab.stock.volumes[0])
    lab.submit("stop", off)
    lab.loop.run_for(20.0)
    before, claims, guests = providers(lab), lab.records().held, survey(lab, None)
    lose(lab)
    assert make_again(lab) == [(2, 3, 0)]
    assert (status(lab, on), status(lab, off)) == (("active", "host1", "host1"), ("stopped", "host2", "host2"))
    assert lab.server(on)["turn"] == WORD["era"] * TURNS
    assert (providers(lab), lab.records().held) == (before, claims)
    assert (held(lab), survey(lab, None), audited(lab)) == ([], guests, [])
    lab.submit("start", off)
    lab.submit("detach_volume", on, volume_id=lab.stock.volumes[0])
    lab.loop.run_for(20.0)
    assert status(lab, off) == ("active", "host2", "host2")
    for server in (on, off):
        lab.submit("delete", server)
    come_to_rest(lab)
    assert lab.records().held == {} and lab.hardware.survey() == []
    assert lab.records().table("volume_attachments") == []


def test_it_may_be_repeated(lab):
    server, _ = lab.make(host="host1")
    lose(lab)
    assert make_again(lab, times=2) == [(1, 3, 0), (1, 0, 0)]
    assert status(lab, server) == ("active", "host1", "host1")


def test_a_deleted_server_is_neither_recorded_nor_counted_again(lab):
    """Control keeps its mapping until the purge."""
    server, _ = lab.make(host="host1")
    lab.submit("delete", server)
    lab.loop.run_for(20.0)
    lose(lab)
    assert make_again(lab) == [(0, 3, 0)]
    assert lab.server(server) is None
    assert [row["instances"] for row in lab.records().table("quota_usages")] == [0]


def test_a_disabled_host_stays_disabled(lab):
    lab.do(lambda engine: hosts.disable(engine, "host3", "fans"))
    lose(lab)
    make_again(lab)
    assert [row["name"] for row in lab.records().table("hosts") if row["disabled"]] == ["host3"]


def test_a_host_that_is_away_is_waited_for(lab):
    server, _ = lab.make(host="host1")
    lab.hardware.switch_power("host1", False)
    lose(lab)
    lab.alone(lambda stores: remake(stores, WORD), "the word", faulty=False)
    lab.start_all()
    lab.loop.run_for(200.0)
    assert status(lab, server) == ("error", "host1", None)
    come_to_rest(lab)  # which switches it on
    assert status(lab, server)[1:] == ("host1", "host1")
    assert held(lab) == []


def test_of_an_open_move_the_guest_that_runs_counts(lab):
    server, _ = lab.make(host="host1")
    lab.submit("migrate", server)
    lab.loop.run_for(30.0)
    (running,) = lab.hardware.running(server)
    lose(lab)
    make_again(lab)
    assert status(lab, server) == ("active", running[0], running[0])
    assert held(lab) == [("host1", server, 1)], "nobody knows whether its owner would have gone back to it"


@pytest.mark.parametrize("stopped", [True, False])
def test_a_copy_of_an_open_move_that_is_off_waits_for_an_operator(lab, stopped):
    """Stopped by its owner, or not yet started by the move: nobody knows which copy counts."""
    server, _ = lab.make(host="host1")
    if stopped:
        lab.submit("stop", server)
        lab.loop.run_for(10.0)
    lab.submit("migrate", server)
    lab.loop.run_for(30.0 if stopped else 6.0)
    before = survey(lab, server)
    assert len(before) == 2
    if not stopped:
        for host, copy, _ in before:
            lab.hardware.host(host).guests[server, copy].power = "off"
    lose(lab)
    make_again(lab)
    assert status(lab, server)[0] == "error"
    assert {host for host, _, _ in held(lab)} == {host for host, _, _ in before}
    chosen = lab.server(server)["host"]
    lab.do(lambda engine: adopt_quarantined(engine, chosen, server, None, lab.cause()))
    come_to_rest(lab)
    assert status(lab, server)[1:] == (chosen, chosen)


def test_a_copy_of_an_open_evacuation_that_is_off_waits_for_an_operator(lab):
    """The source is dead: the copy at the destination may not be the newest yet."""
    server, _ = lab.make(host="host1")
    lab.submit("stop", server)
    lab.loop.run_for(10.0)
    lab.kill("host1")
    lab.do(lambda engine: hosts.declare_down(engine, "host1"))
    lab.submit("evacuate", server, host="host2")
    lab.loop.run_for(30.0)
    assert status(lab, server) == ("stopped", "host2", "host2")
    lose(lab)
    make_again(lab)
    assert status(lab, server)[0] == "error"
    assert ("host2", server) in {(host, of) for host, of, _ in held(lab)}


@pytest.mark.parametrize(("powers", "state"), [(("on", "on"), "error"), (("off", "off"), "error"), (("on",), "active")])
def test_of_several_guests_that_may_be_the_server_none_is_adopted(lab, powers, state):
    server, _ = lab.make(host="host1")
    lab.hardware.lose("host1", server)
    for copy, power in enumerate(powers, start=3):
        lab.hardware.plant("host1", server, copy, power)
    lose(lab)
    make_again(lab)
    assert status(lab, server)[0] == state
    assert len(held(lab)) == (len(powers) if state == "error" else 0)


def test_a_guest_elsewhere_than_its_claim_is_kept_for_an_operator(lab):
    server, _ = lab.make(host="host3")
    lab.hardware.plant("host1", server, 3, "on")
    lab.hardware.lose("host3", server)
    for later in ("host2", "host3"):
        lab.hardware.switch_power(later, False)  # host1 registers first
    lose(lab)
    lab.alone(lambda stores: remake(stores, WORD), "the word", faulty=False)
    lab.start_all()
    lab.loop.run_for(200.0)
    assert status(lab, server) == ("error", "host3", None)
    come_to_rest(lab)
    assert (status(lab, server), held(lab)) == (("error", "host3", None), [("host1", server, 3)])
    assert lab.hardware.running(server) == [("host1", 3)]


@pytest.mark.parametrize("kind", ["create", "delete", "migrate"])
@pytest.mark.parametrize("moment", [0.01, 0.03, 0.1, 0.3, 0.7, 1.5, 3.0, 5.0, 8.0])
def test_a_cell_is_lost_at_any_moment(lab, kind, moment):
    """Whatever was under way: every server can be deleted afterwards, and nothing is left of it but in quarantine."""
    if kind == "create":
        server, _ = lab.make(host="host1", wait=moment)
    else:
        server, _ = lab.make(host="host1")
        lab.submit(kind, server)
        lab.loop.run_for(moment)
    guests = survey(lab, None)
    lose(lab)
    make_again(lab)
    assert {one[:2] for one in guests} <= {one[:2] for one in survey(lab, None)}, "no guest is removed"
    row = lab.server(server)
    if row is not None and not row["deleted"]:
        lab.submit("delete", server)
        come_to_rest(lab)
        assert lab.server(server)["deleted"] == 1
    kept = {(host, copy) for host, _, copy in held(lab)}
    assert {one[:2] for one in survey(lab, server)} == kept
    lab.alone(lambda stores: audit(stores, lab.clock, mend=True), "an audit", faulty=False)
    assert kept or lab.records().held == {}
    assert lab.records().imbalances == []


@pytest.mark.parametrize("mapped", [False, True])
def test_a_server_that_is_being_placed_is_built(lab, mapped, monkeypatch):
    """Its hidden row is lost, before or after control mapped it: `place` owns it, and goes on."""
    calls = []

    async def passes(tx, *fence):
        calls.append(fence)
        if len(calls) > 1:
            raise Unreachable("the database is gone")
        await pass_fence(tx, *fence)

    async def waits(ctx):
        raise Unreachable("the conductor is slow")

    with monkeypatch.context() as patched:
        patched.setattr(place, "pass_fence", passes)
        if not mapped:
            patched.setattr(place, "_recheck_quota", waits)
        server, operation = lab.make(host="host1", wait=3.0)
        assert lab.server(server)["hidden"] == 1
        (mapping,) = lab.records().table("server_mappings")
        assert mapping["cell"] == ("cell1" if mapped else None)
        lose(lab)
    assert make_again(lab) == [(0, 3, 0)]
    assert status(lab, server) == ("active", "host1", "host1")
    assert lab.operation(operation)["state"] == "done"
    assert audited(lab) == []


def test_a_restored_cell_knows_the_hosts_that_joined_since(lab):
    """Else they would register as new, and get no provider: its name is taken."""
    server, _ = lab.make(host="host1")
    before = providers(lab)
    lose(lab, cell.hosts, name="host1")
    lab.alone(begin_era, "a new era", faulty=False)
    come_to_rest(lab)
    assert (providers(lab), status(lab, server)) == (before, ("active", "host1", "host1"))
    assert {row["name"] for row in lab.records().table("hosts") if row["identity"]} == {"host1", "host2", "host3"}
