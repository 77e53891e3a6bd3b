"""/servers/{server}/migrations: live migrations in progress. There are none in this version; other moves are listed by
/os-migrations."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.schemas import server_actions as schemas
from kilonova.api.compute.server import server_of
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.services.compute.migrations import MigrationFilter, read_moves
from kilonova.world import Row

RULE = "os_compute_api:servers:migrations"


async def list_(call: Call) -> Response:
    await server_of(call)
    return answer({"migrations": []})


async def show(call: Call) -> Response:
    move = await _move(call)
    raise Refused(404, f"Migration {move['number']} for server {move['server_id']} is not live-migration.")


async def force_complete(call: Call) -> Response:
    raise _not_live(await _move(call), "force_complete")


async def abort(call: Call) -> Response:
    raise _not_live(await _move(call), "abort live migration")


def _not_live(move: Row, verb: str) -> Refused:
    text = f"Migration {move['number']} state of instance {move['server_id']} is {move['status']}. Cannot {verb} while"
    return Refused(400, f"{text} the migration is in this state: it is not a live migration.")


async def _move(call: Call) -> Row:
    """Return the migration. Raise `Refused` if the server has no migration with that number."""
    record, number = await server_of(call), call.path["migration"]
    for row in await read_moves(call.db, MigrationFilter(server=record.id)):
        if str(row["number"]) == number:
            return row
    raise Refused(404, f"Migration {number[:40]} not found for instance {record.id}")


_ONE = "/servers/{server}/migrations/{migration}"
ROUTES = [
    Route(method="GET", path="/servers/{server}/migrations", handler=list_, rule=f"{RULE}:index", since=(2, 23)),
    Route(method="GET", path=_ONE, handler=show, rule=f"{RULE}:show", since=(2, 23)),
    Route(method="DELETE", path=_ONE, handler=abort, rule=f"{RULE}:delete", since=(2, 24)),
    Route(
        method="POST",
        path=f"{_ONE}/action",
        handler=force_complete,
        rule=f"{RULE}:force_complete",
        since=(2, 22),
        body=schemas.FORCE_COMPLETE,
        action="force_complete",
    ),
]
