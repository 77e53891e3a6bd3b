"""/v2/images: create, list, show, change, delete, and whether an image may be used."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.image import rules
from kilonova.api.image.attributes import check_settable, new_image
from kilonova.api.image.filters import query_of
from kilonova.api.image.patch import apply, read_changes
from kilonova.api.image.view import LIST_SCHEMA, image_view
from kilonova.api.queries import page_query
from kilonova.domain.errors import Refused
from kilonova.services.image.image import ACTIVE, DEACTIVATED, Image


async def image_of(call: Call, rule: str) -> Image:
    """Return the requested image, if the caller may see it and the rule allows the action."""
    image = await call.service.images.find(call.caller, call.path["image"])
    rules.require(call, rule, image)
    return image


async def create(call: Call) -> Response:
    check_settable(call.body, new=True)
    caller = call.caller
    image = new_image(call.body, caller.project_id)
    if image.owner != caller.project_id and not caller.is_admin:
        raise Refused(403, "You are not permitted to create images owned by another project.")
    rules.require(call, "add_image", image)
    rules.require_visibility(call, image, image.visibility)
    created_image = await call.service.images.create(image)
    return answer(image_view(created_image), 201, {"Location": call.url(f"/v2/images/{created_image.id}")})


async def list_(call: Call) -> Response:
    rules.require(call, "get_images")
    wanted = query_of(call.query, call.caller)
    images = await call.service.images.list_(call.caller, wanted._replace(limit=wanted.limit + 1))
    page = images[: wanted.limit]  # one more was asked for, to know whether there is a next page
    body: dict[str, Content] = {"images": [image_view(image) for image in page], "first": _page(page_query(call))}
    if page and len(images) > len(page):
        body["next"] = _page(page_query(call, marker=page[-1].id))
    body["schema"] = LIST_SCHEMA
    return answer(body)


def _page(query: str) -> str:
    return f"/v2/images?{query}" if query else "/v2/images"


async def show(call: Call) -> Response:
    return answer(image_view(await image_of(call, "get_image")))


async def update(call: Call) -> Response:
    changes = await read_changes(call.request)
    caller = call.caller

    def edit(image: Image) -> Image:
        rules.require(call, "modify_image", image)
        for change in changes:
            image = apply(change, image, call)
        return image

    return answer(image_view(await call.service.images.change(caller, call.path["image"], edit)))


async def delete(call: Call) -> Response:
    def check(image: Image) -> None:
        rules.require(call, "delete_image", image)

    await call.service.images.delete(call.caller, call.path["image"], check)
    return nothing()


async def list_tasks(call: Call) -> Response:
    """List the tasks of an image: none, because images are imported in the request itself."""
    await image_of(call, "get_image")
    return answer({"tasks": []})


async def deactivate(call: Call) -> Response:
    await _switch(call, "deactivate", ACTIVE, DEACTIVATED)
    return nothing()


async def reactivate(call: Call) -> Response:
    await _switch(call, "reactivate", DEACTIVATED, ACTIVE)
    return nothing()


async def _switch(call: Call, rule: str, before: str, after: str) -> None:
    def edit(image: Image) -> Image:
        rules.require(call, rule, image)
        if image.status not in (before, after):
            raise Refused(403, f"Not allowed to {rule} an image that is {image.status}.")
        return msgspec.structs.replace(image, status=after)

    await call.service.images.change(call.caller, call.path["image"], edit)
