"""/servers/{id}/ledger: every claim of a server and of its migrations, from the first on."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.domain.errors import Refused
from kilonova.placement.history import Line, read_history
from kilonova.store.operations import operations_by_turn


async def show(call: Call) -> Response:
    """Show the ledger of a server, also of a deleted one, or of a migration by its id."""
    server = call.path["id"]
    lines = await read_history(call.db.placement, server)
    if not lines:
        raise Refused("not_found", f"server {server}: it has never had an allocation")
    operations = await operations_by_turn(call.db, server)
    return answer({"ledger": [_view(line, operations) for line in lines]})


def _view(line: Line, operations: dict[int, tuple[str, str]]) -> dict[str, Content]:
    operation, kind = (operations.get(line.turn) if line.turn is not None else None) or (None, None)
    return {**msgspec.structs.asdict(line), "operation": operation, "operation_kind": kind}
