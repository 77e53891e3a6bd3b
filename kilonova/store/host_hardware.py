"""The hardware of hosts and the claims on it, for the scheduler. The host itself decides.

`version` is raised with every change, so that a reader reads only the hosts that changed since its last read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import and_, bindparam, func, or_, select, update

from kilonova.domain.guest import CopyReport
from kilonova.domain.hardware import HostClaim
from kilonova.schema.tables.cell import copies, host_hardware, migrations, servers
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

_TOUCH = Sql(
    update(host_hardware)
    .where(host_hardware.c.host == bindparam("at_host"))
    .values(version=host_hardware.c.version + 1)
)
_VERSIONS = Sql(select(host_hardware.c.host, host_hardware.c.version))
_DOCUMENTS = Sql(select(host_hardware.c.host, host_hardware.c.document).where(in_list(host_hardware.c.host, "hosts")))
_ITS_MOVE = and_(
    migrations.c.server_id == copies.c.server_id, migrations.c.dest_copy == copies.c.copy, migrations.c.open == 1
)
# A copy that is being created has not reported a claim yet; its request is in the flavor that its server gets there.
_CLAIMS = Sql(
    select(
        *copies.c["host", "server_id", "copy", "claim"],
        func.coalesce(migrations.c.new_flavor, servers.c.flavor).label("flavor"),
    )
    .join(servers, servers.c.id == copies.c.server_id)
    .outerjoin(migrations, _ITS_MOVE)
    .where(in_list(copies.c.host, "hosts"), or_(copies.c.claim.is_not(None), copies.c.state == "making"))
    .order_by(copies.c.host, copies.c.created_at, copies.c.server_id, copies.c.copy)
)
_CLAIM = Sql(
    select(copies.c.claim).where(
        copies.c.server_id == bindparam("server"),
        copies.c.copy == bindparam("copy"),
        copies.c.host == bindparam("host"),
    )
)


async def touch(tx: Tx, host: str) -> None:
    await tx.run(_TOUCH, at_host=host)


async def note_hardware(tx: Tx, host: str, document: str, reports: Sequence[CopyReport]) -> None:
    """Record the hardware that a registering host reports, and its copies' claims."""
    recorded = {(row["server_id"], row["copy"]): row["claim"] for row in await rows.fetch_all(tx, copies, host=host)}
    reported = {(report.server, report.copy): claim_document(report.claim) for report in reports}
    news = sorted(key for key, claim in reported.items() if claim is not None and recorded.get(key, claim) != claim)
    for server, copy in news:  # copies before hardware, as in every transaction that writes both
        await rows.change(tx, copies, {"claim": reported[server, copy]}, server_id=server, copy=copy, host=host)
    stored = await rows.fetch(tx, host_hardware, lock=True, host=host)
    if stored is None:
        await rows.put(tx, host_hardware, host=host, document=document, version=1)
    elif news or stored["document"] != document:
        await rows.change(tx, host_hardware, {"document": document}, host=host)
        await touch(tx, host)


def claim_document(claim: HostClaim | None) -> str | None:
    return None if claim is None else msgspec.json.encode(claim).decode()


def claim_from(document: str | None) -> HostClaim | None:
    return None if document is None else msgspec.json.decode(document, type=HostClaim)


async def versions(tx: Tx) -> dict[str, int]:
    return {row["host"]: row["version"] for row in await tx.all(_VERSIONS)}


async def documents(tx: Tx, hosts: Sequence[str]) -> Mapping[str, str]:
    return {row["host"]: row["document"] for row in await tx.all(_DOCUMENTS, hosts=hosts)}


async def claims_on(tx: Tx, hosts: Sequence[str]) -> Sequence[Row]:
    """Return the claims by host, the oldest first."""
    return await tx.all(_CLAIMS, hosts=hosts)


async def claim_of(tx: Tx, server: str, copy: int, host: str) -> HostClaim | None:
    row = await tx.one(_CLAIM, server=server, copy=copy, host=host)
    return None if row is None else claim_from(row["claim"])
