"""The invariants, checked after every story and history. Each returns sentences about violations; none is good."""

from __future__ import annotations

from collections.abc import Iterator

from kilonova.domain.driver import INSTEAD
from kilonova.domain.json import as_object, json_object
from kilonova.domain.owned import Owned, left_by, may_hold, owned_by
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, RESIZED, SOFT_DELETED, STOPPED
from kilonova.sim.invariants import closed_hosts, groups, hardware_claims, images, ports, quotas, volumes
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records, read_records
from kilonova.world import Row

HAS_A_GUEST = (ACTIVE, STOPPED, RESIZED, SOFT_DELETED)
IS_OFF = (STOPPED, SOFT_DELETED)


def check(cloud: SimCloud, *, at_rest: bool = True) -> list[str]:
    """`at_rest`: faults have stopped, every host is back, nothing should be under way any more."""
    return violations(read_records(cloud), cloud, at_rest=at_rest)


def violations(records: Records, cloud: SimCloud, *, at_rest: bool) -> list[str]:
    sentences = [*_task_states(records), *_books(records), *_one_runs(records, cloud), *_disks(records, cloud)]
    sentences += [*ports.at_any_time(records), *groups.at_any_time(records), *hardware_claims.at_any_time(cloud)]
    sentences += [*volumes.at_any_time(records), *closed_hosts.at_any_time(cloud.directory / "placement.db")]
    if at_rest:
        sentences += [*_all_ended(records), *_runs_where_allowed(records, cloud), *_nothing_left(records, cloud)]
        sentences += [*_mappings(records), *quotas.at_rest(records), *ports.at_rest(records), *volumes.at_rest(records)]
        sentences += [
            *images.at_rest(records),
            *groups.at_rest(records),
            *hardware_claims.at_rest(records, cloud),
            *closed_hosts.at_rest(records),
        ]
    return sentences


def under_way(records: Records, cloud: SimCloud) -> list[str]:
    """Return violations of the invariants that hold at every moment. Claims are in another database: they are compared
    at rest."""
    return [
        *_task_states(records),
        *_one_runs(records, cloud),
        *_disks(records, cloud),
        *ports.at_any_time(records),
        *volumes.at_any_time(records),
        *groups.at_any_time(records),
    ]


def after_restore(records: Records, cloud: SimCloud) -> list[str]:
    """Return violations at rest, once an operator has settled the quarantine. Ports and volumes that an older control
    database records differently than the cells are named by audits, and are not an invariant."""
    return [
        *_task_states(records),
        *_books(records),
        *_one_runs(records, cloud),
        *_all_ended(records),
        *_runs_where_allowed(records, cloud),
        *_nothing_left(records, cloud),
        *_mappings(records),
        *quotas.at_rest(records),
        *overbooked(records),
        *closed_hosts.at_rest(records),
    ]


def overbooked(records: Records) -> list[str]:
    """Return use above capacity. If no inventory ever shrinks, a claim raised it there."""
    return [
        f"provider {row['provider_id']}, class {row['class_id']}: used {row['used']} of {row['capacity']}"
        for row in records.table("inventories")
        if row["used"] > row["capacity"]
    ]


def refused_blindly(records: Records) -> list[str]:
    """Return the creates that were refused although not every host had said no (law 18). If hosts were declared gone,
    the number of hosts at that time is unknown."""
    hosts, sentences = None if records.table("gone_hosts") else len(records.table("hosts")), []
    for step in records.table("steps"):
        problem = json_object(step["error"])
        decision = as_object(as_object(problem.get("details")).get("decision"))
        if step["database"] != "control" or problem.get("code") != "no_valid_host" or not decision:
            continue
        if decision["unknown"] or decision["considered"] != (hosts or decision["considered"]):
            unknown = f"{decision['unknown']} of {decision['considered']} hosts unknown, {hosts} are there"
            sentences.append(f"server {step['server_id']} was refused with {unknown}")
    return sentences


def _live(records: Records) -> dict[tuple[str, str], Row]:
    return {(op["database"], op["id"]): op for op in records.table("operations") if op["live"]}


def _busy_servers(records: Records) -> set[str]:
    return {op["server_id"] for op in records.table("operations") if op["live"]}


