"""A server that was never on a host, built from its request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilonova.domain.server import POWER_NONE, SHOWN, Server, to_json


def new_server(server_id: str, turn: int, params: Mapping[str, Any], **state: Any) -> Server:
    """`params` as a create has them and the request spec keeps them; `state` are the columns vm_state, task_state,
    hidden and what else is known."""
    now = params["created_at"]
    server = Server(
        id=server_id,
        project_id=params["project_id"],
        user_id=params["user_id"],
        name=params["name"],
        turn=turn,
        turn_floor=None,
        unsettled=None,
        operation_id=None,
        vm_state="",
        task_state=None,
        power_state=POWER_NONE,
        host=None,
        copy=None,
        runner_host=None,
        runner_copy=None,
        runner_proof=None,
        image_ref=params.get("image", ""),
        flavor_document=to_json(params["flavor"]),
        claimed=None,
        details_document=to_json(params.get("details", {})),
        network_info=None,
        volume_info="[]" if params.get("volumes") else None,
        recheck=0,
        hidden=SHOWN,
        cell0_failure=None,
        created_at=now,
        updated_at=now,
        launched_at=None,
        terminated_at=None,
        deleted=0,
    )
    return server.changed(state)
