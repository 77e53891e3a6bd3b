"""What a rebuild asks the scheduler about its own host, and what it takes for the answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import NoValidHost
from kilonova.operations import rebuild
from kilonova.operations.facts import RebuildFacts, RecordBefore


class Decision(msgspec.Struct):
    chosen: str | None


@pytest.mark.parametrize("volume", [{}, {"volume": "v"}])
@pytest.mark.parametrize("chosen", [None, "host1"])
def test_it_asks_about_its_own_host_with_the_new_image(
    monkeypatch: pytest.MonkeyPatch, volume: dict[str, str], chosen: str | None
) -> None:
    asked: list[Any] = []

    async def judge_in_place(request: Any, cell: str) -> Decision:
        asked.append((request, cell))
        return Decision(chosen)

    async def unless_away(ctx: Any, waits: Any) -> Any:
        return await waits

    monkeypatch.setattr(rebuild, "unless_away", unless_away)
    monkeypatch.setattr(rebuild, "_refusal", lambda found, facts: "no")
    facts = RebuildFacts(image="new", format="raw", properties={"os": "new"}, destination="host1", **volume)
    facts.before = RecordBefore(image="old")
    row = SimpleNamespace(flavor="small", id="s", project_id="p")
    journal, scheduler = SimpleNamespace(name="cell1"), SimpleNamespace(judge_in_place=judge_in_place)
    ctx: Any = SimpleNamespace(facts=facts, row=row, journal=journal, scheduler=scheduler, documents={})
    if chosen is None:
        with pytest.raises(NoValidHost):
            asyncio.run(rebuild.check_image(ctx))
    else:
        asyncio.run(rebuild.check_image(ctx))
        assert ctx.documents == {"decision": {"chosen": "host1"}}
    ((request, cell),) = asked
    assert (cell, request.server, request.project, request.wanted_host) == ("cell1", "s", "p", "host1")
    assert (request.image.id, request.image.format, request.image.properties) == ("new", "raw", {"os": "new"})
    assert request.volume_backed is bool(volume)
