"""Bodies of server actions: one key, its arguments below it."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import closed, nothing, wrapped
from kilonova.api.forms import Forms

REBOOT_TYPE = {"type": "string", "enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}
LENGTH = {"type": ["integer", "string", "null"], "pattern": "^-1$|^[0-9]{1,9}$", "minimum": -1, "maximum": 10**9}

START = Forms(nothing("os-start"))
STOP = Forms(nothing("os-stop"))
FORCE_DELETE = Forms(nothing("forceDelete"))
RESTORE = Forms(nothing("restore"))
REBOOT = Forms(wrapped("reboot", closed({"type": REBOOT_TYPE}, "type")))
CONSOLE_OUTPUT = Forms(wrapped("os-getConsoleOutput", closed({"length": LENGTH})))
