"""Bodies of server actions: one key, its arguments below it."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import BOOLEAN, HOST_NAME, closed, nothing, wrapped
from kilonova.api.forms import Forms

REBOOT_TYPE = {"type": "string", "enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}
LENGTH = {"type": ["integer", "string", "null"], "pattern": "^-1$|^[0-9]{1,9}$", "minimum": -1, "maximum": 10**9}

START = Forms(nothing("os-start"))
STOP = Forms(nothing("os-stop"))
FORCE_DELETE = Forms(nothing("forceDelete"))
RESTORE = Forms(nothing("restore"))
REBOOT = Forms(wrapped("reboot", closed({"type": REBOOT_TYPE}, "type")))
CONSOLE_OUTPUT = Forms(wrapped("os-getConsoleOutput", closed({"length": LENGTH})))

_TARGET = {"host": HOST_NAME, "adminPass": {"type": "string"}}
EVACUATE = Forms(
    {
        (2, 1): wrapped("evacuate", closed({**_TARGET, "onSharedStorage": BOOLEAN}, "onSharedStorage")),
        (2, 14): wrapped("evacuate", closed(_TARGET)),
        (2, 29): wrapped("evacuate", closed({**_TARGET, "force": BOOLEAN})),
        (2, 68): wrapped("evacuate", closed(_TARGET)),
    }
)
