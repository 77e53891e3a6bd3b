"""`status` as the API shows it: vm_state, and task_state where it says more. One table, read both ways."""

from __future__ import annotations

from collections.abc import Iterable

_REBOOT = dict.fromkeys(("rebooting", "reboot_pending", "reboot_started"), "REBOOT")
_HARD_REBOOT = dict.fromkeys(("rebooting_hard", "reboot_pending_hard", "reboot_started_hard"), "HARD_REBOOT")
_REBUILD = dict.fromkeys(("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"), "REBUILD")
_RESIZE = dict.fromkeys(("resize_prep", "resize_migrating", "resize_migrated", "resize_finish"), "RESIZE")
_MIGRATING = {"migrating": "MIGRATING"}

STATUS: dict[str, tuple[str, dict[str, str]]] = {
    "active": (
        "ACTIVE",
        {**_REBOOT, **_HARD_REBOOT, "updating_password": "PASSWORD", **_REBUILD, **_MIGRATING, **_RESIZE},
    ),
    "building": ("BUILD", {}),
    "stopped": ("SHUTOFF", {**_RESIZE, **_REBUILD}),
    "resized": ("VERIFY_RESIZE", {"resize_reverting": "REVERT_RESIZE"}),
    "paused": ("PAUSED", _MIGRATING),
    "suspended": ("SUSPENDED", {}),
    "rescued": ("RESCUE", {}),
    "error": ("ERROR", _REBUILD),
    "deleted": ("DELETED", {}),
    "soft-delete": ("SOFT_DELETED", {}),
    "shelved": ("SHELVED", {}),
    "shelved_offloaded": ("SHELVED_OFFLOADED", {}),
}
UNKNOWN = "UNKNOWN"
WITH_FAULT = frozenset({"ERROR", "DELETED"})
WITH_PROGRESS = frozenset({"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"})


def status_of(vm_state: str, task_state: str | None) -> str:
    plain, others = STATUS.get(vm_state, (UNKNOWN, {}))
    return others.get(task_state, plain) if task_state else plain


def vm_states_of(statuses: Iterable[str]) -> set[str]:
    """Return the vm_states that may show one of these statuses; empty if none is known."""
    wanted = {status.upper() for status in statuses}
    return {
        vm_state
        for vm_state, (plain, others) in STATUS.items()
        if plain in wanted or wanted.intersection(others.values())
    }
