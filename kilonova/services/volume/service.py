"""The door to volumes: the nouns of the API, and what servers need of them (world.Volume)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from kilonova.services.image.service import Images
from kilonova.services.volume.backends import Backends
from kilonova.services.volume.changing import VolumeChanges
from kilonova.services.volume.client_attachments import Attachments
from kilonova.services.volume.content import Contents
from kilonova.services.volume.context import Close, KeyDeriver, VolumeContext
from kilonova.services.volume.exports import Exports
from kilonova.services.volume.files import Backing
from kilonova.services.volume.quotas import VolumeQuotas
from kilonova.services.volume.servers import ServerVolumes
from kilonova.services.volume.snapshots import Snapshots
from kilonova.services.volume.tasks import VolumeTasks
from kilonova.services.volume.types import Types
from kilonova.services.volume.volume import DEFAULT_TYPE, ZONE
from kilonova.services.volume.volumes import VolumeRecords
from kilonova.services.volume.worker import SUBJECT, VolumeWorker
from kilonova.settings import DEFAULTS, VolumeOptions
from kilonova.world import Bus, Clock, Ids, Store


async def _nobody() -> None:
    """Wake nothing."""


async def _nothing_open(_: Iterable[tuple[str, str]]) -> None:
    """Do nothing: simulated hosts send their secret with every request, so a void connection opens nothing."""


class Volumes:
    zone = ZONE  # the only one that volumes are in

    def __init__(
        self,
        control: Store,
        clock: Clock,
        ids: Ids,
        seal: KeyDeriver,
        *,
        bus: Bus | None = None,
        backend: str = "",
        default_type: str = DEFAULT_TYPE,
        quota_defaults: Mapping[str, int] | None = None,
        close: Close = _nothing_open,
    ) -> None:
        """`backend`: the one whose files this process keeps, if any (`worker`). `close`: see `VolumeContext`."""
        self._control, self._clock = control, clock
        self.quotas = VolumeQuotas(control, quota_defaults)
        self.types = Types(control, clock, ids, default_type)
        self.backends = Backends(control, backend)
        wake = _waking(bus) if bus is not None else _nobody
        self.context = VolumeContext(control, clock, ids, seal, self.quotas, self.types, self.backends, wake, close)
        self.volumes = VolumeRecords(self.context)
        self.changes = VolumeChanges(self.context)
        self.snapshots = Snapshots(self.context)
        self.attachments = Attachments(self.context)
        self.contents = Contents(self.context)
        self.servers = ServerVolumes(self.context)

    async def prepare(self) -> None:
        """Create the first type, once in a cloud's life."""
        await self.types.prepare()

    def worker(
        self,
        backing: Backing,
        images: Images | None,
        exports: Exports | None = None,
        options: VolumeOptions = DEFAULTS.volume,
    ) -> VolumeWorker:
        """Return the worker on this backend's files."""
        tasks = VolumeTasks(self._control, self._clock, self.quotas, backing, images)
        return VolumeWorker(self._control, self._clock, self.backends, backing, tasks, exports, options)


def _waking(bus: Bus) -> Callable[[], Awaitable[None]]:
    async def wake() -> None:
        await bus.cast(SUBJECT, b"")

    return wake
