"""A cloud with people in it: an administrator, a member and a reader of one project, a member of another."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.embedded import Embedded
from tests.support.examples import Examples
from tests.support.people import Person, administrator, new_person, with_role
from tests.support.servers import Postgres
from tests.support.things import Things
from tests.support.things.compute import switch_spares_off

FIRST, SECOND = "first", "second"
SETTINGS = ("simulated.hosts=9", "DEFAULT.report_interval=0.5", "DEFAULT.service_down_time=4")
SETTINGS += ("DEFAULT.reclaim_instance_interval=86400",)  # so that there is something to restore
SETTINGS += ("image.image_size_cap=1048576",)  # a volume that becomes an image is refused instead of read, all of it


@dataclass
class Stage:
    cloud: Embedded
    admin: Person
    member: Person
    reader: Person
    other: Person

    def examples(self, owner: Person) -> Examples:
        """Whose things are the owner's."""
        return Examples(Things(self.admin, owner))


@contextlib.contextmanager
def stage(*settings: str) -> Iterator[Stage]:
    folder = tempfile.TemporaryDirectory(prefix="kilonova-stage-")
    with folder, Embedded(Path(folder.name) / "var", *SETTINGS, *settings) as cloud:
        admin = with_role(administrator(cloud), "service")  # reshaping is for services alone
        member = new_person(admin, "member", FIRST, "member")
        reader = new_person(admin, "reader", FIRST, "reader")
        other = new_person(admin, "other", SECOND, "member")
        staged = Stage(cloud, admin, member, reader, other)
        switch_spares_off(staged.examples(member).things.world)
        yield staged


@contextlib.contextmanager
def databases(postgres: Postgres) -> Iterator[list[str]]:
    """Settings of a stage that keeps its records in new databases there."""
    names = {"control": "database.control", "placement": "database.placement"}
    names |= {cell: f"database.cells.{cell}" for cell in ("cell0", "cell1")}
    try:
        yield [f"{option}={postgres.create_database(name)}" for name, option in names.items()]
    finally:
        for name in names:
            postgres.drop(name)
