"""Real objects for the addresses of every route: one maker per parameter, found by the path up to it.

A route with a parameter that nobody knows how to make fails its tests with a sentence, so none is forgotten.
"""

from __future__ import annotations

from urllib.parse import quote

from kilonova.api.routes import Version
from tests.support.people import Person
from tests.support.table import Entry
from tests.support.things import compute, identity, image, network, own, placement, server_volume, volume
from tests.support.things.making import Maker, Where, World

MAKERS: dict[str, dict[str, Maker]] = {
    "compute": {**compute.MAKERS, **server_volume.MAKERS},
    "identity": identity.MAKERS,
    "image": image.MAKERS,
    "network": network.MAKERS,
    "placement": placement.MAKERS,
    "volume": volume.MAKERS,
    "kilonova": own.MAKERS,
}
# What belongs to no project, or to all of them: the answer to anybody is the same.
FOR_ALL = {
    *("/flavors/{flavor}", "/flavors/{flavor}/os-extra_specs/{key}", "/extensions/{alias}"),
    *(
        "/os-quota-sets/{project}/defaults",
        "/v2/schemas/{schema}",
        "/v2.0/extensions/{alias}",
        "/openapi/{service}",
        "/regions/{id}",
    ),
    *("/types/{type}", "/types/{type}/extra_specs", "/types/{type}/extra_specs/{key}"),
}
SEEN_BY_ALL = ("/services/{id}", "/endpoints/{id}", "/v2/images/{image}/members/{member}")  # in catalogs, as owners


def is_for_all(entry: Entry) -> bool:
    return entry.route.path in FOR_ALL or set(entry.parameters) <= FOR_ALL


class Things:
    def __init__(self, admin: Person, owner: Person) -> None:
        """`owner` has what belongs to a project or a user, `admin` makes the rest."""
        self.world = World(admin, owner)
        self._kept: dict[tuple[object, ...], str] = {}
        self.lift_quotas()

    def lift_quotas(self) -> None:
        compute.lift_quotas(self.world)
        network.lift_quotas(self.world)
        volume.lift_quotas(self.world)

    def values(self, entry: Entry, version: Version, *, anew: bool = False) -> dict[str, str]:
        """Of the parameters, by the path up to each; made once unless `anew`."""
        where = Where(entry, version, {}, anew)
        for path in entry.parameters:
            maker = MAKERS.get(entry.service, {}).get(path)
            assert maker is not None, (
                f"tests/support/things must know how to make the last part of {path}: {entry.name}"
            )
            verb = "" if entry.is_read else f"{entry.route.method} {entry.route.action}"
            key = (path, entry.service, verb, *_variant(entry, version, maker), *where.values.values())
            if not anew and key not in self._kept:
                self._kept[key] = maker(self.world, where)
            where.values[path] = maker(self.world, where) if anew else self._kept[key]
        return where.values

    def forget(self, *, also_read: bool = False) -> None:
        """What was made to be changed: it may be gone. `also_read`: and what was made to be looked at."""
        self._kept = {} if also_read else {key: value for key, value in self._kept.items() if not key[2]}

    @property
    def private(self) -> set[str]:
        """Ids that nobody outside of the owner's project may see anywhere."""
        return {
            value
            for (path, *_), value in self._kept.items()
            if path not in FOR_ALL and path not in SEEN_BY_ALL and len(value) >= 32
        }


def _variant(entry: Entry, version: Version, maker: Maker) -> tuple[object, ...]:
    """What beside the address and the verb a maker looks at."""
    return version < (2, 53), entry.route.path if maker in (*compute.BY_PATH, *volume.BY_PATH) else ""


def address(entry: Entry, values: dict[str, str]) -> str:
    """The path on the port, with these values in it."""
    given = iter(values.values())
    segments = [segment for segment in entry.route.path.split("/") if segment]
    parts = [quote(next(given), safe="") if segment.startswith("{") else segment for segment in segments]
    return "/".join([entry.prefix, *parts])
