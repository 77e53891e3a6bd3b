"""A destination that did not work is not tried again in the same operation, whichever operation it is."""

import msgspec
import pytest

from kilonova.hosts.states import declare_down
from kilonova.operations import REGISTRY
from kilonova.sim.lab.flavors import LARGE

KINDS = [kind for kind, operation in REGISTRY.items() if operation.again_from and kind not in ("place", "place_many")]
PARAMS = {"resize": {"flavor": msgspec.to_builtins(LARGE)}}


@pytest.mark.parametrize("kind", KINDS)
def test_every_attempt_has_another_destination(cloud, kind):
    """No host can define a guest: each is tried once, and then no other one fits."""
    cloud = cloud(hosts=4)
    server = None if kind == "build" else cloud.make(host="host1")[0]
    for host in cloud.hardware.hosts():
        cloud.hardware.fail(host, "ensure_defined", 99, "error")
    if kind == "evacuate":
        cloud.kill("host1")
        cloud.do(lambda engine: declare_down(engine, "host1"))
    if server is None:
        _, operation = cloud.make(wait=60.0)
    else:
        operation = cloud.submit(kind, server, **PARAMS.get(kind, {})).operation_id
        cloud.loop.run_for(60.0)
    steps = [row for row in cloud.records().databases["cell1"]["steps"] if row["operation_id"] == operation]
    tried = [row["host"] for row in steps if row["state"] == "failed" and row["attempt"] == 1 and row["host"]]
    assert len(tried) > 1 and len({*tried}) == len(tried)
