"""Random histories in which databases are restored from a backup (law 15).

Acts and trouble of every kind, a backup at some instant of it, more of the same, then some or all databases are
restored to that instant. That must be noticed, and nothing may change until the operator confirms. Afterwards no
complete disk is gone and no guest was started; then the operator settles the quarantine, and the books balance. No
volume is ever deleted: none was attached since the backup with the flag to be deleted with its server.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

from kilonova.audit.run import audit
from kilonova.domain.cause import Cause
from kilonova.domain.errors import Halted, KilonovaError, Refused
from kilonova.domain.server import ERROR
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.restored import begin_era
from kilonova.engine.submit import submit
from kilonova.operations.quarantine import adopt_quarantined, remove_quarantined
from kilonova.sim.histories.acts import History
from kilonova.sim.histories.histories import HistoryResult, digest, make_cloud
from kilonova.sim.histories.player import HistoryPlayer
from kilonova.sim.invariants import invariants
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records, read_records
from kilonova.sim.lab.rest import come_to_rest, come_to_rest_settled, heal
from kilonova.world import Stores

HALTED_SECONDS = 120.0  # long enough for leases, rounds and hosts to try something
ROUNDS_SECONDS = 130.0  # reclaiming has looked twice
NO_ROOM = " free of "  # in the audit's reason
VERBS = 20  # times that the operator looks at the quarantine

Disks = set[tuple[str, str, int, str]]  # host, server, copy, content
Running = dict[str, int]  # server: how many guests


def run_restored(history: History) -> HistoryResult:
    cloud = make_cloud(history, marks=True)
    try:
        return _play(cloud, history)
    finally:
        cloud.close()


def _play(cloud: SimCloud, history: History) -> HistoryResult:
    source = random.Random(f"{history.seed}:restore")
    backup_at = source.randrange(len(history.acts) // 4, 3 * len(history.acts) // 4)
    chosen = _choose(source, cloud.databases)
    cloud.start_all()
    cloud.loop.run_for(130.0)
    player = HistoryPlayer(cloud)
    backup = Path()
    for number, act in enumerate(history.acts):
        cloud.loop.run_for(act.after)
        if number == backup_at:
            backup = cloud.back_up()
        player.perform(act)
    cloud.loop.run_for(max(source.choice((0.5, 10.0, 200.0)), player.trouble.watch_until - cloud.loop.time()))
    player.stop()
    problems, files = _restore(cloud, backup, chosen), {*cloud.files.sizes}
    records = _settle(cloud)
    problems += [f"{one} is gone" for one in sorted(files - {*cloud.files.sizes, *cloud.files.lost})]
    problems += [*invariants.after_restore(records, cloud), *player.wrong]
    count = len(records.table("operations"))
    return HistoryResult(history, [f"{'+'.join(chosen)}: {what}" for what in problems], digest(records), count, records)


def _choose(source: random.Random, databases: list[str]) -> list[str]:
    cells = [name for name in databases if name.startswith("cell") and name != "cell0"]
    return source.choice((databases, databases, cells, [cells[0]], [cells[0]], ["control"], ["placement", *cells]))


# -- until the word -------------------------------------------------------------------------------------------------


def _restore(cloud: SimCloud, backup: Path, chosen: list[str]) -> list[str]:
    heal(cloud)
    cloud.loop.run_for(130.0)  # every host has seen the newest marks
    for name in [name for name, role in cloud.roles.items() if role.stores is not None]:
        cloud.kill(name)
    cloud.loop.run_for(60.0)  # hosts finish their steps
    if not _is_older(cloud, backup, chosen):
        chosen = cloud.databases
    if not _is_older(cloud, backup, chosen):
        return []  # nothing was written since
    cloud.put_back(backup, chosen)
    files = {*cloud.files.sizes}
    disks, running, before = _disks(cloud), _running(cloud), digest(read_records(cloud))
    cloud.start_all()
    cloud.loop.run_for(HALTED_SECONDS)
    problems = [] if _is_halted(cloud) else ["the restore was not noticed"]
    if digest(read_records(cloud)) != before:
        problems.append("operations went on before the word")
    if (_disks(cloud), _running(cloud)) != (disks, running):
        problems.append("guests were changed before the word")
    cloud.alone(begin_era, "a new era", faulty=False)
    come_to_rest(cloud)
    cloud.loop.run_for(ROUNDS_SECONDS)
    problems += [f"{one} is gone" for one in sorted(disks - _disks(cloud))]
    problems += [f"{one} is gone" for one in sorted(files - {*cloud.files.sizes, *cloud.files.lost})]
    for server, count in _running(cloud).items():
        if count > max(1, running.get(server, 0)):
            problems.append(f"server {server} runs {count} times, {running.get(server, 0)} times before")
    return problems


def _is_older(cloud: SimCloud, backup: Path, chosen: list[str]) -> bool:
    return any(_mark(backup / f"{name}.db") < _mark(cloud.directory / f"{name}.db") for name in chosen)


def _mark(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT mark FROM this_store").fetchone()[0])


def _is_halted(cloud: SimCloud) -> bool:
    """Return True if a request that writes is refused because the cloud is halted."""

    async def write(engine: Engine) -> bool:
        try:
            await engine.world.db.control.write(_nothing)
        except Halted:
            return True
        return False

    return cloud.do(write)


async def _nothing(tx: object) -> None:
    pass


def _disks(cloud: SimCloud) -> Disks:
    return {(one.host, one.server, one.copy, one.marker) for one in cloud.hardware.survey() if one.whole}


def _running(cloud: SimCloud) -> Running:
    servers = {one.server for one in cloud.hardware.survey()}
    return {server: len(cloud.hardware.running(server)) for server in sorted(servers)}


# -- after it -------------------------------------------------------------------------------------------------------


def _settle(cloud: SimCloud) -> Records:
    """Adopt the copies that can be adopted and remove the rest, as an operator; delete the servers in ERROR, as their
    owners."""
    for adopts in (True, False):
        _settle_quarantine(cloud, adopts=adopts)
        records = come_to_rest_settled(cloud)
    for row in records.table("servers"):
        if row["vm_state"] == ERROR and not row["deleted"]:
            _say(cloud, "delete", row["id"])
    for row in records.table("build_requests"):
        _say(cloud, "delete", row["server_id"])
    come_to_rest(cloud)
    for server in cloud.alone(lambda stores: _audit(stores, cloud), "an audit", faulty=False):
        _say(cloud, "delete", server)
    return come_to_rest(cloud)


async def _audit(stores: Stores, cloud: SimCloud) -> list[str]:
    """Return servers that do not fit where they are: they were deleted or moved since the backup, and others have
    claimed their capacity. The audit names them; one of them has to be removed."""
    for _ in range(2):
        report = await audit(stores, cloud.clock, mend=True)
    return [one.server for one in report.findings if one.outcome == "left" and NO_ROOM in one.why]


def _settle_quarantine(cloud: SimCloud, *, adopts: bool) -> None:
    for _ in range(VERBS):
        open_rows = [row for row in read_records(cloud).table("quarantine") if row["ended_at"] is None]
        rows = [row for row in open_rows if row["action"] is None]
        accepted = [row for row in rows if _settle_copy(cloud, row["host"], row["server_id"], row["copy"], adopts)]
        cloud.loop.run_for(40.0)
        if not accepted:
            return


def _settle_copy(cloud: SimCloud, host: str, server: str, copy: int, adopts: bool) -> bool:
    cause, act = cloud.cause(), adopt_quarantined if adopts else remove_quarantined

    async def option(engine: Engine) -> bool:
        try:
            await act(engine, host, server, copy, cause)
        except Refused:
            return False
        return True

    return cloud.do(option)


def _say(cloud: SimCloud, kind: str, server: str) -> None:
    cause: Cause = cloud.cause()

    async def option(engine: Engine) -> None:
        try:
            await submit(engine, Ask(kind=kind, server_id=server, cause=cause))
        except KilonovaError:
            return

    cloud.do(option)
