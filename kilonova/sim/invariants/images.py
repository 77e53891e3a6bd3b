"""The invariant of images that are made of servers: each is whole, or is being made."""

from __future__ import annotations

from collections.abc import Iterator

from kilonova.domain.json import as_list, as_object, as_text, json_object
from kilonova.services.image.image import ACTIVE
from kilonova.sim.lab.records import Records


def at_rest(records: Records) -> Iterator[str]:
    """Yield images that are half made, and snapshots of volumes that were made for an image and do not belong to it."""
    active = {row["id"] for row in records.table("images") if row["status"] == ACTIVE}
    for row in records.table("images"):
        if row["status"] != ACTIVE:
            yield f"image {row['name']} is {row['status']}, and nobody makes it"
    there = {row["id"]: row for row in records.table("volume_snapshots") if row["status"] != "deleting"}
    for op in records.table("operations"):
        facts = json_object(op["facts"])
        image = as_text(facts.get("snapshot_image"))
        for each in as_list(facts.get("snapshots")) if op["state"] != "done" else ():
            snapshot = as_text(as_object(each)["snapshot"])
            if snapshot in there and image not in active:
                yield f"snapshot {snapshot} was made for image {image}, which is not there"


def done_without_image(records: Records) -> Iterator[str]:
    """Yield operations that are done and left no active image, if images are never deleted."""
    active = {row["id"] for row in records.table("images") if row["status"] == ACTIVE}
    for op in records.table("operations"):
        image = json_object(op["facts"]).get("snapshot_image")
        if image and op["state"] == "done" and image not in active:
            yield f"operation {op['id']} is done, and its image {image} is not there"
