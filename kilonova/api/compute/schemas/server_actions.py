"""Bodies of server actions: one key, its arguments below it."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import (
    BOOLEAN,
    DISK_CONFIG,
    FLAVOR_REF,
    HOST_NAME,
    METADATA,
    NAME,
    closed,
    nothing,
    wrapped,
)
from kilonova.api.forms import Forms, Schema

REBOOT_TYPE: Schema = {"type": "string", "enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}
LENGTH: Schema = {
    "type": ["integer", "string", "null"],
    "pattern": "^-1$|^[0-9]{1,9}$",
    "minimum": -1,
    "maximum": 10**9,
}

START = Forms(nothing("os-start"))
STOP = Forms(nothing("os-stop"))
FORCE_DELETE = Forms(nothing("forceDelete"))
RESTORE = Forms(nothing("restore"))
REBOOT = Forms(wrapped("reboot", closed({"type": REBOOT_TYPE}, "type")))
CONSOLE_OUTPUT = Forms(wrapped("os-getConsoleOutput", closed({"length": LENGTH})))
RESET_STATE = Forms(
    wrapped("os-resetState", closed({"state": {"type": "string", "enum": ["active", "error"]}}, "state"))
)
CREATE_IMAGE = Forms(wrapped("createImage", closed({"name": NAME, "metadata": METADATA}, "name")))

MIGRATE = Forms(
    {
        (2, 1): nothing("migrate"),
        (2, 56): wrapped(
            "migrate", {**closed({"host": {**HOST_NAME, "type": ["string", "null"]}}), "type": ["object", "null"]}
        ),
    }
)
CONFIRM_RESIZE = Forms(nothing("confirmResize"))
REVERT_RESIZE = Forms(nothing("revertResize"))
FORCE_COMPLETE = Forms(wrapped("force_complete", {"type": "null"}))

RESIZE = Forms(wrapped("resize", closed({"flavorRef": FLAVOR_REF, "OS-DCF:diskConfig": DISK_CONFIG}, "flavorRef")))

_TARGET: Schema = {"host": HOST_NAME, "adminPass": {"type": "string"}}
EVACUATE = Forms(
    {
        (2, 1): wrapped("evacuate", closed({**_TARGET, "onSharedStorage": BOOLEAN}, "onSharedStorage")),
        (2, 14): wrapped("evacuate", closed(_TARGET)),
        (2, 29): wrapped("evacuate", closed({**_TARGET, "force": BOOLEAN})),
        (2, 68): wrapped("evacuate", closed(_TARGET)),
    }
)
