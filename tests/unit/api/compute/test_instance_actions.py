"""The action of a request that acted twice on a server, as a retried one does: the newest is shown with its events."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.api.compute import instance_actions
from kilonova.domain.errors import Refused

ROWS = [
    {"request_id": "r", "operation_id": "o1"},
    {"request_id": "r", "operation_id": "o2"},
    {"request_id": "other", "operation_id": "o3"},
]


def call_of(request: str, *, allows: bool, version: bool) -> Any:
    return SimpleNamespace(path={"request": request}, at=lambda *_: version, allows=lambda *_, **__: allows)


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    async def server_of(call: Any, *, deleted: bool) -> Any:
        return SimpleNamespace(id="s", project_id="p")

    async def actions(call: Any, record: Any) -> Any:
        return ROWS

    async def events(call: Any, record: Any, operation_id: str) -> list[str]:
        return [f"event of {operation_id}"]

    monkeypatch.setattr(instance_actions, "server_of", server_of)
    monkeypatch.setattr(instance_actions, "_actions", actions)
    monkeypatch.setattr(instance_actions, "_events", events)
    monkeypatch.setattr(instance_actions, "_action", lambda call, row: {"of": row["operation_id"]})
    monkeypatch.setattr(instance_actions, "_event", lambda call, record, event, may_see_all: event)
    monkeypatch.setattr(instance_actions, "answer", lambda content: content)


@pytest.mark.parametrize(("allows", "version"), [(False, False), (True, False), (False, True)])
def test_the_newest_action_of_a_request_is_shown(allows: bool, version: bool) -> None:
    shown: Any = asyncio.run(instance_actions.show(call_of("r", allows=allows, version=version)))
    events = {"events": ["event of o2"]} if allows or version else {}
    assert shown == {"instanceAction": {"of": "o2", **events}}


def test_a_request_that_did_nothing_to_it_is_not_found() -> None:
    with pytest.raises(Refused, match="Action for request_id x on instance s not found"):
        asyncio.run(instance_actions.show(call_of("x", allows=True, version=True)))
