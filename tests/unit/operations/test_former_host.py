"""Whether a server may be evacuated from the host that undoing its move has brought it back to."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Failed
from kilonova.domain.host import FENCE, FORCED_DOWN, SILENCE, HostState
from kilonova.operations.steps.former_host import require_dead


def judge(proven_by: str, down: list[str], params: dict[str, Any]) -> None:
    state = HostState("host1", "down" if proven_by else "unknown", "host1 …", proven_by=proven_by)
    require_dead(state, "a", {"down": down}, params)


@pytest.mark.parametrize("params", [{}, {"accept_unfenced": False}, {"accept_unfenced": True}])
@pytest.mark.parametrize("proof", [FENCE, FORCED_DOWN])
def test_a_host_that_was_fenced_or_declared_down_is_dead(proof: str, params: dict[str, Any]) -> None:
    judge(proof, ["host2"], params)


@pytest.mark.parametrize("params", [{}, {"accept_unfenced": True}])
def test_silence_counts_where_the_request_was_made_in_spite_of_it(params: dict[str, Any]) -> None:
    judge(SILENCE, ["host2", "host1"], params)


@pytest.mark.parametrize(
    ("proof", "down", "params", "code"),
    [
        (SILENCE, ["host2"], {}, "former_host_down"),
        (SILENCE, ["host2"], {"accept_unfenced": True}, "former_host_down"),
        (SILENCE, ["host2", "host1"], {"accept_unfenced": False}, "unfenced"),
        ("", ["host2", "host1"], {"accept_unfenced": True}, "former_host_down"),
    ],
)
def test_a_host_that_may_be_alive_is_not_left(proof: str, down: list[str], params: dict[str, Any], code: str) -> None:
    with pytest.raises(Failed, match=r"^server a: it is back on host1") as failed:
        judge(proof, down, params)
    assert failed.value.code == code and failed.value.final
