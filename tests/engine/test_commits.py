"""Law 12: whichever COMMIT of a conductor fails or stays unknown, the operation goes on at once, each step once."""

from dataclasses import replace

import pytest

from kilonova.domain.errors import CommitFailed, CommitUnknown, Superseded
from kilonova.engine.conclude import _own_move
from kilonova.engine.journal import load
from kilonova.operations import REGISTRY
from kilonova.schema.tables.journal import steps
from kilonova.sim.invariants.invariants import check
from kilonova.store import rows
from kilonova.store.cell_store import CellStore

SOON = 6.0  # seconds; a lease lasts 30


class Spoiled:
    """Counts the COMMITs of one process over all its databases; the one with that number goes wrong."""

    def __init__(self, number=0, how=""):
        self.number, self.how, self.seen, self.struck = number, how, 0, False
        self.meant = ""  # the database: another one may commit before this one is answered

    def before_commit(self, name):
        self.seen += 1
        if self.seen == self.number:
            self.meant = name
        if self.how == "fails" and self.seen == self.number:
            self.struck = True
            raise CommitFailed("the disk was full for a moment")

    def after_commit(self, name):
        if self.how == "is unknown" and self.meant == name and not self.struck:
            self.struck = True
            raise CommitUnknown("the line went dead")


def spoil(cloud, faults):
    stores = cloud.roles["conductor1"].stores
    for store in (stores.control, stores.placement, *(stores.cell(name) for name in stores.cells())):
        (store._store if isinstance(store, CellStore) else store).faults = faults
    return faults


def creates(cloud, faults):
    spoil(cloud, faults)
    server, operation = cloud.make(wait=SOON)
    return server, operation, "active"


def creates_with_a_port(cloud, faults):
    """Its build begins with a step that the conductor takes when it hands over."""
    spoil(cloud, faults)
    server, operation = cloud.make(wait=SOON, networks=[{"network_id": cloud.laid.network}])
    return server, operation, "active"


def migrates(cloud, faults):
    server, _ = cloud.make()
    spoil(cloud, faults)
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(SOON)
    return server, operation, "resized"


def rebuilds(cloud, faults):
    """Permission to run moves in the transaction that ends the step before."""
    server, _ = cloud.make()
    spoil(cloud, faults)
    operation = cloud.submit("rebuild", server, image="other").operation_id
    cloud.loop.run_for(SOON)
    return server, operation, "active"


def rebuilds_its_volume(cloud, faults):
    """The step before is the conductor's own."""
    root = {"volume_id": cloud.stock.volumes[0], "device": "/dev/vda", "is_root": True}
    server, _ = cloud.make(volumes=[root])
    spoil(cloud, faults)
    operation = cloud.submit("rebuild_volume", server, image="another", reimage=True).operation_id
    cloud.loop.run_for(SOON)
    return server, operation, "active"


def deletes(cloud, faults):
    server, _ = cloud.make()
    spoil(cloud, faults)
    operation = cloud.submit("delete", server).operation_id
    cloud.loop.run_for(SOON)
    return server, operation, "deleted"


@pytest.mark.parametrize("how", ["fails", "is unknown"])
@pytest.mark.parametrize(
    "work",
    [creates, creates_with_a_port, migrates, rebuilds, rebuilds_its_volume, deletes],
    ids=lambda work: work.__name__,
)
def test_a_commit_goes_wrong(cloud, work, how):
    quiet = cloud(hosts=2, addresses=4, volumes=1)
    faults = Spoiled()
    server, operation, _ = work(quiet, faults)
    steps, commits = quiet.steps(operation), faults.seen
    assert commits > 5
    for number in range(1, commits + 1):
        spoiled = cloud(hosts=2, addresses=4, volumes=1)
        faults = Spoiled(number, how)
        server, operation, state = work(spoiled, faults)
        assert faults.struck, number
        assert spoiled.server(server)["vm_state"] == state, f"COMMIT {number} of {commits} {how}"
        assert spoiled.steps(operation) == steps, f"COMMIT {number} of {commits} {how}"
        assert check(spoiled) == [], f"COMMIT {number} of {commits} {how}"
        spoiled.close()


@pytest.mark.parametrize("holder", ["me", "another", None])
def test_after_an_unknown_commit_only_its_own_step_is_driven(cloud, holder):
    """The operation has moved on by one step. Whoever has that one drives it; nobody has it: it will be found."""
    cloud = cloud(hosts=2, conductors=1)
    server, _ = cloud.make()
    cloud.kill("conductor1")
    operation = cloud.submit("migrate", server).operation_id

    async def look(engine):
        journal = engine.world.db.cell("cell1")

        async def body(tx):
            assert await rows.change(tx, steps, {"worker": holder}, operation_id=operation, host="", open=1)
            op = await load(tx, operation)
            return await _own_move(replace(engine, worker="me"), tx, journal, op, op.ordinal - 1)

        return await journal.write(body)

    if holder == "me":
        assert cloud.do(look).is_mine
    else:
        with pytest.raises(Superseded):
            cloud.do(look)


def test_what_a_try_has_noted_is_written_once(cloud):
    """A step that notes a change before a COMMIT elsewhere stays unknown is done again, and notes it again."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make()
    step = REGISTRY["migrate"].step("claim")
    work, tries, written = step.do, [], []

    async def note(tx, now):
        written.append(len(tries))

    async def twice(ctx):
        ctx.in_transaction(note)
        ctx.set_server(name=f"try {len(tries)}")
        tries.append(ctx.ordinal)
        if len(tries) == 1:
            raise CommitUnknown("the line went dead")
        return await work(ctx)

    object.__setattr__(step, "do", twice)
    try:
        cloud.submit("migrate", server)
        cloud.loop.run_for(SOON)
    finally:
        object.__setattr__(step, "do", work)
    assert cloud.server(server)["vm_state"] == "resized" and len(set(tries)) == 1
    assert (written, cloud.server(server)["name"]) == ([2], "try 1")
