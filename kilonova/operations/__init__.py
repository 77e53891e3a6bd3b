"""The operations, one per file; reboot.py has two. REGISTRY has one line per operation; agents and conductors find
steps here by name."""

from __future__ import annotations

from kilonova.engine.model import Registry
from kilonova.operations.adopt import Adopt
from kilonova.operations.attach_volume import AttachVolume
from kilonova.operations.confirm_resize import ConfirmResize
from kilonova.operations.create.build import Build
from kilonova.operations.create.place import PlaceServer
from kilonova.operations.create.place_many import PlaceMany
from kilonova.operations.delete import Delete
from kilonova.operations.delete_unplaced import DeleteUnplaced
from kilonova.operations.detach_volume import DetachVolume
from kilonova.operations.evacuate import Evacuate
from kilonova.operations.follow_power import FollowPower
from kilonova.operations.migrate import Migrate
from kilonova.operations.reboot import HardReboot, SoftReboot
from kilonova.operations.rebuild import Rebuild
from kilonova.operations.rebuild_in_cell0 import RebuildInCell0
from kilonova.operations.rebuild_volume import RebuildVolume
from kilonova.operations.relocate import Relocate
from kilonova.operations.resize import Resize
from kilonova.operations.restore import Restore
from kilonova.operations.revert_resize import RevertResize
from kilonova.operations.snapshot import CreateImage
from kilonova.operations.snapshot_volumes import SnapshotVolumes
from kilonova.operations.soft_delete import SoftDelete
from kilonova.operations.start import Start
from kilonova.operations.stop import Stop
from kilonova.operations.whole_hosts.drain_host import DrainHost
from kilonova.operations.whole_hosts.evacuate_host import EvacuateHost
from kilonova.operations.whole_hosts.host_gone import HostGone
from kilonova.operations.whole_hosts.return_host import ReturnHost

REGISTRY: Registry = {
    operation.name: operation
    for operation in (
        PlaceServer(),
        PlaceMany(),
        Build(),
        Delete(),
        SoftDelete(),
        Restore(),
        DeleteUnplaced(),
        Migrate(),
        Relocate(),
        Resize(),
        ConfirmResize(),
        RevertResize(),
        Evacuate(),
        EvacuateHost(),
        DrainHost(),
        ReturnHost(),
        HostGone(),
        Start(),
        Stop(),
        FollowPower(),
        SoftReboot(),
        HardReboot(),
        Rebuild(),
        RebuildVolume(),
        RebuildInCell0(),
        CreateImage(),
        SnapshotVolumes(),
        AttachVolume(),
        DetachVolume(),
        Adopt(),
    )
}
