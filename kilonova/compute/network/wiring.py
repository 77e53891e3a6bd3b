"""The networks of a host with real guests, as its settings say: what the driver plugs into and what follows changes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kilonova.compute.config_drive import PLAIN, Files, Telling
from kilonova.compute.network.bridged import BridgedNetwork
from kilonova.compute.network.follower import AgentSession, Declared, GuestDescriptions, NetworkFollower
from kilonova.compute.network.layout import HostNetworkOptions, Plugged
from kilonova.compute.network.programs import Programs
from kilonova.compute.network.services import NetworkServices
from kilonova.compute.network.user import UserNetwork
from kilonova.domain.errors import Failed
from kilonova.domain.host_network import HostNetwork
from kilonova.settings import NetworkOptions
from kilonova.world import Bus, Clock


@dataclass
class Networking:
    """The networking of an agent, created before its driver.

    Call `network.start()` before the agent starts, `follow(agent)` after it, and `stop()` at the end.
    """

    bus: Bus
    clock: Clock
    options: NetworkOptions
    interval: float
    telling: Telling = PLAIN
    descriptions: GuestDescriptions | None = None
    follower: NetworkFollower | None = None

    def make(self, host: str, folder: Path) -> HostNetwork:
        """Make the network of a host. `folder` belongs to the host and remembers what is plugged."""
        if not is_bridged(self.options):
            self.network: HostNetwork = UserNetwork(folder)
            return self.network
        host_options = HostNetworkOptions(
            host, self.options.local_ip, self.options.path_mtu, self.options.external_bridge
        )
        self.network = BridgedNetwork(host_options, folder, Programs(), NetworkServices(self._describe, self._forget))
        return self.network

    async def follow(self, agent: AgentSession) -> None:
        self.descriptions = GuestDescriptions(agent, self.bus, self.clock, self.telling)
        declared = Declared(self.options.local_ip, self.options.node)
        if is_bridged(self.options):
            self.follower = NetworkFollower(agent, self.network, self.bus, interval=self.interval, declared=declared)
            await self.follower.start()

    async def stop(self) -> None:
        if self.follower is not None:
            await self.follower.stop()
        await self.network.stop()

    async def _describe(self, plugged: Plugged) -> Files | None:
        if self.descriptions is None:
            raise Failed("not_registered", "the agent has not started yet")
        return await self.descriptions.describe(plugged)

    def _forget(self, server: str) -> None:
        """Forget the server after a plug: the conductor may know more of its ports and contents than the order."""
        if self.descriptions is not None:
            self.descriptions.forget(server)
        if self.follower is not None:
            self.follower.wake()


def is_bridged(options: NetworkOptions) -> bool:
    """Bridges, taps and rules take root; QEMU's own network does not."""
    return options.driver == "bridged" or (options.driver == "auto" and os.geteuid() == 0)
