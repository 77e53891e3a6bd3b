"""A few simulated hosts in virtual time, and what a test says to them."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from kilonova.compute.drivers.simulated.driver import SimulatedDriver
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.sim.loop.event_loop import SimLoop
from kilonova.world import GuestSpec

T = TypeVar("T")


def spec(server: str = "s1", copy: int = 1, **changes: Any) -> GuestSpec:
    values: dict[str, Any] = {"name": "web", "vcpus": 1, "memory_mb": 512, "disk_gb": 1, "image": "cirros"}
    return GuestSpec(server=server, copy=copy, **values | changes)


class Cloud:
    """`hosts` hosts named host1 … in virtual time; `ask` runs one coroutine to its end."""

    def __init__(self, hosts: int = 3, persist: Any = None, **options: Any) -> None:
        self.loop = SimLoop()
        self.hardware = Hardware(clock_sleep=asyncio.sleep, persist=persist)
        self.drivers = {}
        for number in range(1, hosts + 1):
            self.hardware.add_host(f"host{number}", **options)
            self.drivers[f"host{number}"] = SimulatedDriver(self.hardware, f"host{number}")

    def ask(self, wanted: Awaitable[T]) -> T:
        return self.loop.run_until_complete(wanted)

    def boot(self, host: str = "host1", server: str = "s1", copy: int = 1) -> None:
        driver, guest = self.drivers[host], spec(server, copy)
        self.ask(driver.ensure_disk(guest))
        self.ask(driver.ensure_defined(guest))
        self.ask(driver.ensure_power(server, copy, on=True))

    def close(self) -> None:
        self.loop.close()
        self.hardware.close()
