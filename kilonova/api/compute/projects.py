"""Check that a project named in a request exists."""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.services.identity.projects import PROJECT


async def check_project(call: Call, project: str) -> None:
    """Check that the project exists. A limit or a right for a misspelt project would be lost silently."""
    if project == call.caller.project_id:
        return
    record = await call.service.identity.records.find(PROJECT, project)
    if record is None or record["is_domain"]:
        raise Refused(400, f"Project ID {project[:255]} is not a valid project.")
