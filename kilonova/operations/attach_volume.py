"""Attach a volume to a server, running or not.

(the server's record has it from the start) -> reserve it -> connect it to the server's host, with its own secret
  -> attach_volume on the host -> the volume is in use
Any failure is undone in reverse order: the guest loses it, and it is released. A host that has fallen silent learns
which volumes its guest has when it returns; its secret is invalid by then.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.params import VolumeParams
from kilonova.domain.server import ACTIVE, RESIZED, SOFT_DELETED, STOPPED
from kilonova.domain.volume import ServerVolume, server_volumes
from kilonova.engine.context import Subject
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, FAIL, Operation, Step
from kilonova.operations.facts import HERE, VolumeFacts
from kilonova.operations.steps.power import its_copy
from kilonova.operations.steps.volumes import (
    complete,
    connect,
    give_volume,
    record_volumes,
    release,
    reserve,
    take_volume,
)
from kilonova.world import Tx

WITH_A_GUEST = frozenset({ACTIVE, STOPPED, RESIZED, SOFT_DELETED})
MOST = 26  # devices: /dev/vda is the root disk


def free_device(taken: set[str], root: str) -> str:
    """Return the first free name in the series of the root's."""
    stem = root.rstrip("0123456789")[:-1]
    for number in range(1, MOST):
        name = f"{stem}{chr(ord('a') + number)}"
        if name not in taken:
            return name
    raise Refused("too_many_volumes", f"A server has at most {MOST - 1} volumes besides its root disk.")


class AttachVolume(Operation[VolumeFacts, VolumeParams]):
    facts_type = VolumeFacts
    params_type = VolumeParams
    name = "attach_volume"
    action = "attach_volume"
    from_states = WITH_A_GUEST
    safe_message = "The volume could not be attached."

    def check(self, subject: Subject[VolumeParams]) -> VolumeFacts:
        server, params = subject.server, subject.params
        assert server is not None
        if server.launched_at is None:
            raise Refused("invalid_state", f"Instance {server.id} is in an invalid state for 'attach_volume'")
        there = server_volumes(server.volume_info)
        root = server.details.root_device_name
        if any(one.volume_id == params.volume_id for one in there):
            raise Refused("volume_attached", f"Volume {params.volume_id} is already attached to {server.id}.")
        taken = {root, *(one.device for one in there)}
        if params.device in taken:
            raise Refused("device_in_use", f"The device {params.device} of instance {server.id} is in use.")
        return VolumeFacts(
            **msgspec.structs.asdict(its_copy(subject)),
            record=params.id,
            volume_id=params.volume_id,
            device=params.device or free_device(taken, root),
            tag=params.tag,
            delete_on_termination=params.delete_on_termination,
        )

    async def accepted(self, tx: Tx, op: Op, facts: VolumeFacts, subject: Subject[VolumeParams], now: float) -> None:
        """Record the volume at once: the response names its device, so no other volume may get it meanwhile."""
        new = ServerVolume(
            id=facts.record,
            volume_id=facts.volume_id,
            device=facts.device,
            tag=facts.tag,
            delete_on_termination=facts.delete_on_termination,
        )
        await record_volumes(tx, op.server_id or "", lambda there: [*there, new])

    steps = [
        Step("reserve_volume", reserve, on=CONTROL, undo=release),
        Step("connect_volume", connect, on=CONTROL),
        Step(
            "attach_volume",
            give_volume,
            on=HERE,
            undo=take_volume,
            when_silent=FAIL,
            with_guest=True,
            event="compute_attach_volume",
        ),
        Step("complete_volume", complete, on=CONTROL),
    ]
