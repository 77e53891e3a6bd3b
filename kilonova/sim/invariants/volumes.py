"""The invariants of compute's attachments: they belong to living servers, and are connected where those may run. The
attachments that clients make themselves are not checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kilonova.domain.json import JsonObject, as_list, as_object, json_object
from kilonova.domain.volume import server_volumes
from kilonova.sim.lab.records import Records
from kilonova.world import Row


def at_any_time(records: Records) -> Iterator[str]:
    """Yield attachments of deleted servers: a server is deleted after its attachments, and unmapped after that; a late
    new one is refused."""
    deleted = {row["id"] for row in records.table("servers") if row["deleted"]}
    mapped = {row["server_id"] for row in records.table("server_mappings") if not row["queued_for_delete"]}
    left = records.unsettled()
    for one in _computes(records):
        if one["server_id"] in left:
            continue
        if one["server_id"] in deleted:
            yield f"attachment {one['id']} is of {one['server_id']}, which is deleted"
        elif one["server_id"] not in mapped:
            yield f"attachment {one['id']} is of {one['server_id']}, which is mapped nowhere"
    yield from _shared(records)


def _computes(records: Records) -> list[Row]:
    return [one for one in records.table("volume_attachments") if one["turn"] > 0]


def _shared(records: Records) -> Iterator[str]:
    """Yield volumes that are attached several times without multiattach."""
    holders: dict[str, set[str]] = {}
    for one in records.table("volume_attachments"):
        holders.setdefault(one["volume_id"], set()).add(one["server_id"])
    for volume in records.table("volumes"):
        servers = sorted(holders.pop(volume["id"], ()))
        if len(servers) > 1 and not volume["multiattach"]:
            yield f"volume {volume['name'] or volume['id']} is attached to {servers}"
    for volume_id, left in sorted(holders.items()):
        yield f"{sorted(left)} hold the volume {volume_id}, which is nowhere"


def at_rest(records: Records) -> Iterator[str]:
    servers = {row["id"]: row for row in records.table("servers") if not row["deleted"]}
    attached, left = _computes(records), records.unsettled()
    for one in attached:
        if one["server_id"] in left:
            continue
        if one["server_id"] not in servers:
            yield f"attachment {one['id']} is of {one['server_id']}, which is nowhere"
        else:
            yield from _whole(one, servers[one["server_id"]])
    for server in servers.values():
        recorded = {(one.volume_id, one.attachment_id) for one in server_volumes(server["volume_info"])}
        true = {(one["volume_id"], one["id"]) for one in attached if one["server_id"] == server["id"]}
        if recorded != true and server["id"] not in left:
            yield f"server {server['id']}: its record has the volumes {sorted(recorded)}, the service {sorted(true)}"
    held = {one["volume_id"] for one in records.table("volume_attachments")}
    requests = {
        op["server_id"]: json_object(op["params"]) for op in records.table("operations") if op["kind"] == "place"
    }
    snapshotted = {one["volume_id"] for one in records.table("volume_snapshots")}  # the service refuses to delete those
    for volume in records.table("volumes"):
        name = volume["name"] or volume["id"]
        if volume["id"] not in held and volume["status"] not in ("available", "deleting"):
            yield f"volume {name} is {volume['status']}, and no server has it"
        stays = volume["status"] == "deleting" or volume["id"] in snapshotted
        if volume["created_for"] not in servers and not stays and _goes(volume, requests):
            yield f"volume {name} was to go with {volume['created_for']}, which is gone"


def _goes(volume: Row, requests: Mapping[str, JsonObject]) -> bool:
    """Return True if the volume is deleted with the server that it was made for, by the create request."""
    wanted = as_list(requests.get(volume["created_for"], {}).get("volumes"))
    request = as_object(wanted[volume["created_slot"]]) if wanted else {}
    return bool(volume["goes_with_server"] or request.get("delete_on_termination"))


def _whole(one: Row, server: Row) -> Iterator[str]:
    """Check that the guest has the volume where it may run."""
    if one["status"] != "attached":
        yield f"attachment {one['id']} of server {server['id']} is only {one['status']}"
    if one["host"] != server["runner_host"]:
        yield f"attachment {one['id']} is connected to {one['host']}, its server runs on {server['runner_host']}"
