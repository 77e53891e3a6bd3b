"""The volumes of a simulated cloud that lie there to be attached."""

from __future__ import annotations

from kilonova.domain.caller import Caller, Named
from kilonova.services.volume.creating import NewVolume
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.service import Volumes
from kilonova.sim.network import PROJECT

OWNER = Caller(user=Named("demo", "demo"), project=Named(PROJECT, PROJECT))
BACKEND = "sim"


async def lay_volumes(volumes: Volumes, count: int) -> list[str]:
    """Their ids, volume1 first."""
    await volumes.prepare()
    keeper = volumes.keeper(NoBytes(), None)
    await keeper.settle()  # it says that it is there
    named = [NewVolume(size=1, name=f"volume{number}") for number in range(1, count + 1)]
    made = [(await volumes.volumes.create(OWNER, new)).id for new in named]
    await keeper.settle()
    return made
