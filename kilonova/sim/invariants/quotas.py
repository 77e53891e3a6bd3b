"""The invariant of quotas: the recorded usage of a project is what it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kilonova.domain.json import decoded
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import SOFT_DELETED, flavor_from
from kilonova.services.volume.quotas import GIGABYTES, SNAPSHOTS, VOLUMES
from kilonova.sim.lab.records import Records
from kilonova.world import Row

RESOURCES = ("instances", "cores", "ram")


def at_rest(records: Records) -> Iterator[str]:
    yield from _counted(records)
    yield from _of_servers(records)
    yield from _of_volumes(records)


def _counted(records: Records) -> Iterator[str]:
    """Check that every server counts with its flavor, except those that wait to be reclaimed; its request names that
    flavor."""
    specs = {row["server_id"]: decoded(row["spec"], ServerSpec) for row in records.table("request_specs")}
    servers = {row["id"]: row for row in records.table("servers") if not row["deleted"]}
    for mapping in records.table("server_mappings"):
        row = servers.get(mapping["server_id"])
        if row is None or mapping["queued_for_delete"]:
            continue
        flavor, counts = flavor_from(row["flavor"]), row["vm_state"] != SOFT_DELETED or _is_restored(row)
        if bool(mapping["counted"]) != counts:
            yield f"server {row['id']} is {row['vm_state']} and {'counts' if mapping['counted'] else 'does not count'}"
        if (mapping["vcpus"], mapping["memory_mb"]) != (flavor.vcpus, flavor.memory_mb):
            yield f"server {row['id']} counts with {mapping['vcpus']} cores and {mapping['memory_mb']} MB"
        named = specs[row["id"]].flavor.name if row["id"] in specs else flavor.name
        if named != flavor.name:
            yield f"server {row['id']} has flavor {flavor.name}, its request names {named}"


def _is_restored(row: Row) -> bool:
    """Soft-deleted before its records were restored: it is kept, and counts (law 15)."""
    return bool(row["turn_floor"]) and row["turn"] <= row["turn_floor"]


def _of_servers(records: Records) -> Iterator[str]:
    counted: Counter[tuple[str, str, str]] = Counter()
    for mapping in records.table("server_mappings"):
        if mapping["counted"]:
            owner = (mapping["project_id"], mapping["user_id"])
            amounts = {"instances": 1, "cores": mapping["vcpus"], "ram": mapping["memory_mb"]}
            counted.update({(*owner, resource): amount for resource, amount in amounts.items()})
    recorded = {
        (row["project_id"], row["user_id"], resource): row[resource]
        for row in records.table("quota_usages")
        for resource in RESOURCES
    }
    yield from _differences(recorded, counted)


def _of_volumes(records: Records) -> Iterator[str]:
    """Count volumes by type, and over all types (an empty one)."""
    counted: Counter[tuple[str, ...]] = Counter()
    for table, resource in (("volumes", VOLUMES), ("volume_snapshots", SNAPSHOTS)):
        for row in records.table(table):
            for of_type in ("", row["type_id"]):
                counted[row["project_id"], of_type, resource] += 1
                counted[row["project_id"], of_type, GIGABYTES] += row["size"]
    recorded = {
        (row["project_id"], row["type_id"], row["resource"]): row["used"] for row in records.table("volume_usage")
    }
    yield from _differences(recorded, counted)


def _differences(recorded: dict[Any, int], counted: Counter[Any]) -> Iterator[str]:
    for key in sorted({*counted, *recorded}):
        if counted[key] != recorded.get(key, 0):
            project, whose, resource = key
            of = f"{resource} of {whose or 'all'} in project {project}"
            yield f"{of}: {recorded.get(key, 0)} kept, {counted[key]} counted"
