"""The schema revisions that this program knows, per role, oldest first.

They are listed so that opening a database that is up to date needs no Alembic (a tenth of the whole start);
tests/store/test_schema.py compares the list with the files.
"""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.domain.errors import StoreError

ROLES = ("control", "cell", "placement")
REVISIONS: dict[str, tuple[str, ...]] = {
    "control": ("control_0001",),
    "cell": ("cell_0001",),
    "placement": ("placement_0001",),
}


def role_of(store_name: str) -> str:
    return store_name if store_name in ("control", "placement") else "cell"


@dataclass(frozen=True)
class SchemaStatus:
    where: str
    role: str
    current: str | None  # None: the database is empty or not there yet

    @property
    def head(self) -> str:
        return REVISIONS[self.role][-1]

    @property
    def is_newer(self) -> bool:
        """Return whether this program does not know the revision: a later one wrote it."""
        return self.current is not None and self.current not in REVISIONS[self.role]

    @property
    def is_current(self) -> bool:
        return self.current == self.head

    def _other_role(self) -> str | None:
        return next((role for role in ROLES if role != self.role and self.current in REVISIONS[role]), None)

    def refuse_newer(self) -> None:
        if (other := self._other_role()) is not None:
            raise StoreError(
                f"{self.where} is a {other} database, not a {self.role} database; correct the address; "
                "nothing was changed"
            )
        if self.is_newer:
            raise StoreError(
                f"the {self.role} database {self.where} was written by a newer Kilonova (revision {self.current}); "
                f"this one knows up to {self.head}; nothing was changed"
            )

    def refuse_other(self) -> None:
        self.refuse_newer()
        if not self.is_current:
            raise StoreError(
                f"the {self.role} database {self.where} is at revision {self.current or 'none'} and this Kilonova "
                f"needs {self.head}; run `kilonova db upgrade`"
            )
