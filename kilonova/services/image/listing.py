"""Lists of images: what the caller sees, and the filters that are not columns. The rest is records/query.py."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, exists, or_
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.records import query
from kilonova.records.kinds import Kind, Order
from kilonova.records.query import EQUAL, Condition, ListQuery
from kilonova.schema.tables.image import image_members, image_properties, image_tags, images
from kilonova.services.image.image import COMMUNITY, MOST_SHOWN, PUBLIC, SHARED, Image
from kilonova.services.image.records import IMAGE_ROW, IS_MEMBER, with_details
from kilonova.world import Tx

ALL = "all"
SORT_KEYS = ("name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at")
PROPERTY, TAG, MEMBERSHIP, NOT_FOREIGN = "property", "tag", "membership", "not foreign"

_OWN = images.c.owner == bindparam("project")
_OPEN = or_(images.c.visibility == PUBLIC, images.c.visibility == COMMUNITY)


def _has_property(param: str) -> ColumnElement[bool]:
    table = image_properties.c
    named, valued = table.name == bindparam(f"{param}_0"), table.value == bindparam(f"{param}_1")
    return exists().where(and_(table.image_id == images.c.id, named, valued))


def _has_tag(param: str) -> ColumnElement[bool]:
    return exists().where(and_(image_tags.c.image_id == images.c.id, image_tags.c.tag == bindparam(param)))


def _membership(param: str) -> ColumnElement[bool]:
    """Select every image except those shared with the project under another membership status."""
    member = image_members.c
    theirs = and_(member.image_id == images.c.id, member.member_id == bindparam("project"))
    return or_(images.c.visibility != SHARED, _OWN, exists().where(and_(theirs, member.status == bindparam(param))))


def _not_foreign(param: str) -> ColumnElement[bool]:
    return or_(images.c.visibility != COMMUNITY, _OWN)


def _lost(marker: str) -> Refused:
    return Refused("bad_marker", f"The marker {marker[:MOST_SHOWN]} is not an image that you can see.")


IMAGE = Kind(
    "image",
    "image",
    images,
    # as `Image.is_visible_to`
    visible=or_(_OPEN, _OWN, and_(images.c.visibility == SHARED, IS_MEMBER)),
    filters={PROPERTY: _has_property, TAG: _has_tag, MEMBERSHIP: _membership, NOT_FOREIGN: _not_foreign},
    source=IMAGE_ROW,
    order=(Order("created_at", True), Order("id", True)),
    follows=True,
    lost=_lost,
)


def scope(caller: Caller, visibility: str = "", member_status: str = "accepted") -> tuple[Condition, ...]:
    """Return the conditions of a list. Without options it leaves out shared images that the project has not accepted,
    and community images of other projects. `visibility`: one value, or ALL; `member_status`: ALL for any."""
    conditions = []
    if not caller.is_admin and member_status != ALL:
        conditions.append(Condition(MEMBERSHIP, EQUAL, member_status))
    if visibility == "":
        conditions.append(Condition(NOT_FOREIGN, EQUAL, ()))
    elif visibility != ALL:
        conditions.append(Condition("visibility", EQUAL, visibility))
    return tuple(conditions)


async def list_images(tx: Tx, caller: Caller, wanted: ListQuery) -> list[Image]:
    viewer = None if caller.is_admin else caller.project_id
    return await with_details(tx, await query.find(tx, IMAGE, viewer, wanted, project=caller.project_id))
