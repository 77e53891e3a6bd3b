"""Orders on a host: the step that is under way, and the report of its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepOrder


@dataclass
class Running:
    turn: int
    ordinal: int
    key: str
    task: asyncio.Task[None]


def key_of(order: StepOrder) -> str:
    return f"{order.operation}/{order.ordinal}"


def error_of(code: str, message: str, *, elsewhere: bool, final: bool) -> JsonObject:
    return {"code": code, "message": message, "elsewhere": elsewhere, "final": final}
