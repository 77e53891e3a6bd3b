"""The names of traits and resource classes: standard ones are valid without a row, custom ones are rows.

A row is created on first use (`trait_ids` in traits.py, `class_ids` in classes.py); until then a standard name is valid
all the same, so names are checked here and not in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from sqlalchemy import select

from kilonova.domain.traits import OWN_TRAITS
from kilonova.schema.tables.placement import resource_classes, traits
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

CUSTOM = "CUSTOM_"
LONGEST = 255  # characters
NAME = re.compile(r"[A-Z0-9_]{1,255}")

READ_TRAITS = Sql(select(traits.c.name).where(in_list(traits.c.name, "names")))
READ_CLASSES = Sql(select(resource_classes.c.name).where(in_list(resource_classes.c.name, "names")))


@cache
def standard_traits() -> frozenset[str]:
    import os_traits  # only on demand: it reads a folder of modules

    return frozenset(os_traits.get_traits())


@cache
def standard_classes() -> tuple[str, ...]:
    """Return the standard classes in their own order: VCPU, MEMORY_MB, DISK_GB, …"""
    import os_resource_classes

    return tuple(os_resource_classes.STANDARDS)


@cache
def _class_names() -> frozenset[str]:
    return frozenset(standard_classes())


def in_order(classes: Iterable[str]) -> list[str]:
    """The standard ones first, in their own order."""
    ranks = {name: rank for rank, name in enumerate(standard_classes())}
    return sorted(classes, key=lambda name: (ranks.get(name, len(ranks)), name))


def is_standard_trait(name: str) -> bool:
    return name in standard_traits()


def is_standard_class(name: str) -> bool:
    return name in _class_names()


def is_name(name: str) -> bool:
    """Return True if the name has the form of a trait or class; it need not exist."""
    return NAME.fullmatch(name) is not None


def is_custom(name: str) -> bool:
    return is_name(name) and name.startswith(CUSTOM) and name != CUSTOM


async def unknown_traits(tx: Tx, names: Iterable[str]) -> list[str]:
    """Return the names that are neither standard nor written, sorted."""
    custom = {name for name in names if not is_standard_trait(name)} - OWN_TRAITS
    if not custom:
        return []
    return sorted(custom - {row["name"] for row in await tx.all(READ_TRAITS, names=sorted(custom))})


async def unknown_classes(tx: Tx, names: Iterable[str]) -> list[str]:
    custom = {name for name in names if not is_standard_class(name)}
    if not custom:
        return []
    return sorted(custom - {row["name"] for row in await tx.all(READ_CLASSES, names=sorted(custom))})
