"""/v2/images/{image}/members: with which projects an image is shared, and what they say to it."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.image import rules
from kilonova.api.image.images import image_of
from kilonova.api.image.view import MEMBERS_SCHEMA, member_view
from kilonova.domain.errors import Refused
from kilonova.services.image.image import SHARED, Image


async def _shared_image(call: Call, rule: str, status: int = 403) -> Image:
    image = await image_of(call, "get_image")
    if image.visibility != SHARED:
        raise Refused(status, "Only shared images have members.")
    rules.require(call, rule, image)
    return image


def _sees_all(call: Call, image: Image) -> bool:
    """Return True if the caller may see all members. A member sees only its own membership."""
    return call.caller.is_admin or image.is_owned_by(call.caller)


def _check_own(call: Call, image: Image) -> None:
    if not _sees_all(call, image) and call.path["member"] != call.caller.project_id:
        raise Refused(404, "The project was not found in the member list of the image.")


async def list_(call: Call) -> Response:
    image = await _shared_image(call, "get_members")
    members = await call.service.images.members.all(image.id)
    if not _sees_all(call, image):
        members = [member for member in members if member.member_id == call.caller.project_id]
    return answer({"members": [member_view(member) for member in members], "schema": MEMBERS_SCHEMA})


async def show(call: Call) -> Response:
    image = await _shared_image(call, "get_member", 404)
    _check_own(call, image)
    return answer(member_view(await call.service.images.members.find(image.id, call.path["member"])))


async def add(call: Call) -> Response:
    image = await _shared_image(call, "add_member")
    return answer(member_view(await call.service.images.members.add(image.id, call.body["member"])))


async def update(call: Call) -> Response:
    image = await _shared_image(call, "modify_member")
    _check_own(call, image)
    members = call.service.images.members
    return answer(member_view(await members.answer(image.id, call.path["member"], call.body["status"])))


async def remove(call: Call) -> Response:
    image = await _shared_image(call, "delete_member")
    await call.service.images.members.remove(image.id, call.path["member"])
    return nothing()
