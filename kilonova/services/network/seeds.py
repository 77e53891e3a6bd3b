"""The networks that a new cloud begins with. Made once: what an administrator deletes stays deleted."""

from __future__ import annotations

from kilonova.schema.tables.network import seeds
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.networks import NetworkRecords
from kilonova.services.network.subnets import Subnets
from kilonova.store import rows
from kilonova.world import Tx

SEED = "first networks"
FIRST = (
    # Servers that name no network get this one, so it is the only shared one that is not external.
    ({"name": "shared", "shared": True}, {"name": "shared-subnet", "cidr": "10.10.0.0/16", "enable_dhcp": True}),
    (
        {"name": "public", "router:external": True},
        {"name": "public-subnet", "cidr": "172.24.4.0/24", "enable_dhcp": False},
    ),
)


async def prepare(context: NetworkContext, networks: NetworkRecords, subnets: Subnets, owner: str) -> None:
    """Create the first networks in one transaction: a crash leaves all or nothing, and of two processes only one
    creates them."""

    async def look(tx: Tx) -> bool:
        return await rows.fetch(tx, seeds, name=SEED) is not None

    if await context.control.read(look):
        return
    ids, now = [(context.ids.uuid(), context.ids.uuid()) for _ in FIRST], context.clock.now()

    async def body(tx: Tx) -> None:
        if not await rows.put(tx, seeds, unless_there=True, name=SEED, created_at=now):
            return
        for (network_id, subnet_id), (network, subnet) in zip(ids, FIRST, strict=True):
            await networks.insert(tx, None, network_id, {"project_id": owner, **network}, now)
            attributes = {"project_id": owner, "network_id": network_id, **subnet}
            await subnets.insert(tx, None, subnet_id, attributes, now)

    await context.control.write(body)
