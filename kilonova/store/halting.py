"""The halt: while a database is older than others have seen it, only the marks that were seen are written (law 15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kilonova.domain.errors import Halted

_ABOUT_THE_HALT: ContextVar[bool] = ContextVar("about_the_halt", default=False)


def refuse_halted(why: str) -> None:
    """Raise `Halted` with the reason of the store, unless the caller writes about the halt."""
    if not _ABOUT_THE_HALT.get():
        raise Halted(why)


@contextmanager
def about_the_halt() -> Iterator[None]:
    """Allow this task's writes inside; other tasks are refused as before."""
    before = _ABOUT_THE_HALT.get()
    _ABOUT_THE_HALT.set(True)
    try:
        yield
    finally:
        _ABOUT_THE_HALT.set(before)
