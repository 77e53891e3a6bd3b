"""Let the cloud come to rest: faults stop, every role and host comes back, and the cloud gets time to finish its
work."""

from __future__ import annotations

from kilonova.audit.run import audit
from kilonova.domain.guest import CopyReport
from kilonova.engine.findings import settle
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records, read_records
from kilonova.world import Stores

PATIENCE = 3600.0  # virtual seconds; leases, deadlines and backoffs all fit several times
LOOK_EVERY = 15.0


def come_to_rest(cloud: SimCloud, *, patience: float = PATIENCE) -> Records:
    """Switch everything on again and end all faults; return the records when nothing changes any more."""
    heal(cloud)
    waited = 0.0
    while True:
        cloud.loop.run_for(LOOK_EVERY)
        waited += LOOK_EVERY
        records = read_records(cloud)
        if is_at_rest(records, cloud) or waited >= patience:
            return records


def heal(cloud: SimCloud) -> None:
    if cloud.faults is not None:
        cloud.faults.stop()
    cloud.outages.stop()
    cloud.hardware.heal()
    for host in cloud.hardware.hosts():
        cloud.hardware.switch_link(host, True)
        cloud.hardware.switch_power(host, True)
    cloud.start_all()


def is_at_rest(records: Records, cloud: SimCloud) -> bool:
    if any(op["live"] for op in records.table("operations")) or records.table("debts"):
        return False
    if any(row["open"] for row in records.table("host_failures")):
        return False
    hosts = {row["name"]: row for row in records.table("hosts")}
    for name in cloud.hardware.hosts():
        row, role = hosts.get(name), cloud.roles.get(name)
        if role is not None and role.part is not None and role.part.refused:
            continue
        if row is None or row["returning"] or role is None or role.part is None or role.part.epoch != row["epoch"]:
            return False
    return True


def come_to_rest_settled(cloud: SimCloud) -> Records:
    """Come to rest; then an operator settles what abandoned steps left, and the cloud comes to rest again."""
    records = come_to_rest(cloud)
    if not records.unsettled():
        return records
    _settle_all(cloud, records)
    return come_to_rest(cloud)


def _settle_all(cloud: SimCloud, records: Records) -> None:
    """Settle all findings as an operator (law 17); an audit releases their remaining allocations."""
    left = [row for row in records.table("findings") if row["open"]]
    cause = cloud.cause()

    async def settle_each(stores: Stores) -> None:
        for row in left:
            name = row["database"]
            store = stores.control if name == "control" else stores.cell(name)
            await settle(store, row["id"], cause, "at rest", cloud.clock.now())
        await audit(stores, cloud.clock, mend=True)

    cloud.alone(settle_each, "an operator", faulty=False)


def audited(cloud: SimCloud) -> list[str]:
    """Return the report of an audit to an operator: nothing, once all is at rest."""

    async def ask(cell: str, host: str) -> list[CopyReport]:
        at = cloud.hardware.host(host)
        return [cloud.hardware.report(at, guest) for guest in at.guests.values()]

    report = cloud.alone(lambda stores: audit(stores, cloud.clock, mend=False, ask=ask), "an audit", faulty=False)
    problems = [*report.findings, *report.unbalanced, *report.miscounted, *report.differences]
    return [f"the audit finds {getattr(one, 'sentence', one)}" for one in problems] + report.hardware
