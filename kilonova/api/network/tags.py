"""Tags of anything."""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.api.collection import EditTags, Tags
from kilonova.api.network.collection import NetworkCollection
from kilonova.api.network.forms import MOST_TAGS
from kilonova.domain.errors import Refused
from kilonova.domain.json import texts
from kilonova.records.kinds import id_of, owner_of

LONGEST = 255


class RecordTags(Tags):
    def __init__(self, collection: NetworkCollection) -> None:
        self._collection = collection

    async def read(self, call: Call) -> list[str]:
        record = await self._collection.find(call, writes=False)
        return texts(record["tags"])

    async def change(self, call: Call, edit: EditTags) -> list[str]:
        record = await self._collection.find(call, writes=True)
        call.require(project_id=owner_of(record))
        return await self._collection.noun(call).edit_tags(id_of(record), edit)

    def check(self, call: Call, tag: str) -> None:
        if not tag or len(tag) > LONGEST or "," in tag:
            raise Refused("InvalidInput", f"A tag has 1 to {LONGEST} characters and no comma.", status=400)

    def added_to(self, call: Call, old: list[str], tag: str) -> list[str]:
        if len(old) >= MOST_TAGS:
            raise Refused("BadRequest", f"A resource may have at most {MOST_TAGS} tags.", status=400)
        return [*old, tag]

    def missing(self, call: Call) -> Refused:
        return Refused("TagNotFound", f"Tag {call.path['tag'][:80]} could not be found.", status=404)
