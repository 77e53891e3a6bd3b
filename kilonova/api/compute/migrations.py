"""/os-migrations: moves of servers, the newest first, from every cell that answers."""

from __future__ import annotations

import zlib

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.paging import limit_of, time_of
from kilonova.api.compute.schemas.types import NON_NEGATIVE, UUID, closed, texts
from kilonova.api.compute.server_view import microseconds
from kilonova.api.content import Content
from kilonova.api.forms import Forms, Schema
from kilonova.api.queries import list_body
from kilonova.api.routes import Route, Version
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.server import flavor_from
from kilonova.services.compute.migrations import MigrationFilter, find_move, read_moves
from kilonova.world import Row

RULE = "os_compute_api:os-migrations:index"
ROUNDED = 1e-6  # seconds between a recorded time and the shown one, which clients send back
_FILTERS: Schema = {
    name: texts() for name in ("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type")
}
_PAGED = {**_FILTERS, "limit": texts(NON_NEGATIVE), "marker": texts(UUID), "changes-since": texts()}
_BEFORE = {**_PAGED, "changes-before": texts()}
_LIST: dict[Version, Schema] = {
    (2, 1): {"type": "object", "properties": _FILTERS},
    (2, 59): closed(_PAGED),
    (2, 66): closed(_BEFORE),
    (2, 80): closed({**_BEFORE, "user_id": texts(), "project_id": texts()}),
}
LIST = Forms(_LIST)


async def list_(call: Call) -> Response:
    filters, after, limit = _filters(call), None, None
    if call.at(2, 59):
        after, limit = await _marker(call), limit_of(call)
    hidden = is_true(call.query.get("hidden") or False)  # none is: Nova uses it for live migrations only
    migrations = [] if hidden else await read_moves(call.db, filters, limit=limit, after=after)
    views = [_view(call, row) for row in migrations]
    if limit is None:
        return answer({"migrations": views})
    return answer(list_body(call, "/os-migrations", "migrations", views, limit, by="uuid"))


async def _marker(call: Call) -> Row | None:
    marker = call.query.get("marker")
    migration = await find_move(call.db, marker) if marker else None
    if marker and (migration is None or migration["project_id"] != (_project(call) or migration["project_id"])):
        raise Refused(400, f"Marker {marker[:60]} could not be found.")
    return migration


def _project(call: Call) -> str | None:
    """Return the project to filter by: the caller's own, unless a rule allows all projects."""
    project = call.query.get("project_id") if call.at(2, 80) else None
    if call.allows(f"{RULE}:all_projects"):
        return project
    if project not in (None, call.caller.project_id):
        raise Refused(403, f"Policy doesn't allow {RULE}:all_projects to be performed.")
    return call.caller.project_id


def _filters(call: Call) -> MigrationFilter:
    query = call.query
    if query.get("host") or query.get("source_compute"):
        call.require(f"{RULE}:host")  # else the filter would reveal what the fields do not
    since, before = query.get("changes-since"), query.get("changes-before")
    earliest = time_of(since, "changes-since") if since and call.at(2, 59) else None
    latest = time_of(before, "changes-before") if before and call.at(2, 66) else None
    if earliest is not None and latest is not None and latest < earliest:
        raise Refused(400, "The value of changes-since must be less than or equal to changes-before.")
    return MigrationFilter(
        server=query.get("instance_uuid"),
        status=query.get("status"),
        kind=query.get("migration_type"),
        host=query.get("host"),
        source=query.get("source_compute"),
        project=_project(call),
        user=query.get("user_id") if call.at(2, 80) else None,
        since=None if earliest is None else earliest - ROUNDED,
        before=None if latest is None else latest + ROUNDED,
    )


def _type_number(flavor: str) -> int:
    """Return the integer that Nova shows beside a flavor's id; here it is computed from the id."""
    flavor_id = flavor_from(flavor).id
    return int(flavor_id) if flavor_id.isdigit() and len(flavor_id) < 10 else zlib.crc32(flavor_id.encode())


def _view(call: Call, row: Row) -> dict[str, Content]:
    """Return a migration as shown to the caller. Leave out the hosts if the caller may not see them."""
    known = call.allows(f"{RULE}:host")
    source, destination = (row["source_host"], row["dest_host"]) if known else (None, None)
    attributes = {
        "id": row["number"],
        "created_at": microseconds(row["created_at"]),
        "updated_at": microseconds(row["updated_at"]),
        "instance_uuid": row["server_id"],
        "old_instance_type_id": _type_number(row["old_flavor"]),
        "new_instance_type_id": _type_number(row["new_flavor"]),
        "source_compute": source,
        "source_node": source,
        "dest_compute": destination,
        "dest_node": destination,
        "dest_host": destination,
        "status": row["status"],
    }
    if call.at(2, 23):
        attributes["migration_type"] = row["kind"]
    if call.at(2, 59):
        attributes["uuid"] = row["id"]
    if call.at(2, 80):
        attributes |= {"user_id": row["user_id"], "project_id": row["project_id"]}
    return attributes


ROUTES = [Route(method="GET", path="/os-migrations", handler=list_, rule=RULE, query=LIST)]
