"""Logs of a process: one line per event, as text or JSON, on stderr.

Modules log with the standard library, as `logger.info("host state changed: host=%s state=%s", …)` or with `extra={…}`;
structlog's formatter turns both into fields. What a request logs carries its id.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structlog.typing import EventDict

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FIELD = re.compile(r"(\w+)=%(?:\.\d+)?[srdfg]")
_ANY = re.compile(r"%(?:\.\d+)?[srdfgo%]|%0\d+o")


def set_up(level: str, *, use_json: bool) -> None:
    """Our own lines from `level` on, those of libraries from WARNING on."""
    import structlog

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    last: Any = _json() if use_json else _text
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _take_fields if use_json else _drop_arguments],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            last,
        ],
        pass_foreign_args=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("kilonova").setLevel(level)


def _take_fields(_: Any, __: str, event: EventDict) -> EventDict:
    """`name=%s` in a message becomes a field, and goes from the text."""
    template, arguments = event["_record"].msg, event.pop("positional_args", ())
    if not isinstance(template, str) or not isinstance(arguments, tuple) or "=%" not in template:
        return event
    placeholders = [match for match in _ANY.finditer(template) if match.group() != "%%"]
    if len(placeholders) != len(arguments):
        return event
    by_end = {match.end(): match.group(1) for match in _FIELD.finditer(template)}
    text, left, at = "", [], 0
    for match, value in zip(placeholders, arguments, strict=True):
        name = by_end.get(match.end())
        if name is None:
            left.append(value)
        else:
            event.setdefault(name, value if isinstance(value, int | float | None) else str(value))
            text += template[at : match.start() - len(name) - 1]
            at = match.end()
    text += template[at:]
    event["event"] = (text % tuple(left)).strip().rstrip(":,; ")
    return event


def _drop_arguments(_: Any, __: str, event: EventDict) -> EventDict:
    event.pop("positional_args", None)
    return event


def _json() -> Any:
    import msgspec
    import structlog

    return structlog.processors.JSONRenderer(
        serializer=lambda event, **_: msgspec.json.encode(event, enc_hook=str).decode()
    )


def _text(_: Any, __: str, event: EventDict) -> str:
    """A line end in a value would let a client write lines of its own."""
    time, level = event.pop("timestamp", ""), str(event.pop("level", "")).upper()
    name, said, trace = event.pop("logger", ""), str(event.pop("event", "")), event.pop("exception", None)
    fields = "".join(f" {key}={value}" for key, value in event.items())
    line = f"{time} {level} {name}: {said}{fields}".replace("\r", "\\r").replace("\n", "\\n")
    return f"{line}\n{trace}" if trace else line
