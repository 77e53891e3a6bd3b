"""On a cloud that nothing else changes, an operation about whole hosts does exactly what the plan said."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kilonova.domain.details import Details
from kilonova.domain.server import Flavor
from kilonova.domain.whole_hosts import HostPlan
from kilonova.hosts.states import declare_down
from kilonova.operations.create.accept import NewServer, create
from kilonova.operations.whole_hosts.rehearse import rehearse_host
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.settings import ConductorOptions
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.settings import simulated
from kilonova.sim.lab.shape import CloudShape

HOSTS = 5
GROUPS = ("anti-affinity", "affinity", "soft-anti-affinity")  # each named like its policy
KEY = "kilonova:evacuate"
flavors = st.builds(
    lambda size, order: Flavor(f"f{size}{order}", size, 128 * size, size, extra_specs={KEY: order} if order else {}),
    st.integers(1, 3),
    st.sampled_from(["", "", "first", "last", "never"]),
)
some_servers = st.lists(
    st.tuples(flavors, st.integers(1, HOSTS), st.sampled_from([None, None, *GROUPS])), min_size=1, max_size=9
)


def grown(cloud: SimCloud, servers: list[tuple[Flavor, int, str | None]]) -> None:
    for number, (flavor, host, group) in enumerate(servers):
        details = Details(scheduler_hints={"group": [group]} if group else {})
        where = f"host{host}"
        new = NewServer(name=f"s{number}", flavor=flavor, image="img", host=where, details=details, group=group)
        cloud.do(lambda engine, new=new: create(engine, new, cloud.cause()))  # type: ignore[misc]
    cloud.loop.run_for(40.0)


def planned(cloud: SimCloud, kind: str, hosts: list[str]) -> HostPlan:
    return cloud.do(lambda engine: rehearse_host(engine, kind, hosts, Bulk(), cloud.cause()))  # type: ignore[no-any-return]


def prepared(cloud: SimCloud, kind: str, hosts: list[str]) -> None:
    """Dead hosts for an evacuation; hosts whose servers are elsewhere for a return."""
    for name in hosts if kind == "evacuate_host" else ():
        cloud.hardware.switch_power(name, False)
        cloud.do(lambda engine, name=name: declare_down(engine, name))  # type: ignore[misc]
    if kind == "return_host":
        cloud.do(lambda engine: ask_for_hosts(engine, "drain_host", hosts, cloud.cause(), None, Bulk()))
        cloud.loop.run_for(120.0)
    cloud.loop.run_for(5.0)


def told(plan: dict[str, Any], kind: str) -> Any:
    """Of hosts that live it also says when they were heard, and of misfits how many hosts are closed by then."""
    return plan if kind == "evacuate_host" else (plan["moves"], set(plan["misfits"]), plan["refused"], plan["spared"])


@settings(max_examples=24, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(
    st.sampled_from(["evacuate_host", "drain_host", "return_host"]),
    some_servers,
    st.sets(st.integers(1, HOSTS), min_size=1, max_size=2),
    st.integers(1, 3),
    st.integers(4, 8),
)
def test_the_run_does_what_the_plan_said(
    kind: str, servers: list[tuple[Flavor, int, str | None]], left: set[int], at_once: int, vcpus: int
) -> None:
    logging.disable(logging.WARNING)
    settings = simulated(conductor=ConductorOptions(evacuations_per_destination=at_once))
    shape = CloudShape(hosts=HOSTS, vcpus=vcpus, settings=settings, flush_seconds=5.0, groups=GROUPS, conductors=2)
    cloud = SimCloud(shape)
    try:
        cloud.start_all()
        cloud.loop.run_for(20.0)
        grown(cloud, servers)
        names = sorted(f"host{number}" for number in left)
        prepared(cloud, kind, names)
        plan = planned(cloud, kind, names)
        accepted = cloud.do(lambda engine: ask_for_hosts(engine, kind, names, cloud.cause(), None, Bulk()))
        cloud.loop.run_for(120.0)
        records = read_records(cloud)
        (operation,) = [row for row in records.table("operations") if row["id"] == accepted["cell1"].operation_id]
        (step,) = [
            row
            for row in records.table("steps")
            if row["operation_id"] == operation["id"] and row["name"] == "plan_moves"
        ]
        document = msgspec.to_builtins(plan)
        assert told(msgspec.json.decode(step["result"])["plan"], kind) == told(document, kind), (
            "the same answer as the dry run"
        )
        account = msgspec.json.decode(operation["facts"])["account"]
        assert (operation["state"], account["moved"]) == ("done", len(plan.moves)), account
        assert (account["failed"], account["elsewhere"], account["not_begun"]) == ({}, {}, {})
        assert set(account["impossible"]) == set(plan.misfits) and set(account["spared"]) == set(plan.spared)
        where = {row["id"]: row["host"] for row in records.table("servers")}
        assert {move.server: where[move.server] for move in plan.moves} == {move.server: move.to for move in plan.moves}
        goes_home = kind == "return_host"
        assert all((move.to in names) is goes_home for move in plan.moves), "never to a host that is to be left (H3)"
        assert check(cloud, at_rest=False) == []
    finally:
        cloud.close()
        logging.disable(logging.NOTSET)
