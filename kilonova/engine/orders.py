"""The order of a step for its host, and whether the host may have it."""

from __future__ import annotations

from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.messages import StepFacts, StepOrder
from kilonova.domain.server import Server
from kilonova.engine import journal as log
from kilonova.engine.context import guest_spec
from kilonova.engine.core import Engine
from kilonova.engine.course import Go
from kilonova.engine.facts import OperationFacts, for_host
from kilonova.engine.journal import Op
from kilonova.engine.model import DISK_TOKEN, IMAGE_TOKEN, UPLOAD_TOKEN, AnyStep
from kilonova.engine.server_secrets import server_secrets
from kilonova.engine.tickets import FETCH, SEND, Ticket, disk_token, issue
from kilonova.world import Store, Tx


def may_run(server: Server | None, step: AnyStep, go: Go) -> bool:
    """Return whether permission to run is committed (law 3), as a step that powers on needs before it is handed out."""
    if not (step.starts_guest if go.way == "do" else step.undo_starts_guest):
        return True
    return server is not None and (server.runner_host, server.runner_copy) == (go.target.host, go.target.copy)


async def order_for(
    engine: Engine, tx: Tx, journal: Store, op: Op, step: AnyStep, go: Go, server: Server | None
) -> StepOrder:
    """Return the order for a step that is taken in this transaction, to be sent once it is committed."""
    owner = await log.load(tx, go.owner) if go.owner else None
    facts: OperationFacts = (owner or op).facts(engine.operation((owner or op).kind))
    copy, host_facts = go.target.copy, for_host(facts)
    guest = server if step.with_guest else None
    return StepOrder(
        journal=journal.name,
        operation=op.id,
        kind=owner.kind if owner else op.kind,
        name=step.name,
        way=go.way,
        ordinal=op.ordinal,
        server=op.server_id or "",
        turn=op.turn,
        copy=copy,
        facts=host_facts,
        guest=None if guest is None else guest_spec(guest, copy, facts.flavor_of(copy)),
        guest_secrets=await _guest_secrets(engine, tx, op, server) if step.with_secrets and go.way == "do" else None,
        secrets=_tokens(engine, journal, op, step, go, server, host_facts),
    )


async def _guest_secrets(engine: Engine, tx: Tx, op: Op, server: Server | None) -> GuestSecrets:
    """The server's own user data and files, and the password if the operation sets one."""
    password = (await engine.seal.open(tx, op.id)).get("admin_pass", "")
    return GuestSecrets(admin_password=password) if server is None else server_secrets(engine.seal, server, password)


def _tokens(
    engine: Engine, journal: Store, op: Op, step: AnyStep, go: Go, server: Server | None, facts: StepFacts
) -> dict[str, str]:
    """Return the tokens with which the host may fetch or send bytes while it does this step."""
    if go.way != "do":
        return {}
    seal, host = engine.seal, go.target.host

    def ticket(image: str, verb: str) -> str:
        return issue(seal, Ticket(journal.name, op.id, op.ordinal, host, image, verb))

    tokens: dict[str, str] = {}
    if UPLOAD_TOKEN in step.tokens:
        tokens[UPLOAD_TOKEN] = ticket(facts.snapshot_image, SEND)
    if IMAGE_TOKEN in step.tokens and server is not None and server.image_ref:
        tokens[IMAGE_TOKEN] = ticket(server.image_ref, FETCH)
    if DISK_TOKEN in step.tokens:
        tokens[DISK_TOKEN] = disk_token(seal, op.id, op.server_id or "", facts.destination, facts.copy)
    return tokens
