"""The requests that are allowed while a disk has only its reserve: reads, deletes, and those that operators need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilonova.store.reserve import DATABASES, IMAGES, VOLUMES, DiskReserve

if TYPE_CHECKING:
    from kilonova.api.call import Call

WRITES = ("POST", "PUT", "PATCH")
OPERATORS = "/kilonova/v1"
# Requests of our own REST: they write little and may help an operator. `/operations` is judged by the operation.
HELPING = frozenset(
    (
        *("/operations", "/operations/{id}/cancel", "/operations/{id}/resume", "/operations/{id}/abandon", "/plans"),
        *("/findings/{id}/settle", "/hosts/{host}", "/hosts/{host}/quarantine/{server}", "/audits"),
        *("/simulated/hosts/{host}", "/ha"),
    )
)
FREEING_OPERATIONS = frozenset({"delete", "confirm_resize", "host_gone"})
LOGIN = "/auth/tokens"  # writes nothing
# Actions that delete, or without which nothing can be deleted.
FREEING = frozenset(
    (
        *("forceDelete", "confirmResize", "os-force_delete", "os-force_detach", "os-detach"),
        *("os-begin_detaching", "os-roll_detaching", "os-unreserve", "os-terminate_connection", "os-reset_status"),
    )
)
FOLDERS = {"/image": (DATABASES, IMAGES), "/volume/v3": (DATABASES, VOLUMES)}


def refuse_writes(call: Call) -> None:
    """Raise `Refused` for a request that would need room on a disk that has none."""
    if call.request.method not in WRITES or call.route.path == LOGIN or call.route.action in FREEING:
        return
    if call.prefix == OPERATORS and call.route.path in HELPING:
        return
    _require_room(call)


def refuse_operation(call: Call, kind: str) -> None:
    """Raise `Refused` for an operation that would need room on a disk that has none."""
    if kind not in FREEING_OPERATIONS:
        _require_room(call)


def _require_room(call: Call) -> None:
    reserve: DiskReserve | None = getattr(call.service, "reserve", None)  # placement alone has none
    if reserve is not None and reserve.shortage:
        reserve.refuse(*FOLDERS.get(call.prefix, (DATABASES,)))
