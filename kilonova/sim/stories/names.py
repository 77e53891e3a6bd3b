"""Ids become the names a story uses: servers are called as in its script, operations by kind and server."""

from __future__ import annotations

import re
import uuid

_SPACE = uuid.UUID("5709e500-0000-4000-8000-000000000000")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Names:
    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def server_id(self, name: str) -> str:
        """Return the same id for the same name, in every run."""
        server_id = str(uuid.uuid5(_SPACE, name))
        self._known[server_id] = name
        return server_id

    def rename(self, record_id: str, name: str) -> None:
        self._known[record_id] = name

    def note(self, record_id: str, name: str) -> None:
        self._known.setdefault(record_id, name)

    def of(self, record_id: str | None) -> str:
        return self._known.get(record_id or "", record_id or "")

    def with_names(self, text: str) -> str:
        """The text with every known id replaced."""
        return _UUID.sub(lambda match: self.of(match[0]), text)
