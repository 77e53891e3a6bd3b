"""What hints have in common: a value may be given once, several times, or as a text with commas."""

from __future__ import annotations

from kilonova.scheduler.request import ResourceRequest


def values(request: ResourceRequest, name: str) -> list[str]:
    given = request.hints.get(name, [])
    return [part.strip() for text in given for part in str(text).split(",") if part.strip()]
