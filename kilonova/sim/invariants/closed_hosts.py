"""A host that accepts no more servers is not a destination (story H3).

The databases of a simulated cloud are watched from inside: a trigger sees every claim that raises the use of a provider
that does not accept, in the moment it is made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilonova.sim.lab.records import Records

CLOSED_BY = ("disabled", "draining", "returning", "forced_down", "fenced")

_WATCH = """
    CREATE TABLE claims_on_closed (host TEXT, class_id INTEGER, was INTEGER, used INTEGER);
    CREATE TRIGGER claim_on_closed AFTER UPDATE OF used ON inventories
    WHEN NEW.used > OLD.used
        AND (SELECT accepting FROM resource_providers WHERE id = NEW.provider_id) = 0
    BEGIN
        INSERT INTO claims_on_closed
        SELECT name, NEW.class_id, OLD.used, NEW.used FROM resource_providers WHERE id = NEW.provider_id;
    END;
"""


def watch(placement: Path) -> None:
    """From now on; nobody has opened the file yet."""
    with closing(sqlite3.connect(placement)) as database:
        database.executescript(_WATCH)


def at_any_time(placement: Path) -> Iterator[str]:
    """Yield the claims on closed hosts; none of a database that is not watched, as PostgreSQL's are not."""
    if not placement.exists():
        return
    with closing(sqlite3.connect(f"file:{placement}?mode=ro", uri=True)) as database:
        for host, class_id, was, used in database.execute("SELECT * FROM claims_on_closed"):
            yield f"{host} accepts no claims, and one raised its use of class {class_id} from {was} to {used}"


def at_rest(records: Records) -> Iterator[str]:
    accepts = {row["uuid"]: bool(row["accepting"]) for row in records.table("resource_providers")}
    for host in records.table("hosts"):
        why = [column for column in CLOSED_BY if host[column]]
        if why and accepts.get(host["provider_id"]):
            yield f"{host['name']} accepts claims, though it is {' and '.join(why)}"
        if not why and not accepts.get(host["provider_id"]):
            yield f"{host['name']} accepts no claims, and nothing says why"
