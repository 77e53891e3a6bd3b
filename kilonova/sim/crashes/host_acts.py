"""Acts of the crash scenarios (scenarios.py) on hosts: their failures, and requests about whole hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.engine.core import Engine
from kilonova.hosts import states as hosts
from kilonova.hosts.failures import arm_watch, disarm_watch
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.sim.crashes.acts import asked, created, ignore_refusal, request
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import read_records

HOUR = 3600.0


def full(cloud: SimCloud) -> None:
    """Leave no host room for the disks of two copies."""
    for name in cloud.hardware.hosts():
        cloud.hardware.host(name).has_room = False


def buried(cloud: SimCloud) -> None:
    """Create a server that no host takes; afterwards they would."""
    for change in (hosts.disable, hosts.enable):
        for host in cloud.hardware.hosts():
            cloud.do(partial(_change, change, host))
        if change is hosts.disable:
            created(cloud)
    cloud.loop.run_for(5.0)


async def _change(change: Callable[[Engine, str], Awaitable[Any]], host: str, engine: Engine) -> None:
    await change(engine, host)


def hosts_fail(cloud: SimCloud) -> None:
    """Let every host refuse to switch a guest on, for good: no other one is tried."""
    for host in cloud.hardware.hosts():
        cloud.hardware.fail(host, "ensure_power", 1000, "refuse")


def refused(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    """Let its host refuse to switch the guest, and to switch it back: the operation waits for an operator (law 17)."""

    def act(cloud: SimCloud) -> None:
        for host in cloud.hardware.hosts():
            cloud.hardware.fail(host, "ensure_power", 1000, "refuse")
        asked(kind, **params)(cloud)

    return act


def _host_of_server(cloud: SimCloud) -> str:
    server = read_records(cloud).server(SERVER)
    assert server is not None
    return str(server["host"])


def guest_ends(cloud: SimCloud) -> None:
    """End the guest without an order: its host notices."""
    switch_guest(cloud.hardware, _host_of_server(cloud), SERVER, False)


def host_dies(cloud: SimCloud) -> None:
    """Cut the power of the server's host, until all processes have noticed."""
    cloud.hardware.switch_power(_host_of_server(cloud), False)
    cloud.loop.run_for(100.0)


def reverting_before_it_answers(cloud: SimCloud) -> None:
    """Revert, and switch the host that lost its power on while the revert waits for it."""
    request(cloud, "revert_resize", {})
    cloud.loop.call_later(10.0, cloud.hardware.switch_power, _host_of_server(cloud), True)


def host_dies_disarmed(cloud: SimCloud) -> None:
    """Let the host die while the failure watch may not act."""
    cloud.do(lambda engine: disarm_watch(engine, HOUR, "the scenario begins later", cloud.cause()))
    host_dies(cloud)
    cloud.loop.run_for(100.0)


def arming(cloud: SimCloud) -> None:
    """Arm the watch, until it has begun to evacuate; a watcher that crashed is followed by another after two
    minutes."""
    cloud.ask(arm_watch).add_done_callback(ignore_refusal)
    for _ in range(60):
        cloud.loop.run_for(5.0)
        if any(row["operation_id"] for row in read_records(cloud).table("host_failures")):
            return


def declaring_gone(cloud: SimCloud) -> None:
    """Declare the host gone that lost its power: the server is on it, resized, or was evacuated from it."""
    host = next(name for name in cloud.hardware.hosts() if not cloud.hardware.host(name).switches.power)
    cause = cloud.cause()

    async def ask(engine: Engine) -> None:
        journal, _ = await hosts.find_host(engine, host)
        await declare_gone(engine, journal, host, "it burnt down", cause)

    cloud.ask(ask).add_done_callback(ignore_refusal)


def evacuating_hosts(cloud: SimCloud) -> None:
    """Evacuate all servers of the host that lost its power."""
    dead = [name for name in cloud.hardware.hosts() if not cloud.hardware.host(name).switches.power]
    _ask_for_hosts(cloud, "evacuate_host", dead)


def draining(cloud: SimCloud) -> None:
    """Drain the server's host."""
    _ask_for_hosts(cloud, "drain_host", [_host_of_server(cloud)])


def drained(cloud: SimCloud) -> None:
    draining(cloud)
    cloud.loop.run_for(120.0)


def returning(cloud: SimCloud) -> None:
    """Return the servers to the host that was drained."""
    closed = [row["name"] for row in read_records(cloud).table("hosts") if row["draining"]]
    _ask_for_hosts(cloud, "return_host", closed)


def _ask_for_hosts(cloud: SimCloud, kind: str, hosts: list[str]) -> None:
    cause = cloud.cause()
    cloud.ask(lambda engine: ask_for_hosts(engine, kind, hosts, cause, None, Bulk())).add_done_callback(ignore_refusal)
