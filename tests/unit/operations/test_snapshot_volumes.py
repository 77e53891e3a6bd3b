"""Whether the snapshots of a server's volumes are there: waited for, failed for good, or done."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Failed, NotYet
from kilonova.operations import snapshot_volumes

STATES = {
    "gone": None,
    "broken": SimpleNamespace(is_broken=True, is_settled=True, reason="no space", status="error"),
    "broken while it is made": SimpleNamespace(is_broken=True, is_settled=False, reason="no space", status="error"),
    "being made": SimpleNamespace(is_broken=False, is_settled=False, reason="", status="creating"),
    "there": SimpleNamespace(is_broken=False, is_settled=True, reason="", status="available"),
}


@pytest.mark.parametrize("name", STATES)
def test_what_is_broken_is_not_waited_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def snapshot_state(snapshot_id: str) -> Any:
        return STATES[name]

    monkeypatch.setattr(snapshot_volumes, "volumes_of", lambda ctx: SimpleNamespace(snapshot_state=snapshot_state))
    ctx: Any = None
    try:
        state = asyncio.run(snapshot_volumes._state(ctx, "s"))
    except Failed as why:
        assert name in ("gone", "broken", "broken while it is made") and why.final
        assert name == "gone" or "no space" in why.message
    except NotYet as why:
        assert name == "being made" and "creating" in str(why)
    else:
        assert name == "there" and state is STATES[name]
