"""A property that is computed once for each object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CachedValue(Generic[T]):
    """Works like `functools.cached_property`, but takes no lock. In Python 3.11 the lock costs more than decoding a
    short document, and a list of servers decodes thousands. The object needs a `__dict__`."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        value = self._compute(owner)
        owner.__dict__[self._name] = value  # found before this descriptor from now on
        return value
