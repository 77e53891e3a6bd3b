"""A number that aggregates may say for their hosts, instead of the configuration."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools, Ints
from kilonova.scheduler.aggregate_metadata import least, of_host, together
from kilonova.scheduler.field import Field


def below(field: Field, counts: Ints, key: str, default: int) -> Bools:
    hosts = field.hosts
    limits = hosts.kinds.valued(lambda kind: least(together(hosts.memberships(kind)), key, default))
    return counts < limits


def limit_of(field: Field, key: str, default: int, at: int) -> int:
    return int(least(of_host(field, at), key, default))
