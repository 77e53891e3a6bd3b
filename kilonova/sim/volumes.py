"""What must be true of attachments: they belong to servers that live, and are connected where those may run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kilonova.domain.volume import server_volumes
from kilonova.sim.records import Records


def at_any_time(records: Records) -> Iterator[str]:
    """A server is deleted after its attachments; whoever comes late with a new one is refused."""
    deleted = {row["id"] for row in records.table("servers") if row["deleted"]}
    for one in records.table("volume_attachments"):
        if one["server_id"] in deleted:
            yield f"attachment {one['id']} is of {one['server_id']}, which is deleted"


def at_rest(records: Records) -> Iterator[str]:
    servers = {row["id"]: row for row in records.table("servers") if not row["deleted"]}
    attached = records.table("volume_attachments")
    for one in attached:
        if one["server_id"] not in servers:
            yield f"attachment {one['id']} is of {one['server_id']}, which is nowhere"
        else:
            yield from _whole(one, servers[one["server_id"]])
    for server in servers.values():
        recorded = {(one.volume_id, one.attachment_id) for one in server_volumes(server["volume_info"])}
        true = {(one["volume_id"], one["id"]) for one in attached if one["server_id"] == server["id"]}
        if recorded != true:
            yield f"server {server['id']}: its record has the volumes {sorted(recorded)}, the service {sorted(true)}"
    held = {one["volume_id"] for one in attached}
    for volume in records.table("volumes"):
        if volume["id"] not in held and volume["status"] not in ("available", "deleting"):
            yield f"volume {volume['name']} is {volume['status']}, and no server has it"


def _whole(one: dict[str, Any], server: dict[str, Any]) -> Iterator[str]:
    """The guest has it, where the guest may run."""
    if one["status"] != "attached":
        yield f"attachment {one['id']} of server {server['id']} is only {one['status']}"
    if one["host"] != server["runner_host"]:
        yield f"attachment {one['id']} is connected to {one['host']}, its server runs on {server['runner_host']}"
