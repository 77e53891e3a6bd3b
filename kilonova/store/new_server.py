"""A server that was never on a host, built from its request."""

from __future__ import annotations

from kilonova.domain.details import details_document
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import POWER_NONE, SHOWN, Server, flavor_document


def new_server(server_id: str, turn: int, spec: ServerSpec, **state: str | float | None) -> Server:
    """`state` are the columns vm_state, task_state,
    hidden and what else is known."""
    now = spec.created_at
    server = Server(
        id=server_id,
        project_id=spec.project_id,
        user_id=spec.user_id,
        name=spec.name,
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
        image_ref=spec.image,
        flavor_document=flavor_document(spec.flavor),
        claimed=None,
        details_document=details_document(spec.details),
        network_info=None,
        volume_info="[]" if spec.volumes else None,
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
