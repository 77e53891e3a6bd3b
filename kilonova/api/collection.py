"""The create, list, show, update and delete handlers of one kind of record, and its sub-resources: tags and key-value
metadata. A service subclasses them to find, read, change and show its own records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route
from kilonova.domain.errors import Refused

EditTags = Callable[[list[str]], list[str]]
EditValues = Callable[[dict[str, str]], dict[str, str]]


R = TypeVar("R")


class Collection(ABC, Generic[R]):
    """List, show, create, update, delete."""

    created, deleted = 201, 204

    @property
    @abstractmethod
    def body_key(self) -> str:
        """`user`: the key of a body."""

    @abstractmethod
    async def list_(self, call: Call) -> Response: ...

    @abstractmethod
    async def find(self, call: Call, *, writes: bool) -> R:
        """Return the record of the address, if the caller may see it, or change it."""

    @abstractmethod
    async def add(self, call: Call) -> R:
        """Create the record that the body asks for."""

    @abstractmethod
    async def edit(self, call: Call, record: R) -> R:
        """Change a record as the body asks."""

    @abstractmethod
    async def drop(self, call: Call, record: R) -> None: ...

    @abstractmethod
    def view(self, call: Call, record: R) -> Mapping[str, Content]: ...

    def answer(self, call: Call, record: R, status: int = 200) -> Response:
        return answer({self.body_key: self.view(call, record)}, status)

    async def show(self, call: Call) -> Response:
        """Show one record, or 404 if the caller may not see it."""
        return self.answer(call, await self.find(call, writes=False))

    async def create(self, call: Call) -> Response:
        """Create one record."""
        return self.answer(call, await self.add(call), self.created)

    async def update(self, call: Call) -> Response:
        """Update only the attributes that the body names."""
        return self.answer(call, await self.edit(call, await self.find(call, writes=True)))

    async def delete(self, call: Call) -> Response:
        """Delete the record and those that depend on it; refused while it is in use."""
        await self.drop(call, await self.find(call, writes=True))
        return nothing(self.deleted)


class Tags(ABC):
    """The tags of a record."""

    @abstractmethod
    async def read(self, call: Call) -> list[str]:
        """Return the tags, if the caller may see the record."""

    @abstractmethod
    async def change(self, call: Call, edit: EditTags) -> list[str]:
        """Change the tags in one transaction, if the caller may. If `edit` returns its argument, write nothing."""

    @abstractmethod
    def missing(self, call: Call) -> Refused: ...

    def check(self, call: Call, tag: str) -> None:  # noqa: B027 - may be nothing
        """Raise `Refused` for a text that cannot be a tag."""

    def added_to(self, call: Call, old: list[str], tag: str) -> list[str]:
        """Return the tags with a new one. Raise `Refused` if these are too many."""
        return [*old, tag]

    def view(self, call: Call, tags: list[str]) -> Response:
        return answer({"tags": tags})

    def added(self, call: Call, tag: str, is_new: bool) -> Response:
        return nothing(201)

    async def list_(self, call: Call) -> Response:
        """List the tags."""
        return self.view(call, await self.read(call))

    async def replace(self, call: Call) -> Response:
        """Replace all tags by these."""
        return self.view(call, await self.change(call, lambda old: list(dict.fromkeys(call.body["tags"]))))

    async def clear(self, call: Call) -> Response:
        """Remove all tags."""
        await self.change(call, lambda old: [])
        return nothing()

    async def has(self, call: Call) -> Response:
        """Return 204 if the tag exists, else 404."""
        if call.path["tag"] not in await self.read(call):
            raise self.missing(call)
        return nothing()

    async def add(self, call: Call) -> Response:
        """Add a tag."""
        tag, is_new = call.path["tag"], True
        self.check(call, tag)

        def edit(old: list[str]) -> list[str]:
            nonlocal is_new
            is_new = tag not in old
            return self.added_to(call, old, tag) if is_new else old

        await self.change(call, edit)
        return self.added(call, tag, is_new)

    async def remove(self, call: Call) -> Response:
        """Remove a tag."""

        def edit(old: list[str]) -> list[str]:
            if call.path["tag"] not in old:
                raise self.missing(call)
            return [tag for tag in old if tag != call.path["tag"]]

        await self.change(call, edit)
        return nothing()

    def routes(self, path: str, rules: Mapping[str, str], body: Forms, **more: Any) -> list[Route]:
        """Return the routes below `path`; `rules` are those of reading and writing, or of each handler."""
        read, write, one = rules.get("read", ""), rules.get("write", ""), f"{path}/{{tag}}"

        def route(method: str, at: str, handler: Handler, name: str, rule: str, form: Forms | None = None) -> Route:
            return Route(method=method, path=at, handler=handler, rule=rules.get(name, rule), body=form, **more)

        return [
            route("GET", path, self.list_, "list", read),
            route("PUT", path, self.replace, "replace", write, body),
            route("DELETE", path, self.clear, "clear", write),
            route("GET", one, self.has, "has", read),
            route("PUT", one, self.add, "add", write),
            route("DELETE", one, self.remove, "remove", write),
        ]


class KeyValues(ABC):
    """Keys and values of a record: `{whole: {…}}`, and one of them as `{one: {key: value}}` or as `{key: value}`."""

    whole, one = "metadata", "meta"
    removed = 204
    mismatch = "Request body and URI mismatch"
    echoes = False  # the response to an addition is the request, not all records

    @abstractmethod
    async def read(self, call: Call) -> dict[str, str]:
        """Return the values, if the caller may see the record."""

    @abstractmethod
    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        """Change the values in one transaction, if the caller may, and return them."""

    @abstractmethod
    def missing(self, call: Call) -> Refused: ...

    def given(self, call: Call, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the values of a body as they are kept."""
        return values

    async def list_(self, call: Call) -> Response:
        """List the keys with their values."""
        return answer({self.whole: await self.read(call)})

    async def show(self, call: Call) -> Response:
        """Show one key with its value."""
        values, key = await self.read(call), call.path["key"]
        if key not in values:
            raise self.missing(call)
        item = {key: values[key]}
        return answer({self.one: item} if self.one else item)

    async def merge(self, call: Call) -> Response:
        """Set these keys; others stay."""
        given = self.given(call, call.body[self.whole])
        changed = await self.change(call, lambda old: {**old, **given})
        return answer(call.body if self.echoes else {self.whole: changed})

    async def replace(self, call: Call) -> Response:
        """Replace all keys by these."""
        given = self.given(call, call.body[self.whole])
        return answer({self.whole: await self.change(call, lambda old: dict(given))})

    async def put(self, call: Call) -> Response:
        """Set one key."""
        given = self.given(call, call.body[self.one] if self.one else call.body)
        if list(given) != [call.path["key"]]:
            raise Refused(400, self.mismatch)
        await self.change(call, lambda old: {**old, **given})
        return answer(call.body)

    async def remove(self, call: Call) -> Response:
        """Remove one key."""

        def edit(old: dict[str, str]) -> dict[str, str]:
            if call.path["key"] not in old:
                raise self.missing(call)
            return {name: value for name, value in old.items() if name != call.path["key"]}

        await self.change(call, edit)
        return nothing(self.removed)

    def routes(self, path: str, rules: Mapping[str, str], all_: Forms, item: Forms, **more: Any) -> list[Route]:
        """Return the routes below `path` of those handlers that have a rule."""
        one = f"{path}/{{key}}"
        every: list[tuple[str, str, str, Handler, Forms | None]] = [
            ("list", "GET", path, self.list_, None),
            ("merge", "POST", path, self.merge, all_),
            ("replace", "PUT", path, self.replace, all_),
            ("show", "GET", one, self.show, None),
            ("put", "PUT", one, self.put, item),
            ("remove", "DELETE", one, self.remove, None),
        ]
        return [
            Route(method=method, path=at, handler=handler, rule=rules[name], body=body, **more)
            for name, method, at, handler, body in every
            if name in rules
        ]
