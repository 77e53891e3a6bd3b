"""A fence that fails: its own reason is told, whatever becomes of the host that was closed for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Failed, StoreError
from kilonova.hosts import states
from kilonova.settings import HaOptions, Settings


async def hang(*given: Any) -> None:
    await asyncio.sleep(60.0)


async def be_away(*given: Any) -> None:
    raise StoreError("database cell1: it is closed")


async def answer(*given: Any) -> None:
    return None


async def fail(host: str) -> str:
    raise Failed("fence_failed", "no route to its power switch")


@pytest.mark.parametrize("opened_again", [answer, hang, be_away])
@pytest.mark.parametrize(("command", "reason"), [(fail, "no route"), (hang, "no answer within 0.01 s")])
def test_a_cell_that_does_not_answer_does_not_hide_why(
    monkeypatch: pytest.MonkeyPatch, opened_again: Any, command: Any, reason: str
) -> None:
    closed: list[bool] = []

    async def find_host(engine: Any, host: str) -> Any:
        return SimpleNamespace(name="cell1"), {"provider_id": "p", "session": "s"}

    async def set_accepting(placement: Any, provider: str, accepting: bool) -> None:
        closed.append(not accepting)

    monkeypatch.setattr(states, "find_host", find_host)
    monkeypatch.setattr(states, "set_accepting", set_accepting)
    monkeypatch.setattr(states, "_register_again", opened_again)
    monkeypatch.setattr(states, "REGISTER_AGAIN_SECONDS", 0.01)
    world = SimpleNamespace(fence=SimpleNamespace(fence=command), db=SimpleNamespace(placement=None))
    engine: Any = SimpleNamespace(world=world, settings=Settings(ha=HaOptions(fence_timeout=0.01)))
    with pytest.raises(Failed, match=reason):
        asyncio.run(states.fence(engine, "host1"))
    assert closed == [True]
