"""/snapshots: create, list, show, change, delete, and what administrators say about them."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.content import Content
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route
from kilonova.api.volume import forms
from kilonova.api.volume.body_members import described
from kilonova.api.volume.collection import OWNED_FILTERS, OwnedCollection
from kilonova.api.volume.query import ListOptions, QueryFilter, pairs, text
from kilonova.api.volume.volume_view import time_text
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.services.volume.snapshots import Snapshots
from kilonova.services.volume.volume import SNAPSHOT_STATES, USER, Snapshot

ADMIN = "volume_extension:snapshot_admin_actions:"
OPTIONS = ListOptions(
    filters={
        **OWNED_FILTERS,
        "volume_id": QueryFilter("volume_id", text),
        "metadata": QueryFilter(USER, pairs, since=(3, 22)),
    },
    orders={
        **{name: name for name in ("id", "name", "status", "volume_id", "created_at", "updated_at")},
        **{"display_name": "name", "volume_size": "size"},
    },
)


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
    view = summary(call, snapshot)
    if call.at(3, 41):
        view["user_id"] = snapshot.user_id
    if call.at(3, 14):
        view["group_snapshot_id"] = None
    if call.at(3, 65):
        view["consumes_quota"] = True
    return view


def detail(call: Call, snapshot: Snapshot) -> dict[str, Content]:
    view = made(call, snapshot)
    if call.allows("volume_extension:extended_snapshot_attributes", project_id=snapshot.project_id):
        view |= {
            "os-extended-snapshot-attributes:project_id": snapshot.project_id,
            "os-extended-snapshot-attributes:progress": snapshot.progress,
        }
    return view


class SnapshotCollection(OwnedCollection[Snapshot]):
    body_key, options = "snapshot", OPTIONS
    summary, made, detail = staticmethod(summary), staticmethod(made), staticmethod(detail)

    def records(self, call: Call) -> Snapshots:
        return call.service.volumes.snapshots

    async def add(self, call: Call) -> Snapshot:
        """Create a snapshot. That of an attached volume needs `force`; from 3.66 on it does not, and force=false is
        refused."""
        request = call.body["snapshot"]
        force = request.get("force")
        if force is not None and call.at(3, 66) and not is_true(force):
            raise Refused(400, "Since 3.66 force is always true; leave it out.")
        volume = await call.service.volumes.volumes.find(call.caller, request["volume_id"] or "")
        call.require(project_id=volume.project_id)
        return await self.records(call).create(
            call.caller,
            volume.id,
            in_use=call.at(3, 66) or is_true(force or False),
            metadata=request.get("metadata") or {},
            **described(request),
        )

    async def drop(self, call: Call, record: Snapshot) -> None:
        await self.records(call).delete(call.caller, record.id)


async def force_delete(call: Call) -> Response:
    snapshot = await snapshot_of(call)
    await call.service.volumes.snapshots.delete(call.caller, snapshot.id, force=True)
    return nothing(202)


async def set_status(call: Call) -> Response:
    """Set the status: `os-reset_status` for administrators, `os-update_snapshot_status` for the service that works on
    it."""
    snapshot, request = await snapshot_of(call), call.body[call.route.action]
    status = request["status"].lower()
    if status not in SNAPSHOT_STATES:
        raise Refused(400, f"Snapshot status {status[:80]!r} is not one of {', '.join(sorted(SNAPSHOT_STATES))}.")
    changes = {"status": status, **{name: request[name] for name in ("progress",) if name in request}}
    await call.service.volumes.snapshots.describe(call.caller, snapshot.id, changes)
    return nothing(202)


def _action(key: str, handler: Handler, rule: str, body: Forms) -> Route:
    path = "/snapshots/{snapshot}/action"
    return Route(method="POST", path=path, handler=handler, rule=rule, body=body, action=key)


SNAPSHOTS = SnapshotCollection()
snapshot_of = SNAPSHOTS.find
UPDATE_STATUS = "snapshot_extension:snapshot_actions:update_snapshot_status"
ROUTES = [
    *SNAPSHOTS.routes("_snapshot", forms.CREATE_SNAPSHOT, forms.UPDATE_SNAPSHOT),
    _action("os-reset_status", set_status, f"{ADMIN}reset_status", forms.RESET_SNAPSHOT),
    _action("os-force_delete", force_delete, f"{ADMIN}force_delete", forms.bare("os-force_delete")),
    _action("os-update_snapshot_status", set_status, UPDATE_STATUS, forms.SNAPSHOT_STATUS),
]
