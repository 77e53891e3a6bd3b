"""Common members of responses: links, and from 1.15 on the time of the last change."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing, written
from kilonova.api.content import Content
from kilonova.placement.providers import Provider

PROVIDER = "/resource_providers/{provider}"


def dated(call: Call, content: Any, at: float | None = None, status: int = 200) -> Response:
    """Return a response with the time of its last change (`at`); now, if it is not a single record."""
    return _date(call, answer(content, status), at)


def dated_text(call: Call, text: bytes) -> Response:
    return _date(call, written(text), None)


def dated_nothing(call: Call, at: float | None = None, status: int = 204) -> Response:
    return _date(call, nothing(status), at)


def _date(call: Call, response: Response, at: float | None) -> Response:
    if call.at(1, 15):
        response.headers["last-modified"] = formatdate(call.now if at is None else at, usegmt=True)
        response.headers["cache-control"] = "no-cache"
    return response


def provider(call: Call, record: Provider) -> dict[str, Content]:
    own = links(call, record.uuid)
    content: dict[str, Content] = {
        "uuid": record.uuid,
        "name": record.name,
        "generation": record.generation,
        "links": own,
    }
    if call.at(1, 14):
        content |= {"parent_provider_uuid": record.parent_uuid, "root_provider_uuid": record.root_uuid}
    return content


def links(call: Call, uuid: str) -> list[dict[str, str]]:
    path = f"{call.prefix}/resource_providers/{uuid}"
    related = ["inventories", "usages"]
    for since, name in ((1, "aggregates"), (6, "traits"), (11, "allocations")):
        related += [name] if call.at(1, since) else []
    return [{"rel": "self", "href": path}, *({"rel": name, "href": f"{path}/{name}"} for name in related)]
