"""Roles, and which of them imply which others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Record
from kilonova.schema.tables.identity import implied_roles, role_assignments, roles
from kilonova.services.identity.record_service import DomainRecords
from kilonova.services.identity.records import fetch, kind_of, refuse_immutable
from kilonova.services.identity.snapshot import reach
from kilonova.store import rows
from kilonova.world import Row, Tx

ROLE = kind_of("role", roles, settable=frozenset({"name", "description", "options"}), filterable=("name", "domain_id"))
ADMIN, MANAGER, MEMBER, READER, SERVICE = "admin", "manager", "member", "reader", "service"


class Roles(DomainRecords):
    kind = ROLE
    defaults = {"description": None, "options": "{}"}

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        if row is not None:
            refuse_immutable("role", row, request)
        return await super().check(tx, record_id, request, row)

    async def create(self, request: Mapping[str, Any], new_id: str = "", **columns: Any) -> Record:
        return await super().create(request, new_id, domain_id=request.get("domain_id") or "", **columns)

    async def leave(self, tx: Tx, row: Row) -> None:
        refuse_immutable("role", row)
        await rows.remove(tx, role_assignments, role_id=row["id"])
        await rows.remove(tx, implied_roles, prior_id=row["id"])
        await rows.remove(tx, implied_roles, implied_id=row["id"])

    # -- what implies what --------------------------------------------------------------------------------------------

    async def imply(self, prior_id: str, implied_id: str) -> None:
        async def body(tx: Tx) -> None:
            prior, implied = await fetch(tx, ROLE, prior_id), await fetch(tx, ROLE, implied_id)
            if implied["name"] == ADMIN and not implied["domain_id"]:
                raise Refused("forbidden", "No role may imply admin.")
            if implied["domain_id"] and not prior["domain_id"]:
                raise Refused("forbidden", f"{prior['name']} is for all domains and cannot imply a role of one.")
            steps: dict[str, set[str]] = {}
            for row in await rows.fetch_all(tx, implied_roles):
                steps.setdefault(row["prior_id"], set()).add(row["implied_id"])
            if prior_id in reach(implied_id, steps):
                raise Refused("bad_request", f"{implied['name']} already implies {prior['name']}.")
            await rows.put(tx, implied_roles, unless_there=True, prior_id=prior_id, implied_id=implied_id)

        await self.records.write(body)

    async def imply_no_more(self, prior_id: str, implied_id: str) -> None:
        async def body(tx: Tx) -> None:
            if not await rows.remove(tx, implied_roles, prior_id=prior_id, implied_id=implied_id):
                raise Refused("not_found", f"Role {prior_id[:255]} does not imply {implied_id[:255]}.")

        await self.records.write(body)

    async def inferences(self, prior_id: str = "") -> list[tuple[Record, list[Record]]]:
        """Return each role that directly implies others, with those; or only the given role, even without any."""

        async def body(tx: Tx) -> tuple[Sequence[Row], Sequence[Row]]:
            if prior_id:
                await fetch(tx, ROLE, prior_id)
            return await rows.fetch_all(tx, roles), await rows.fetch_all(tx, implied_roles)

        known, steps = await self.records.read(body)
        by_id = {row["id"]: ROLE.view(row) for row in known}
        by_prior: dict[str, list[Record]] = {prior_id: []} if prior_id else {}
        for row in steps:
            if not prior_id or row["prior_id"] == prior_id:
                by_prior.setdefault(row["prior_id"], []).append(by_id[row["implied_id"]])
        return [(by_id[prior], implied) for prior, implied in by_prior.items()]
