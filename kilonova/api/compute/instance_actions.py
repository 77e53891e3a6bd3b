"""/servers/{server}/os-instance-actions: the operations on a server, who requested them, and how their steps ended."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.paging import limit_of, time_of
from kilonova.api.compute.schemas.types import NON_NEGATIVE, texts
from kilonova.api.compute.server import server_of
from kilonova.api.compute.server_view import host_id, microseconds
from kilonova.api.content import Content
from kilonova.api.forms import Forms, Schema
from kilonova.api.queries import list_body
from kilonova.api.routes import Route, Version
from kilonova.domain.errors import Refused
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.server_records import ServerRecord
from kilonova.world import Row, Tx

RULE = "os_compute_api:os-instance-actions:"
_PAGED = {"limit": texts(NON_NEGATIVE), "marker": texts(), "changes-since": texts()}
_LIST: dict[Version, Schema] = {
    (2, 1): {"type": "object"},
    (2, 58): {"type": "object", "properties": _PAGED, "additionalProperties": False},
    (2, 66): {"type": "object", "properties": {**_PAGED, "changes-before": texts()}, "additionalProperties": False},
}
LIST = Forms(_LIST)


async def list_(call: Call) -> Response:
    record = await server_of(call, deleted=call.at(2, 21))
    actions = sorted(await _actions(call, record), key=lambda row: -int(row["number"]))
    if not call.at(2, 58):
        return answer({"instanceActions": [_action(call, row) for row in actions]})
    actions = _changed(call, actions)
    limit, marker = limit_of(call), call.query.get("marker")
    if marker:
        at = next((n for n, row in enumerate(actions) if row["request_id"] == marker), None)
        if at is None:
            raise Refused(400, f"marker [{marker[:60]}] not found")
        actions = actions[at + 1 :]
    views = [_action(call, row) for row in actions[:limit]]
    path = f"/servers/{record.id}/os-instance-actions"
    return answer(list_body(call, path, "instanceActions", views, limit, by="request_id", links="links"))


def _changed(call: Call, actions: list[Row]) -> list[Row]:
    since, before = call.query.get("changes-since"), call.query.get("changes-before")
    earliest = time_of(since, "changes-since") if since else None
    latest = time_of(before, "changes-before") if before else None
    if earliest is not None and latest is not None and latest < earliest:
        raise Refused(400, "The value of changes-since must be less than or equal to changes-before.")
    return [
        row
        for row in actions
        if (earliest is None or row["updated_at"] >= earliest) and (latest is None or row["updated_at"] <= latest)
    ]


async def show(call: Call) -> Response:
    record = await server_of(call, deleted=call.at(2, 21))
    request_id = call.path["request"]
    actions = [row for row in await _actions(call, record) if row["request_id"] == request_id]
    if not actions:
        raise Refused(404, f"Action for request_id {request_id[:80]} on instance {record.id} not found")
    attributes = _action(call, actions[-1])
    may_see_all = call.allows(f"{RULE}events", project_id=record.project_id)
    if may_see_all or call.at(2, 51):
        events = await _events(call, record, actions[-1]["operation_id"])
        attributes["events"] = [_event(call, record, event, may_see_all) for event in events]
    return answer({"instanceAction": attributes})


async def _actions(call: Call, record: ServerRecord) -> list[Row]:
    async def body(tx: Tx) -> list[Row]:
        return list(await rows.fetch_all(tx, cell.actions, server_id=record.id))

    return [] if record.cell is None else await call.db.cell(record.cell).read(body)


async def _events(call: Call, record: ServerRecord, operation_id: str) -> list[Row]:
    async def body(tx: Tx) -> list[Row]:
        return list(await rows.fetch_all(tx, cell.action_events, operation_id=operation_id))

    events = await call.db.cell(record.cell or "").read(body)
    return sorted(events, key=lambda row: -int(row["position"]))  # Nova lists the newest first


def _action(call: Call, row: Row) -> dict[str, Content]:
    attributes = {
        "action": row["action"],
        "instance_uuid": row["server_id"],
        "request_id": row["request_id"],
        "user_id": row["user_id"],
        "project_id": row["project_id"],
        "start_time": microseconds(row["started_at"]),
        "message": row["message"],
    }
    if call.at(2, 58):
        attributes["updated_at"] = microseconds(row["updated_at"])
    return attributes


def _event(call: Call, record: ServerRecord, row: Row, may_see_all: bool) -> dict[str, Content]:
    attributes: dict[str, Content] = {
        "event": row["event"],
        "start_time": microseconds(row["started_at"]),
        "finish_time": microseconds(row["finished_at"]),
        "result": row["result"],
    }
    if may_see_all:
        attributes["traceback"] = row["details"]
    if call.at(2, 62):
        attributes["hostId"] = host_id(record.project_id, row["host"]) if row["host"] else ""
        if may_see_all:
            attributes["host"] = row["host"]
    if call.at(2, 84) and call.allows(f"{RULE}events:details", project_id=record.project_id):
        attributes["details"] = row["details"]
    return attributes


BASE = "/servers/{server}/os-instance-actions"
ROUTES = [
    Route(method="GET", path=BASE, handler=list_, rule=f"{RULE}list", query=LIST),
    Route(method="GET", path=f"{BASE}/{{request}}", handler=show, rule=f"{RULE}show"),
]
