"""/snapshots: create, list, show, change, delete, and what administrators say about them."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route
from kilonova.api.volume import forms
from kilonova.api.volume.query import ListOptions, QueryFilter, listed, pairs, text
from kilonova.api.volume.volume_view import time_text
from kilonova.api.volume.wishes import described
from kilonova.domain.errors import Refused
from kilonova.domain.words import is_true
from kilonova.services.volume.volume import SNAPSHOT_STATES, USER, Snapshot

RULE = "volume:"
ADMIN = "volume_extension:snapshot_admin_actions:"
LISTED = ListOptions(
    filters={
        "name": QueryFilter("name", text),
        "display_name": QueryFilter("name", text),
        "description": QueryFilter("description", text),
        "status": QueryFilter("status", text),
        "volume_id": QueryFilter("volume_id", text),
        "metadata": QueryFilter(USER, pairs, since=(3, 22)),
        "id": QueryFilter("id", text, admin=True),
        "project_id": QueryFilter("project_id", text, admin=True),
        "user_id": QueryFilter("user_id", text, admin=True),
    },
    orders={
        **{name: name for name in ("id", "name", "status", "volume_id", "created_at", "updated_at")},
        **{"display_name": "name", "volume_size": "size"},
    },
)


async def snapshot_of(call: Call) -> Snapshot:
    snapshot = await call.service.volumes.snapshots.find(call.caller, call.path["snapshot"])
    call.require(project_id=snapshot.project_id)
    return snapshot


async def create(call: Call) -> Response:
    """Create a snapshot. That of an attached volume needs `force`; from 3.66 on it does not, and force=false is
    refused."""
    wish = call.body["snapshot"]
    force = wish.get("force")
    if force is not None and call.at(3, 66) and not is_true(force):
        raise Refused(400, "Since 3.66 force is always true; leave it out.")
    volume = await call.service.volumes.volumes.find(call.caller, wish["volume_id"] or "")
    call.require(project_id=volume.project_id)
    snapshot = await call.service.volumes.snapshots.create(
        call.caller,
        volume.id,
        in_use=call.at(3, 66) or is_true(force or False),
        metadata=wish.get("metadata") or {},
        **described(wish),
    )
    return answer({"snapshot": made(call, snapshot)}, 202)


async def list_(call: Call) -> Response:
    return await listed(call, "/snapshots", LISTED, call.service.volumes.snapshots.list_, summary)


async def list_detail(call: Call) -> Response:
    return await listed(call, "/snapshots/detail", LISTED, call.service.volumes.snapshots.list_, detail)


async def show(call: Call) -> Response:
    return answer({"snapshot": detail(call, await snapshot_of(call))})


async def update(call: Call) -> Response:
    snapshot = await snapshot_of(call)
    changed = await call.service.volumes.snapshots.describe(call.caller, snapshot.id, described(call.body["snapshot"]))
    return answer({"snapshot": made(call, changed)})


async def delete(call: Call) -> Response:
    snapshot = await snapshot_of(call)
    await call.service.volumes.snapshots.delete(call.caller, snapshot.id)
    return nothing(202)


async def force_delete(call: Call) -> Response:
    snapshot = await snapshot_of(call)
    await call.service.volumes.snapshots.delete(call.caller, snapshot.id, force=True)
    return nothing(202)


async def set_status(call: Call) -> Response:
    """Set the status: `os-reset_status` for administrators, `os-update_snapshot_status` for the service that works on
    it."""
    snapshot, wish = await snapshot_of(call), call.body[call.route.action]
    status = wish["status"].lower()
    if status not in SNAPSHOT_STATES:
        raise Refused(400, f"Snapshot status {status[:80]!r} is not one of {', '.join(sorted(SNAPSHOT_STATES))}.")
    told = {"status": status, **{name: wish[name] for name in ("progress",) if name in wish}}
    await call.service.volumes.snapshots.describe(call.caller, snapshot.id, told)
    return nothing(202)


def summary(call: Call, snapshot: Snapshot) -> dict[str, Content]:
    return {
        "id": snapshot.id,
        "created_at": time_text(snapshot.created_at),
        "updated_at": time_text(snapshot.updated_at),
        "name": snapshot.name,
        "description": snapshot.description,
        "volume_id": snapshot.volume_id,
        "status": snapshot.status,
        "size": snapshot.size,
        "metadata": snapshot.metadata,
    }


def made(call: Call, snapshot: Snapshot) -> dict[str, Content]:
    """Return the attributes that create and update show, not all of them."""
    shown = summary(call, snapshot)
    if call.at(3, 41):
        shown["user_id"] = snapshot.user_id
    if call.at(3, 14):
        shown["group_snapshot_id"] = None
    if call.at(3, 65):
        shown["consumes_quota"] = True
    return shown


def detail(call: Call, snapshot: Snapshot) -> dict[str, Content]:
    shown = made(call, snapshot)
    if call.allows("volume_extension:extended_snapshot_attributes", project_id=snapshot.project_id):
        shown |= {
            "os-extended-snapshot-attributes:project_id": snapshot.project_id,
            "os-extended-snapshot-attributes:progress": snapshot.progress,
        }
    return shown


def _action(key: str, handler: Handler, rule: str, body: Forms) -> Route:
    path = "/snapshots/{snapshot}/action"
    return Route(method="POST", path=path, handler=handler, rule=rule, body=body, action=key)


SNAPSHOT = "/snapshots/{snapshot}"
UPDATE_STATUS = "snapshot_extension:snapshot_actions:update_snapshot_status"
ROUTES = [
    Route(method="POST", path="/snapshots", handler=create, rule=f"{RULE}create_snapshot", body=forms.CREATE_SNAPSHOT),
    Route(method="GET", path="/snapshots", handler=list_, rule=f"{RULE}get_all_snapshots"),
    Route(method="GET", path="/snapshots/detail", handler=list_detail, rule=f"{RULE}get_all_snapshots"),
    Route(method="GET", path=SNAPSHOT, handler=show, rule=f"{RULE}get_snapshot"),
    Route(method="PUT", path=SNAPSHOT, handler=update, rule=f"{RULE}update_snapshot", body=forms.UPDATE_SNAPSHOT),
    Route(method="DELETE", path=SNAPSHOT, handler=delete, rule=f"{RULE}delete_snapshot"),
    _action("os-reset_status", set_status, f"{ADMIN}reset_status", forms.RESET_SNAPSHOT),
    _action("os-force_delete", force_delete, f"{ADMIN}force_delete", forms.bare("os-force_delete")),
    _action("os-update_snapshot_status", set_status, UPDATE_STATUS, forms.SNAPSHOT_STATUS),
]
