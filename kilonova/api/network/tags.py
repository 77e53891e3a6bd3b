"""Tags of anything."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.network.collection import Collection
from kilonova.api.network.forms import MOST_TAGS, TAG_LIST
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.records.kinds import Thing

LONGEST = 255


class Tags:
    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def routes(self) -> list[Route]:
        name, path = self._collection.kind.name, f"{self._collection.path}/{{id}}/tags"
        get, put, one = f"get_{name}", f"update_{name}", f"{path}/{{tag}}"
        return [
            Route(method="GET", path=path, handler=self.list_, rule=get),
            Route(method="PUT", path=path, handler=self.replace, rule=put, body=TAG_LIST),
            Route(method="DELETE", path=path, handler=self.clear, rule=put),
            Route(method="GET", path=one, handler=self.has, rule=get),
            Route(method="PUT", path=one, handler=self.add, rule=put),
            Route(method="DELETE", path=one, handler=self.remove, rule=put),
        ]

    async def _changeable(self, call: Call) -> Thing:
        thing = await self._collection.seen(call)
        call.require(project_id=thing["project_id"])
        return thing

    async def list_(self, call: Call) -> Response:
        """List the tags."""
        return answer({"tags": (await self._collection.seen(call))["tags"]})

    async def replace(self, call: Call) -> Response:
        """Replace all tags by these."""
        thing = await self._changeable(call)
        return answer({"tags": await self._collection.noun(call).set_tags(thing["id"], call.body["tags"])})

    async def clear(self, call: Call) -> Response:
        """Remove all tags."""
        thing = await self._changeable(call)
        await self._collection.noun(call).set_tags(thing["id"], [])
        return nothing()

    async def has(self, call: Call) -> Response:
        """Return 204 if the tag exists, else 404."""
        if call.path["tag"] not in (await self._collection.seen(call))["tags"]:
            raise _no_tag(call)
        return nothing()

    async def add(self, call: Call) -> Response:
        """Add a tag."""
        tag = call.path["tag"]
        if not tag or len(tag) > LONGEST or "," in tag:
            raise Refused("InvalidInput", f"A tag has 1 to {LONGEST} characters and no comma.", status=400)
        thing = await self._changeable(call)
        if not await self._collection.noun(call).add_tag(thing["id"], tag, MOST_TAGS):
            raise Refused("BadRequest", f"A resource may have at most {MOST_TAGS} tags.", status=400)
        return nothing(201)

    async def remove(self, call: Call) -> Response:
        """Remove a tag."""
        thing = await self._changeable(call)
        if not await self._collection.noun(call).remove_tag(thing["id"], call.path["tag"]):
            raise _no_tag(call)
        return nothing()


def _no_tag(call: Call) -> Refused:
    return Refused("TagNotFound", f"Tag {call.path['tag'][:80]} could not be found.", status=404)
