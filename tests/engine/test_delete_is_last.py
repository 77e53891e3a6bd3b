"""Nothing takes a server over from its delete, whatever takes over from other operations (law 8)."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.hosts.states import declare_down
from kilonova.operations import REGISTRY
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.rest import come_to_rest

OTHERS = [kind for kind, operation in REGISTRY.items() if operation.supersedes and kind != "delete"]


@pytest.mark.parametrize("kind", OTHERS)
def test_a_delete_that_was_accepted_goes_on(cloud, kind):
    cloud = cloud(hosts=2, conductors=1)
    server, _ = cloud.make(host="host1")
    if kind == "evacuate":  # else it is refused because of the host
        cloud.kill("host1")
        cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.kill("conductor1")
    cloud.submit("delete", server)
    with pytest.raises(Refused) as why:
        cloud.submit(kind, server)
    assert why.value.code == "busy"
    cloud.start("conductor1")
    records = come_to_rest(cloud)
    ended = {row["kind"]: row["state"] for row in records.table("operations")}
    assert ended["delete"] == "done" and kind not in ended
    assert violations(records, cloud, at_rest=True) == []