def _task_states(records: Records) -> Iterator[str]:
    """Yield servers whose task_state has no live operation."""
    live = _live(records)
    placing = {op["server_id"] for op in live.values() if op["kind"] in ("place", "delete_unplaced")}
    for server in records.table("servers"):
        if server["hidden"] and server["id"] in placing:
            continue
        behind = live.get((server["database"], server["operation_id"]))
        if server["task_state"] is not None and behind is None and server["id"] not in placing:
            yield f"server {server['id']}: task_state {server['task_state']} with no live operation behind it"
        if server["operation_id"] is not None and behind is None:
            yield f"server {server['id']} belongs to operation {server['operation_id']}, which is not live"
    for (database, _), op in live.items():
        open_steps = [s for s in records.databases[database]["steps"] if s["operation_id"] == op["id"] and s["open"]]
        if len(open_steps) != 1:
            yield f"operation {op['id']} ({op['kind']}) is live with {len(open_steps)} open steps"


def _books(records: Records) -> Iterator[str]:
    """Check that used == sum of allocations, and allocations == owned for every server without a running operation. The
    remains of an abandoned step are owned too, and may be gone by now."""
    for imbalance in records.imbalances:
        yield f"the books do not balance: {imbalance}"
    busy = _busy_servers(records)
    expected: Owned = {}
    skipped: set[str] = set(busy)
    for server in records.table("servers"):
        migrations = [m for m in records.table("migrations") if m["server_id"] == server["id"]]
        if server["id"] in busy:
            skipped |= {m["id"] for m in migrations}
        elif not server["deleted"]:
            expected |= owned_by(server, [m for m in migrations if m["open"]])
    left = left_by(row for row in records.table("findings") if row["open"])
    for consumer in sorted({*expected, *records.held}):
        if consumer in skipped or expected.get(consumer) == records.held.get(consumer):
            continue
        held, own = records.held.get(consumer, {}), expected.get(consumer, {})
        if consumer not in left or not may_hold(held, own, left[consumer]):
            yield f"consumer {consumer} holds {records.held.get(consumer)}, owns {expected.get(consumer)}"


def _one_runs(records: Records, cloud: SimCloud) -> Iterator[str]:
    """Check that at most one host runs a guest, and that it has permission; only an unreachable host may not know
    yet."""
    quarantined = _quarantined(records)
    for server in records.table("servers"):
        running = [guest for guest in cloud.hardware.running(server["id"]) if cloud.hardware.is_linked(guest[0])]
        running = [(host, copy) for host, copy in running if (host, server["id"], copy) not in quarantined]
        known = {h["name"] for h in records.table("hosts") if not h["returning"] and not h["forced_down"]}
        owes = {(d["host"], d["copy"]) for d in records.table("debts") if d["server_id"] == server["id"]}
        for host, copy in running:
            allowed = (server["runner_host"], server["runner_copy"]) == (host, copy)
            if not allowed and host in known and (host, copy) not in owes and _session_is_current(records, cloud, host):
                yield f"server {server['id']}: {host} runs copy {copy}, but {server['runner_host']} may run it"


def _session_is_current(records: Records, cloud: SimCloud, host: str) -> bool:
    """Return True if the host has received every decision about it."""
    role = cloud.roles.get(host)
    row = next((h for h in records.table("hosts") if h["name"] == host), None)
    return role is not None and role.part is not None and row is not None and role.part.epoch == row["epoch"]


def _disks(records: Records, cloud: SimCloud) -> Iterator[str]:
    """Check that at every point one complete copy of the disk exists, for every server that ever had one and shall keep
    it, except one that is rebuilt on a host without space for two."""
    live = _live(records).values()
    going = {op["server_id"] for op in live if op["kind"] == "delete" or _has_no_room(op)}
    for server in records.table("servers"):
        if server["deleted"] or server["launched_at"] is None or server["id"] in going:
            continue
        if not any(copy.whole for copy in cloud.hardware.survey(server["id"])):
            yield f"server {server['id']} ({server['vm_state']}): no complete copy of its disk exists"


def _has_no_room(op: Row) -> bool:
    return bool(op["kind"] == "rebuild" and json_object(op["facts"]).get("room") == INSTEAD)


def _all_ended(records: Records) -> Iterator[str]:
    for op in _live(records).values():
        yield f"operation {op['id']} ({op['kind']}, {op['state']}) has not ended; it waits for: {op['waiting_for']}"
    for step in records.table("steps"):
        if step["open"] and (step["database"], step["operation_id"]) not in _live(records):
            yield f"step {step['name']} of ended operation {step['operation_id']} is open"
    for event in records.table("action_events"):
        if event["finished_at"] is None:
            yield f"event {event['event']} of operation {event['operation_id']} is open"
    for secret in records.table("secrets"):
        yield f"secrets of operation {secret['operation_id']} are left"


