"""The required outcomes of an operation that was crashed at any point (scenarios.py). Each yields the violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kilonova.domain.server import Flavor, flavor_from
from kilonova.sim.invariants.images import done_without_image
from kilonova.sim.lab.records import Records

SERVER = "5e7e0000-0000-4000-8000-000000000001"  # the first of each scenario
MANY = 3


def one_server(*vm_states: str) -> Callable[[Records], Iterator[str]]:
    def outcome(records: Records) -> Iterator[str]:
        server = records.server(SERVER)
        if server is None or server["vm_state"] not in vm_states:
            yield f"the server is {server and server['vm_state']}, expected {' or '.join(vm_states)}"

    return outcome


def with_its_image(*vm_states: str) -> Callable[[Records], Iterator[str]]:
    def outcome(records: Records) -> Iterator[str]:
        yield from one_server(*vm_states)(records)
        yield from done_without_image(records)

    return outcome


def resized_or_not(flavor: Flavor) -> Callable[[Records], Iterator[str]]:
    """Require this flavor once the request was accepted."""

    def outcome(records: Records) -> Iterator[str]:
        server = records.server(SERVER)
        assert server is not None
        yield from one_server("active", "resized")(records)
        if server["vm_state"] == "active" and flavor_from(server["flavor"]).name != flavor.name:
            yield f"the server has flavor {flavor_from(server['flavor']).name}, expected {flavor.name}"

    return outcome


def created_or_never(records: Records) -> Iterator[str]:
    server = records.server(SERVER)
    if server is None and records.table("server_mappings"):
        yield "the create was accepted but the server is gone"
    if server is not None and server["vm_state"] != "active":
        yield f"the server is {server['vm_state']}"


def whole_or_never(records: Records) -> Iterator[str]:
    yield from created_or_never(records)
    yield from _has_volumes(records)


def whole_or_gone(records: Records) -> Iterator[str]:
    """Look at the server and its volumes: its own are gone or going, the existing one that it was given is there."""
    yield from one_server("active", "deleted")(records)
    yield from _has_volumes(records)
    if not any(row["name"] == "volume1" for row in records.table("volumes")):
        yield "volume1 went with the server"


def whole_or_buried(records: Records) -> Iterator[str]:
    yield from one_server("active", "error")(records)
    yield from _has_volumes(records)


def whole_or_any(records: Records) -> Iterator[str]:
    """Require a whole server in any of these states, or no trace of it."""
    if records.server(SERVER) is not None:
        yield from one_server("active", "error", "deleted")(records)
    yield from _has_volumes(records)


def all_whole_or_none(records: Records) -> Iterator[str]:
    yield from all_or_none(records)
    yield from _has_volumes(records)


def _has_volumes(records: Records) -> Iterator[str]:
    """Require of each running server a volume to boot from and one for data."""
    for server in records.table("servers"):
        held = [one for one in records.table("volume_attachments") if one["server_id"] == server["id"]]
        if len(held) != (2 if server["vm_state"] == "active" else 0):
            yield f"server {server['name']} is {server['vm_state']} and has {len(held)} volumes"


def all_or_none(records: Records) -> Iterator[str]:
    states = [server["vm_state"] for server in records.table("servers")]
    if states not in ([], ["active"] * MANY):
        yield f"the servers are {states}"
    if not states and records.table("server_mappings"):
        yield "the create was accepted but the servers are gone"


def buried_or_never(records: Records) -> Iterator[str]:
    yield from buried_or_gone(records)
    if records.server(SERVER) is None and records.table("server_mappings"):
        yield "the create was accepted but the server is gone"


def buried_or_gone(records: Records) -> Iterator[str]:
    """Require that nothing of the server is left in its cell, neither a row nor its history."""
    server = records.server(SERVER)
    if server is not None and not server["deleted"] and (server["database"], server["vm_state"]) != ("cell0", "error"):
        yield f"the server is {server['vm_state']} in {server['database']}"
    if server is not None and not server["deleted"] and not server["cell0_failure"]:
        yield "the class of the failure is not recorded"
    for table in ("actions", "action_events", "faults"):
        homes = {row["database"] for row in records.table(table) if row["server_id"] == SERVER}
        if len(homes) > 1:
            yield f"{table} are in {sorted(homes)}"
    yield from _has_volumes(records)


def failed(records: Records) -> Iterator[str]:
    return (f"the server is {s['vm_state']}" for s in records.table("servers") if s["vm_state"] != "error")


def evacuated_once(records: Records) -> Iterator[str]:
    """Look for one record and one evacuation by the failure watch, whichever process crashed; none if its decision to
    begin was lost."""
    yield from one_server("active")(records)
    failures = records.table("host_failures")
    begun = [row["id"] for row in records.table("operations") if row["kind"] == "evacuate_host"]
    if len(begun) != len(failures) or len(begun) > 1:
        yield f"{len(failures)} records of the failure watch and {len(begun)} evacuations"
    if any(row["state"] not in ("returned", "done") for row in failures):
        yield f"the failure watch ended with {[row['state'] for row in failures]}"
