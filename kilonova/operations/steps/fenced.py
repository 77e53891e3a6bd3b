"""Writes of a control step into a cell that does not have the step's journal (law 1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kilonova.engine.context import AnyContext
from kilonova.store.fences import MappingTooOld
from kilonova.world import Store, Tx

T = TypeVar("T")
FenceKey = tuple[str, int, int, float]  # as `pass_fence` takes them: server, turn, ordinal, when the server was mapped


def fence_of(ctx: AnyContext) -> tuple[str, int, int]:
    """Server, turn and ordinal, for writes to the control database."""
    return ctx.server_id or "", ctx.turn, ctx.ordinal


async def write_in_cell(ctx: AnyContext, store: Store, body: Callable[[Tx, FenceKey], Awaitable[T]]) -> T:
    """Run the body, which passes the fence first. Raise `Superseded` if the server has no mapping: it was deleted long
    ago.

    A server whose fence may have been purged is looked up in control before a retry.
    """
    fence = ctx.fence
    while True:
        key = (fence.server, fence.turn, fence.ordinal, fence.mapped_at)
        try:
            return await store.write(lambda tx, key=key: body(tx, key))  # type: ignore[misc]
        except MappingTooOld:
            fence = await fence.look_again()