def _runs_where_allowed(records: Records, cloud: SimCloud) -> Iterator[str]:
    """Check at rest that exactly the runner runs the guests that should run. An abandoned start is retried when the
    operator has settled it."""
    left = records.unsettled()
    quarantined = _quarantined(records)
    for server in records.table("servers"):
        places = cloud.hardware.running(server["id"])
        running = [(host, copy) for host, copy in places if (host, server["id"], copy) not in quarantined]
        runner = (server["runner_host"], server["runner_copy"])
        if server["deleted"] or server["vm_state"] not in (*HAS_A_GUEST, "error"):
            if running:
                yield f"server {server['id']} is {server['vm_state']} but runs on {running}"
            continue
        if server["vm_state"] in HAS_A_GUEST and runner[0] is None:
            yield f"server {server['id']} is {server['vm_state']} and nobody may run it"
        if server["vm_state"] == ACTIVE and running != [runner] and server["id"] not in left:
            yield f"server {server['id']} is active, runs on {running}, should run on {runner}"
        if server["vm_state"] in IS_OFF and running and server["id"] not in left:
            yield f"server {server['id']} is {server['vm_state']} but runs on {running}"
        power = POWER_RUNNING if runner in running else POWER_SHUTDOWN
        if server["vm_state"] in HAS_A_GUEST and server["power_state"] != power and server["id"] not in left:
            yield f"server {server['id']} is shown with power_state {server['power_state']}, it is {power}"
        if any(guest != runner for guest in running):
            yield f"server {server['id']} runs on {running}, only {runner} may run it"


def _quarantined(records: Records) -> set[tuple[str, str, int]]:
    """Return the copies that are left as they are until an operator decides about them."""
    open_rows = [row for row in records.table("quarantine") if row["ended_at"] is None]
    return {(row["host"], row["server_id"], row["copy"]) for row in open_rows}


def _nothing_left(records: Records, cloud: SimCloud) -> Iterator[str]:
    """Check that every copy on a host is recorded, every record is true, and debts are paid."""
    quarantined = _quarantined(records)
    there = {(f.host, f.server, f.copy) for f in cloud.hardware.survey()} - quarantined
    recorded = {(c["host"], c["server_id"], c["copy"]) for c in records.table("copies")}
    for host, server, copy in sorted(there - recorded):
        yield f"copy {copy} of {server} on {host} is not recorded"
    for host, server, copy in sorted(recorded - there):
        yield f"copy {copy} of {server} is recorded on {host} but is not there"
    yield from _needless(records)
    for debt in records.table("debts"):
        yield f"{debt['host']} still owes the removal of copy {debt['copy']} of {debt['server_id']}"
    for row in records.table("servers"):
        if row["hidden"] and not row["deleted"]:
            yield f"server {row['id']} is still hidden"


def _needless(records: Records) -> Iterator[str]:
    """Check that a server has exactly its current copy, and the one that an open move may go back to."""
    migrations = [m for m in records.table("migrations") if m["open"] and m["kind"] != "evacuation"]
    open_moves = [m for m in migrations if not m["source_gone"]]
    for server in records.table("servers"):
        needed = {(m["source_host"], m["source_copy"]) for m in open_moves if m["server_id"] == server["id"]}
        if server["host"] and not server["deleted"]:
            needed.add((server["host"], server["copy"]))
        held = {(c["host"], c["copy"]) for c in records.table("copies") if c["server_id"] == server["id"]}
        if held != needed:
            yield f"server {server['id']} ({server['vm_state']}) has the copies {sorted(held)}, needs {sorted(needed)}"


def _mappings(records: Records) -> Iterator[str]:
    """Check that a server is in exactly one place, as its mapping says."""
    for request in records.table("build_requests"):
        yield f"the build request of {request['server_id']} is left"
    where: dict[str, list[str]] = {}
    for server in records.table("servers"):
        if not server["deleted"]:
            where.setdefault(server["id"], []).append(server["database"])
    mapped = {m["server_id"]: m for m in records.table("server_mappings")}
    for server_id, databases in where.items():
        if len(databases) != 1 or server_id not in mapped or mapped[server_id]["cell"] != databases[0]:
            yield f"server {server_id} is in {databases}, its mapping says {mapped.get(server_id)}"
    for server_id, mapping in mapped.items():
        if not mapping["queued_for_delete"] and server_id not in where:
            yield f"server {server_id} is mapped to {mapping['cell']} but is nowhere"
