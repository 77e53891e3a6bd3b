"""The content that simulated guests find on a volume and write to it: a marker, which every copy of the volume gets
too. A real volume has bytes instead.

The holder of a connected attachment's secret may read and write. The secret is void once the attachment is removed or
connected elsewhere: its former host cannot write any more, even if it does not know that.
"""

from __future__ import annotations

import hmac

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.volume import Content
from kilonova.schema.tables.volume import attachments
from kilonova.services.volume import attachment_steps
from kilonova.services.volume.attachment_steps import connection_closed
from kilonova.services.volume.context import VolumeContext
from kilonova.services.volume.records import attachment_of, change_volume, fetch_volume
from kilonova.services.volume.volume import READ_ONLY
from kilonova.store import rows
from kilonova.world import Bus, Tx

SUBJECT = "volume.content"
BETWEEN = "+"
LONGEST = 4096  # characters of a marker


class Contents:
    def __init__(self, context: VolumeContext) -> None:
        self._context = context

    async def read(self, attachment_id: str, secret: str) -> str:
        return await self._do(Content(attachment=attachment_id, secret=secret))

    async def write(self, attachment_id: str, secret: str, text: str) -> str:
        """Append to the content, and return all of it."""
        return await self._do(Content(attachment=attachment_id, secret=secret, text=text))

    async def _do(self, request: Content) -> str:
        async def body(tx: Tx) -> str:
            row = await rows.fetch(tx, attachments, id=request.attachment)
            if row is None:
                raise connection_closed(request.attachment)
            attachment, volume = attachment_of(row), await fetch_volume(tx, row["volume_id"], lock=True)
            right = attachment.is_connected and attachment_steps.secret_of(self._context.seal, attachment)
            if not right or not hmac.compare_digest(right.encode(), request.secret.encode()):
                raise connection_closed(request.attachment)
            if request.text is None:
                return volume.marker
            if attachment.mode == READ_ONLY:
                raise Refused("volume_read_only", f"Volume {volume.id} is attached read-only.")
            marker = BETWEEN.join(filter(None, (volume.marker, request.text)))
            if len(marker) > LONGEST:
                raise Refused("volume_full", f"The marker of volume {volume.id} may have {LONGEST} characters.")
            await change_volume(tx, volume, {"marker": marker})
            return marker

        return await self._context.control.write(body)

    async def serve(self, bus: Bus) -> None:
        """Answer hosts over the bus: they never touch a database."""
        await bus.serve(SUBJECT, self._answer, shared=True)

    async def _answer(self, request: bytes) -> bytes:
        try:
            return msgspec.json.encode({"marker": await self._do(msgspec.json.decode(request, type=Content))})
        except Refused as why:
            return msgspec.json.encode({"code": why.code, "message": why.message})


async def ask(bus: Bus, request: Content) -> str:
    """Read or write the content as a host does it: return the marker, or raise `Refused`."""
    reply = msgspec.json.decode(await bus.call(SUBJECT, msgspec.json.encode(request)))
    if "code" in reply:
        raise Refused(reply["code"], reply["message"])
    marker: str = reply["marker"]
    return marker
