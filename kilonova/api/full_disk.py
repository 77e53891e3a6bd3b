"""What is still done while a disk has nothing but its reserve: reads, deletes, and what an operator needs to help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilonova.store.reserve import DATABASES, IMAGES, VOLUMES, DiskReserve

if TYPE_CHECKING:
    from kilonova.api.call import Call

WRITES = ("POST", "PUT", "PATCH")
OPERATORS = "/kilonova/v1"  # an administrator's word is short, and may be what helps
LOGIN = "/auth/tokens"  # writes nothing
# Actions that delete, or without which nothing can be deleted.
FREEING = frozenset(
    (
        *("forceDelete", "removeFloatingIp", "os-force_delete", "os-force_detach", "os-detach", "os-begin_detaching"),
        *("os-roll_detaching", "os-unreserve", "os-terminate_connection", "os-reset_status"),
    )
)
FOLDERS = {"/image": (DATABASES, IMAGES), "/volume/v3": (DATABASES, VOLUMES)}


def refuse_writes(call: Call) -> None:
    """Raise `Refused` for a request that would need room on a disk that has none."""
    reserve: DiskReserve | None = getattr(call.service, "reserve", None)  # placement alone has none
    if reserve is None or not reserve.shortage or call.request.method not in WRITES:
        return
    if call.prefix == OPERATORS or call.route.path == LOGIN or call.route.action in FREEING:
        return
    reserve.refuse(*FOLDERS.get(call.prefix, (DATABASES,)))
