"""What an agent makes of the answer to an upload: done, tried again, or failed for good."""

from __future__ import annotations

import http.client
import json

import pytest

from kilonova.compute.http_client import PASSING
from kilonova.compute.image_bytes import _judge
from kilonova.domain.errors import Failed
from kilonova.operations import image_bytes as directly
from kilonova.services.image.uploads import TAKEN_OVER


def said(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "because"}}).encode()


def outcome(status: int, answer: bytes) -> str:
    try:
        _judge("i", "upload", status, answer)
    except http.client.HTTPException:
        return "again"
    except Failed as why:
        return f"final {why.code}" if why.final else "not final"
    return "done"


@pytest.mark.parametrize("status", [200, 204])
def test_done(status: int) -> None:
    assert outcome(status, b"") == "done"


@pytest.mark.parametrize(("status", "answer"), [*((status, b"") for status in PASSING), (409, said(TAKEN_OVER))])
def test_another_try_may_do_better(status: int, answer: bytes) -> None:
    """Also where a later upload has taken over: the next look finds what became of that one."""
    assert outcome(status, answer) == "again"
    assert TAKEN_OVER in directly.PASSING, "hosts in the API's own process do the same"


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [(409, said("image_not_queued"), "image_not_queued"), (413, b"no JSON", "413"), (403, b"[]", "403")],
)
def test_refused_for_good(status: int, answer: bytes, code: str) -> None:
    assert outcome(status, answer) == f"final {code}"
