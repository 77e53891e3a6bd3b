"""The five verbs of volumes and snapshots, and their lists with details and without."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.collection import Collection
from kilonova.api.content import Content
from kilonova.api.forms import Forms
from kilonova.api.routes import Route
from kilonova.api.volume.body_members import described
from kilonova.api.volume.query import ListOptions, QueryFilter, listed, text
from kilonova.services.volume.owned import OwnedRecords
from kilonova.services.volume.records import R

OWNED_FILTERS = {
    "name": QueryFilter("name", text),
    "display_name": QueryFilter("name", text),
    "description": QueryFilter("description", text),
    "status": QueryFilter("status", text),
    "id": QueryFilter("id", text, admin=True),
    "project_id": QueryFilter("project_id", text, admin=True),
    "user_id": QueryFilter("user_id", text, admin=True),
}


class OwnedCollection(Collection[R]):
    created = deleted = 202
    options: ListOptions
    summary: Callable[[Call, R], dict[str, Content]]  # of a list without details
    made: Callable[[Call, R], dict[str, Content]]  # of create and update: not all attributes
    detail: Callable[[Call, R], dict[str, Content]]

    @abstractmethod
    def records(self, call: Call) -> OwnedRecords[R]: ...

    async def list_(self, call: Call) -> Response:
        """List the records without details."""
        return await listed(call, f"/{self.body_key}s", self.options, self.records(call).list_, self.summary)

    async def list_detail(self, call: Call) -> Response:
        """List the records with details."""
        return await listed(call, f"/{self.body_key}s/detail", self.options, self.records(call).list_, self.detail)

    async def find(self, call: Call, *, writes: bool = False) -> R:
        """Return the record in the path, if the caller may see it and the route's rule allows the request."""
        record = await self.records(call).find(call.caller, call.path[self.body_key])
        call.require(project_id=record.project_id)
        return record

    async def edit(self, call: Call, record: R) -> R:
        request = call.body[self.body_key]
        return await self.records(call).describe(call.caller, record.id, described(request), request.get("metadata"))

    def view(self, call: Call, record: R) -> dict[str, Content]:
        return self.detail(call, record) if call.route.method == "GET" else self.made(call, record)

    def routes(self, noun: str, new: Forms, change: Forms) -> list[Route]:
        """`noun`: the end of the names of rules."""
        path, lists = f"/{self.body_key}s", f"volume:get_all{noun and f'{noun}s'}"
        one = f"{path}/{{{self.body_key}}}"
        return [
            Route(method="POST", path=path, handler=self.create, rule=f"volume:create{noun}", body=new),
            Route(method="GET", path=path, handler=self.list_, rule=lists),
            Route(method="GET", path=f"{path}/detail", handler=self.list_detail, rule=lists),
            Route(method="GET", path=one, handler=self.show, rule=f"volume:get{noun}"),
            Route(method="PUT", path=one, handler=self.update, rule=f"volume:update{noun}", body=change),
            Route(method="DELETE", path=one, handler=self.delete, rule=f"volume:delete{noun}"),
        ]
