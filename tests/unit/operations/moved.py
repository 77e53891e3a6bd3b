"""A server that was moved from host1 to host2 and waits for its owner."""

from __future__ import annotations

from typing import Any

from kilonova.domain.cause import Cause
from kilonova.domain.host import HostState
from kilonova.domain.params import Params
from kilonova.domain.server import Flavor, flavor_document
from kilonova.engine.context import Subject
from tests.support.server_records import server_record


def moved(host: HostState, former: HostState | None = None, **move: Any) -> Subject[Params]:
    """`host`: the state of host2; `former`: that of host1; `move`: what is different in its migration."""
    flavor = flavor_document(Flavor("small", 1, 512, 1))
    server = server_record(id="a", host="host2", flavor=flavor)
    migration: Any = {
        "id": "m",
        "status": "finished",
        "source_host": "host1",
        "source_copy": 1,
        "dest_host": "host2",
        "dest_copy": 2,
        "old_vm_state": "active",
        "old_flavor": flavor,
        "new_flavor": flavor,
        "old_claimed": None,
        "source_gone": None,
        **move,
    }
    cause = Cause(user_id="u", project_id="p", through="api", request_id="r")
    return Subject(server, host, None, migration, None, Params(), cause, former)
