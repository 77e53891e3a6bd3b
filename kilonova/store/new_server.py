"""The row of a server that was never on a host, made of what was asked for."""

from __future__ import annotations

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import to_json

NewRow = dict[str, str | float | None]


def new_server(server_id: str, turn: int, spec: ServerSpec, **state: str | int | None) -> NewRow:
    """`state` is vm_state, task_state, hidden and what
    else is known."""
    now = spec.created_at
    return {
        "id": server_id,
        "project_id": spec.project_id,
        "user_id": spec.user_id,
        "name": spec.name,
        "turn": turn,
        "operation_id": None,
        "power_state": 0,
        "host": None,
        "copy": None,
        "runner_host": None,
        "runner_copy": None,
        "runner_proof": None,
        "image_ref": spec.image,
        "flavor": to_json(spec.flavor),
        "claimed": None,
        "details": to_json(spec.details),
        "network_info": None,
        "volume_info": "[]" if spec.volumes else None,
        "recheck": 0,
        "cell0_failure": None,
        "created_at": now,
        "updated_at": now,
        "launched_at": None,
        "terminated_at": None,
        "deleted": 0,
        **state,
    }
