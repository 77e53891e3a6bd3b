"""Logs of a process: one line per event, as text or JSON, on stderr.

Modules log with the standard library, as `logger.info("host state changed: host=%s state=%s", …)` or with `extra={…}`;
both become fields. Lines of a request have its id, bound with structlog's contextvars; lines of a conductor or an agent
that works on an operation have the operation's. structlog's own formatter for such records costs four times as much as
this one, and a create writes three lines (bench/seen.py).
"""

from __future__ import annotations

import logging
import re
import sys
import time
from abc import ABC, abstractmethod
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from kilonova.domain.visible import visible, visible_json

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
OPERATION: ContextVar[str] = ContextVar("the operation that this task works on", default="")
Fields = dict[str, Any]
_FIELD = re.compile(r"(\w+)=%(?:\.\d+)?[srdfg]")
_ANY = re.compile(r"%(?:\.\d+)?[srdfgo%]|%0\d+o")
_OF_RECORDS = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"})


def set_up(level: str, *, use_json: bool) -> None:
    """Log our own lines from `level` on, those of libraries from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if use_json else _Text())
    # skip data that no line shows
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("kilonova").setLevel(level)


class _Formatter(logging.Formatter, ABC):
    def __init__(self) -> None:
        from structlog.contextvars import get_contextvars

        super().__init__()
        self._bound = get_contextvars

    def format(self, record: logging.LogRecord) -> str:
        fields = self._bound()
        if operation := OPERATION.get():
            fields["operation"] = operation
        fields |= {key: record.__dict__[key] for key in sorted(record.__dict__.keys() - _OF_RECORDS)}  # `extra`
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        return self.line(record, fields, trace)

    @abstractmethod
    def line(self, record: logging.LogRecord, fields: Fields, trace: str) -> str:
        """Return the record as one line, with its fields and its traceback."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return f"{_second(int(record.created))}.{int(record.created % 1 * 1e6):06d}Z"


@lru_cache(maxsize=4)
def _second(number: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(number))


@lru_cache(maxsize=1024)
def _parse(template: str) -> tuple[tuple[str | None, ...], str]:
    """Return the field name of each argument (None if it stays in the text), and the text without the fields.

    It is cached for each log line of the code: it costs more than the rest of a log line.
    """
    by_end = {match.end(): match.group(1) for match in _FIELD.finditer(template)}
    names: list[str | None] = []
    text, at = "", 0
    for match in _ANY.finditer(template):
        if match.group() == "%%":
            continue
        names.append(name := by_end.get(match.end()))
        if name is not None:
            text += template[at : match.start() - len(name) - 1]
            at = match.end()
    return tuple(names), text + template[at:]


class _Json(_Formatter):
    def __init__(self) -> None:
        import msgspec

        super().__init__()
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def line(self, record: logging.LogRecord, fields: Fields, trace: str) -> str:
        """`name=%s` in a message becomes a field, and goes from the text."""
        template, arguments = record.msg, record.args
        names: tuple[str | None, ...] = ()
        if isinstance(template, str) and isinstance(arguments, tuple):
            names, text = _parse(template)
        if names and len(names) == len(arguments or ()):
            left = []
            for name, value in zip(names, arguments or (), strict=True):
                if name is None:
                    left.append(value)
                else:  # a line's own field takes precedence over the bound ones
                    fields[name] = value if isinstance(value, int | float | None) else str(value)
            event = (text % tuple(left)).strip().rstrip(":,; ")
        else:
            event = record.getMessage()
        fields |= {"event": event, "level": record.levelname.lower(), "logger": record.name}
        fields["timestamp"] = self.formatTime(record)
        if trace:
            fields["exception"] = trace
        return visible_json(self._encode(fields).decode())


class _Text(_Formatter):
    def line(self, record: logging.LogRecord, fields: Fields, trace: str) -> str:
        """Format a record, with control characters escaped: a line end in a value would let a client write its own
        lines."""
        said = record.getMessage()
        around = f" {said} "
        more = "".join(f" {key}={value}" for key, value in fields.items() if f" {key}={value} " not in around)
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {said}{more}"
        return "\n".join(map(visible, (line, *(trace.split("\n") if trace else ()))))
