"""Detach a volume from a server, running or not.

detach_volume on the server's host -> release it (from here on only forward): its secret becomes invalid
If the host cannot detach it, everything stays as it was; the guest gets it back unless an administrator has removed its
attachment meanwhile.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.params import VolumeParams
from kilonova.domain.volume import server_volumes
from kilonova.engine.context import Subject
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.operations.attach_volume import WITH_A_GUEST
from kilonova.operations.facts import HERE, VolumeFacts
from kilonova.operations.steps.power import its_copy
from kilonova.operations.steps.volumes import give_volume_back, release, take_volume, volume_kept_or_gone


class DetachVolume(Operation[VolumeFacts, VolumeParams]):
    facts_type = VolumeFacts
    params_type = VolumeParams
    name = "detach_volume"
    action = "detach_volume"
    from_states = WITH_A_GUEST
    safe_message = "The volume could not be detached; it is attached as before."

    def check(self, subject: Subject[VolumeParams]) -> VolumeFacts:
        server, volume_id = subject.server, subject.params.volume_id
        assert server is not None
        matches = [one for one in server_volumes(server.volume_info) if one.volume_id == volume_id]
        if not matches:
            raise Refused("not_found", f"Instance {server.id} is not attached to volume {volume_id}.")
        if matches[0].is_root:
            raise Refused("root_volume", f"Volume {volume_id} is the root disk of {server.id}; it cannot be detached.")
        here = msgspec.structs.asdict(its_copy(subject))
        return VolumeFacts(**here, volume_id=volume_id, attachment=matches[0].attachment_id)

    steps = [
        Step(
            "detach_volume",
            take_volume,
            on=HERE,
            undo=give_volume_back,
            record_undo=volume_kept_or_gone,
            with_guest=True,
            event="compute_detach_volume",
        ),
        Step("release_volume", release, on=CONTROL, no_return=True, retry=FOREVER),
    ]
