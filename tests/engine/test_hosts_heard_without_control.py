"""A host that beats is heard whatever becomes of the control database (law 9)."""

import pytest

from kilonova.sim.invariants.living_hosts import LivingHosts


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_hosts_that_a_conductor_never_met_are_heard_while_control_is_away(cloud, how):
    """They beat to another one, which dies. The cells say which hosts there are."""
    made = cloud(hosts=8, cells=2, conductors=2)
    made.outages.begin("control", how)
    made.kill("conductor2")
    for host in ("host1", "host2", "host3"):
        made.roles["conductor1"].part.handlers.cell_of_host.pop(host, None)
    living, seen = LivingHosts(made), []
    for _ in range(30):
        made.loop.run_for(5.0)
        seen += living.look()
    assert seen == []
