"""Database URLs: `sqlite:///PATH` (four slashes for an absolute path) or `postgresql://…[?schema=NAME]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from kilonova.domain.errors import StoreError

_SQLITE = "sqlite:///"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class SqliteUrl:
    path: Path

    def __str__(self) -> str:
        return f"{_SQLITE}{self.path}"


@dataclass(frozen=True)
class PostgresUrl:
    dsn: str  # as the driver takes it, without our own parameter
    schema: str | None

    def __str__(self) -> str:
        """Fit for a message: without the password."""
        parts = urlsplit(self.dsn)
        redacted = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"{redacted}?schema={self.schema}" if self.schema else redacted


def parse_url(url: str) -> SqliteUrl | PostgresUrl:
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return SqliteUrl(Path(url[len(_SQLITE) :]))
    if url.startswith(("postgresql://", "postgres://")):
        return _parse_postgres(url)
    redacted = url.partition("://")[0] + "://…" if "://" in url else url
    raise StoreError(
        f"{redacted} is not a database address; use sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE"
    )


def _parse_postgres(url: str) -> PostgresUrl:
    parts = urlsplit(url)
    query = parse_qsl(parts.query)
    schema = dict(query).get("schema")
    if schema is not None and not _SCHEMA_NAME.fullmatch(schema):
        raise StoreError(f"{schema!r} is not a schema name; use lower-case letters, digits and _")
    rest = urlencode([(key, value) for key, value in query if key != "schema"])
    return PostgresUrl(urlunsplit(parts._replace(query=rest)), schema)
