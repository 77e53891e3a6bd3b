"""The rows of images: read with their properties and tags in two statements, written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import and_, bindparam, exists, literal_column, select, union_all

from kilonova.domain.errors import Refused
from kilonova.records.structs import struct_of
from kilonova.schema.tables.image import (
    image_files_to_remove,
    image_ids,
    image_members,
    image_properties,
    image_tags,
    images,
)
from kilonova.services.image.image import MOST_PROPERTIES, MOST_TAGS, Image
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Row, Tx

# Whether the caller's project is a member travels with the row: who may see it can be judged without another question.
IS_MEMBER = exists().where(
    and_(image_members.c.image_id == images.c.id, image_members.c.member_id == bindparam("project"))
)
IMAGE_ROW = select(images, IS_MEMBER.label("is_member"))
_ONE = IMAGE_ROW.where(images.c.id == bindparam("image"))
_FIND = Sql(_ONE)
_FIND_LOCKED = Sql(_ONE.with_for_update(of=images))
_PROPERTY, _TAG = "p", "t"
_DETAILS = Sql(
    union_all(
        select(
            image_properties.c.image_id,
            image_properties.c.name,
            image_properties.c.value,
            literal_column(f"'{_PROPERTY}'").label("kind"),
        ).where(in_list(image_properties.c.image_id, "images")),
        select(
            image_tags.c.image_id, image_tags.c.tag, literal_column("''"), literal_column(f"'{_TAG}'").label("kind")
        ).where(in_list(image_tags.c.image_id, "the_same_images")),
    )
)
_ADD_PROPERTY = Sql(insert_row(image_properties))
_ADD_TAG = Sql(insert_row(image_tags))
_COLUMNS = tuple(column.name for column in images.columns)
_FLAGS = ("protected", "hidden")


async def fetch_image(tx: Tx, image_id: str, project_id: str = "", *, lock: bool = False) -> Image | None:
    row = await tx.one(_FIND_LOCKED if lock else _FIND, image=image_id, project=project_id)
    return (await with_details(tx, [row]))[0] if row is not None else None


async def with_details(tx: Tx, image_rows: Sequence[Row]) -> list[Image]:
    if not image_rows:
        return []
    ids = [row["id"] for row in image_rows]
    properties: dict[str, dict[str, str]] = {id: {} for id in ids}
    tags: dict[str, list[str]] = {id: [] for id in ids}
    for row in await tx.all(_DETAILS, images=ids, the_same_images=ids):
        if row["kind"] == _PROPERTY:
            properties[row["image_id"]][row["name"]] = row["value"]
        else:
            tags[row["image_id"]].append(row["name"])
    return [_image(row, properties[row["id"]], sorted(tags[row["id"]])) for row in image_rows]


def _image(row: Row, properties: dict[str, str], tags: list[str]) -> Image:
    more = {"properties": properties, "tags": tuple(tags), "is_member": bool(row["is_member"])}
    return struct_of(Image, row, _COLUMNS, _FLAGS, **more)


async def insert_image(tx: Tx, image: Image) -> None:
    """Insert an image. Raise `Refused` if an image has or ever had this id."""
    if not await insert_unless_known(tx, image):
        raise Refused("image_exists", f"Image ID {image.id} already exists!")


async def insert_unless_known(tx: Tx, image: Image) -> bool:
    """Insert the image. False: an image has or ever had this id."""
    _check_limits(image)
    if not await rows.put(tx, image_ids, unless_there=True, id=image.id):
        return False
    await rows.put_row(tx, images, _values(image, _COLUMNS))
    await _add_properties(tx, image)
    await _add_tags(tx, image)
    return True


async def save_image(tx: Tx, old: Image, new: Image) -> None:
    """Write the attributes that differ."""
    _check_limits(new)
    changed = [name for name in _COLUMNS if getattr(old, name) != getattr(new, name)]
    if changed:
        await rows.change(tx, images, _values(new, changed), id=old.id)
    if new.properties != old.properties:
        await rows.remove(tx, image_properties, image_id=old.id)
        await _add_properties(tx, new)
    if set(new.tags) != set(old.tags):
        await rows.remove(tx, image_tags, image_id=old.id)
        await _add_tags(tx, new)


async def remove_image(tx: Tx, image_id: str, file: str | None) -> None:
    """Remove the image except its id, which stays taken; its file must still be removed."""
    if file is not None:
        await rows.put(tx, image_files_to_remove, unless_there=True, file=file)
    for table in (image_properties, image_tags, image_members):
        await rows.remove(tx, table, image_id=image_id)
    await rows.remove(tx, images, id=image_id)


def _values(image: Image, names: Iterable[str]) -> dict[str, object]:
    return {name: int(getattr(image, name)) if name in _FLAGS else getattr(image, name) for name in names}


def _check_limits(image: Image) -> None:
    for what, count, most in (
        ("properties", len(image.properties), MOST_PROPERTIES),
        ("tags", len(set(image.tags)), MOST_TAGS),
    ):
        if count > most:
            raise Refused("image_limit", f"An image may have at most {most} {what}; this would be {count}.")


async def _add_properties(tx: Tx, image: Image) -> None:
    if image.properties:
        named = [{"image_id": image.id, "name": name, "value": value} for name, value in image.properties.items()]
        await tx.many(_ADD_PROPERTY, named)


async def _add_tags(tx: Tx, image: Image) -> None:
    if image.tags:
        await tx.many(_ADD_TAG, [{"image_id": image.id, "tag": tag} for tag in sorted(set(image.tags))])
