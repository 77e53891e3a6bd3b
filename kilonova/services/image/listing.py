"""Lists of images: which ones, in which order, from where on. One statement per shape of question, built once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Integer, and_, bindparam, exists, func, or_

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.schema.tables.image import image_members, image_properties, image_tags, images
from kilonova.services.image.image import COMMUNITY, MOST_SHOWN, PUBLIC, SHARED, Image
from kilonova.services.image.records import IMAGE_ROW, fetch_image, with_details
from kilonova.services.ordering import Order as Order
from kilonova.services.ordering import complete
from kilonova.store import keyset
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

EQUAL, AT_LEAST, AT_MOST, BELOW, ONE_OF, OUTSIDE = "=", ">=", "<=", "<", "in", "outside"
ALL = "all"
SHAPES_KEPT = 256  # anybody can ask in a new shape; the oldest is forgotten

# What stands for "none" when two images are compared: engines differ in where they sort NULL.
_NONE: dict[str, Any] = {"name": "", "container_format": "", "disk_format": "", "size": 0}
SORT_KEYS = ("name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at")


class ImageCondition(NamedTuple):
    column: str
    operator: str
    value: Any  # OUTSIDE: the first value that is inside, and the first one after


class ImageQuery(NamedTuple):
    limit: int
    conditions: tuple[ImageCondition, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    visibility: str = ""  # one of them, ALL, or "": all but other projects' community images
    member_status: str = "accepted"  # of the caller's project in images that others share with it; ALL: any
    order: tuple[Order, ...] = ()
    marker: str = ""  # the id of the image before the first one


class _ImageQueryShape(NamedTuple):
    """All that changes the text of the statement."""

    admin: bool
    visibility: str
    any_member_status: bool
    conditions: tuple[tuple[str, str], ...]
    properties: int
    tags: int
    order: tuple[Order, ...]
    after_marker: bool


async def list_images(tx: Tx, caller: Caller, wanted: ImageQuery) -> list[Image]:
    order = complete(wanted.order)
    after = await _marker(tx, caller, wanted.marker) if wanted.marker else None
    statement = _statement(
        _ImageQueryShape(
            caller.is_admin,
            wanted.visibility if wanted.visibility in ("", ALL) else "one",
            wanted.member_status == ALL,
            tuple((condition.column, condition.operator) for condition in wanted.conditions),
            len(wanted.properties),
            len(wanted.tags),
            order,
            after is not None,
        )
    )
    return await with_details(tx, await tx.all(statement, **_values(caller, wanted, order, after)))


async def _marker(tx: Tx, caller: Caller, image_id: str) -> Image:
    found = await fetch_image(tx, image_id, caller.project_id)
    if found is None or not found.is_visible_to(caller):
        raise Refused("bad_marker", f"The marker {image_id[:MOST_SHOWN]} is not an image that you can see.")
    return found


def _values(caller: Caller, wanted: ImageQuery, order: tuple[Order, ...], after: Image | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "project": caller.project_id,
        "visibility": wanted.visibility,
        "member_status": wanted.member_status,
        "limit": wanted.limit,
    }
    for number, condition in enumerate(wanted.conditions):
        if condition.operator == OUTSIDE:
            values[f"value{number}"], values[f"after{number}"] = condition.value
        else:
            values[f"value{number}"] = condition.value
    for number, (name, value) in enumerate(wanted.properties):
        values[f"name{number}"], values[f"property{number}"] = name, value
    for number, tag in enumerate(wanted.tags):
        values[f"tag{number}"] = tag
    if after is not None:
        values |= keyset.place([_value(after, column) for column, _ in order])
    return values


def _value(image: Image, column: str) -> Any:
    value = getattr(image, column)
    return _NONE[column] if value is None else value


@lru_cache(SHAPES_KEPT)
def _statement(shape: _ImageQueryShape) -> Sql:
    where = _scope(shape)
    where += [_condition(number, *condition) for number, condition in enumerate(shape.conditions)]
    where += [_has_property(number) for number in range(shape.properties)]
    where += [_has_tag(number) for number in range(shape.tags)]
    order = [keyset.By(_sortable(column), descending) for column, descending in shape.order]
    if shape.after_marker:
        where.append(keyset.after(order))
    return Sql(IMAGE_ROW.where(*where).order_by(*keyset.ordered(order)).limit(bindparam("limit", type_=Integer)))


def _scope(shape: _ImageQueryShape) -> list[Any]:
    """Return the conditions for images that the caller sees: as `Image.is_visible_to`, but only those shared images
    that it accepted or filters for, and other projects' community images only if it filters for them."""
    own = images.c.owner == bindparam("project")
    where: list[Any] = []
    if not shape.admin:
        member = [image_members.c.image_id == images.c.id, image_members.c.member_id == bindparam("project")]
        if not shape.any_member_status:
            member.append(image_members.c.status == bindparam("member_status"))
        shared = and_(images.c.visibility == SHARED, exists().where(and_(*member)))
        where.append(or_(images.c.visibility == PUBLIC, images.c.visibility == COMMUNITY, own, shared))
    if shape.visibility == "":
        where.append(or_(images.c.visibility != COMMUNITY, own))
    elif shape.visibility != ALL:
        where.append(images.c.visibility == bindparam("visibility"))
    return where


def _condition(number: int, name: str, operator: str) -> Any:
    column: Any = images.c[name]
    if operator == ONE_OF:
        return in_list(column, f"value{number}")
    value: Any = bindparam(f"value{number}")
    if operator == EQUAL:
        return column == value
    if operator == AT_LEAST:
        return column >= value
    if operator == AT_MOST:
        return column <= value
    if operator == BELOW:
        return column < value
    return or_(column < value, column >= bindparam(f"after{number}"))


def _has_property(number: int) -> Any:
    table = image_properties.c
    named, valued = table.name == bindparam(f"name{number}"), table.value == bindparam(f"property{number}")
    return exists().where(and_(table.image_id == images.c.id, named, valued))


def _has_tag(number: int) -> Any:
    return exists().where(and_(image_tags.c.image_id == images.c.id, image_tags.c.tag == bindparam(f"tag{number}")))


def _sortable(name: str) -> Any:
    column: Any = images.c[name]
    return func.coalesce(column, _NONE[name]) if name in _NONE else column
