"""Keep or delete: whether a volume goes with its server when that is deleted.

(the server's record says so at once) -> update_volume_attachment: the volume service is told.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.volume import ServerVolume, server_volumes
from kilonova.engine.context import Subject
from kilonova.engine.model import CONTROL, FOREVER, Facts, Operation, Step
from kilonova.operations.steps.volumes import record_volumes, set_fate
from kilonova.world import Tx


class KeepVolume(Operation):
    name = "keep_volume"
    safe_words = "The volume's fate could not be changed."

    def check(self, subject: Subject) -> Facts:
        server, wish = subject.server, subject.params
        assert server is not None
        found = [one for one in server_volumes(server.volume_info) if one.volume_id == wish["volume_id"]]
        if not found:
            raise Refused("not_found", f"Instance {server.id} is not attached to volume {wish['volume_id']}.")
        return {
            "server": server.id,
            "volume_id": wish["volume_id"],
            "attachment": found[0].attachment_id,
            "delete": bool(wish["delete_on_termination"]),
        }

    async def accepted(self, tx: Tx, facts: Facts, now: float) -> None:
        def become(there: list[ServerVolume]) -> list[ServerVolume]:
            return [
                msgspec.structs.replace(one, delete_on_termination=facts["delete"])
                if one.volume_id == facts["volume_id"]
                else one
                for one in there
            ]

        await record_volumes(tx, facts["server"], become)

    steps = [Step("update_volume_attachment", set_fate, on=CONTROL, no_return=True, retry=FOREVER)]
