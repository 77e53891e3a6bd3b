"""The cause of an operation: its author and request, passed on from the person or monitor to the last log line."""

from __future__ import annotations

import msgspec


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The user behind a request, the way it came, and the given reason."""

    user_id: str
    project_id: str
    through: str  # api, cli, story, periodic, operation <id>
    request_id: str
    reason: str = ""
    is_admin: bool = False
