"""Security groups. Each project has one called `default`, made on first use: everything may leave, and what comes from
the group itself may enter."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns, Record, id_of
from kilonova.records.nouns import Attributes, Noun, put_tags_on
from kilonova.schema.tables.network import port_groups, projects, security_group_rules, security_groups, tags
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.kinds import GROUP, RULE
from kilonova.services.network.locks import lock_project
from kilonova.services.network.outdated_servers import mark_group
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Row, Tx

DEFAULT = "default"
EVERY = (("egress", "IPv4"), ("egress", "IPv6"))
AMONG_THEMSELVES = (("ingress", "IPv4"), ("ingress", "IPv6"))

_RULES = Sql(
    select(security_group_rules)
    .where(in_list(security_group_rules.c.group_id, "ids"))
    .order_by(security_group_rules.c.created_at, security_group_rules.c.id)
)
_ADD_RULE = Sql(insert_row(security_group_rules))
_BY_IDS = Sql(select(security_groups).where(in_list(security_groups.c.id, "ids")))


class NoDefaultGroup(Exception):
    """A project needs its default group, which is not there yet: make it, then begin again."""


class SecurityGroups(Noun[NetworkContext]):
    kind = GROUP
    few = False  # a group may have hundreds of rules

    async def dress(self, tx: Tx, records: Sequence[Record], record_rows: Sequence[Row]) -> None:
        by_group: dict[str, list[Record]] = {id_of(record): [] for record in records}
        for row in await tx.all(_RULES, ids=list(by_group)):
            by_group[row["group_id"]].append(RULE.view(row))
        await put_tags_on(tx, RULE, [rule for rules in by_group.values() for rule in rules])
        for record in records:
            record["security_group_rules"] = by_group[id_of(record)]

    async def ensure_default(self, project_id: str) -> str:
        """Create the project's default group if it is missing, and return its id."""

        async def look(tx: Tx) -> str:
            row = await rows.fetch(tx, projects, project_id=project_id)
            return "" if row is None else row["default_group_id"]

        if not project_id or (known_id := await self.control.read(look)):
            return known_id if project_id else ""
        group_id, now = self.context.ids.uuid(), self.context.clock.now()
        rule_ids = [self.context.ids.uuid() for _ in range(4)]

        async def body(tx: Tx) -> str:
            if there := await lock_project(tx, project_id):
                return there
            attributes = {"project_id": project_id, "name": DEFAULT, "description": "Default security group"}
            await rows.put_row(tx, security_groups, {**self.standard(group_id, attributes, now), "stateful": 1})
            await rows.change(tx, projects, {"default_group_id": group_id}, project_id=project_id)
            await self._add_rules(tx, group_id, project_id, rule_ids, EVERY + AMONG_THEMSELVES, now)
            return group_id

        return await self.control.write(body)

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        if request.get("name") == DEFAULT:
            raise Refused("default_group_exists", "Default security group already exists.")
        stateful = int(request.get("stateful", True))
        await rows.put_row(tx, security_groups, {**self.standard(record_id, request, now), "stateful": stateful})
        await self.context.quotas.charge(tx, request["project_id"], RULE.name, len(EVERY))
        rule_ids = [_beside(record_id, number) for number in range(len(EVERY))]
        await self._add_rules(tx, record_id, request["project_id"], rule_ids, EVERY, now)

    async def _add_rules(
        self,
        tx: Tx,
        group_id: str,
        project_id: str,
        rule_ids: Sequence[str],
        wanted: Sequence[tuple[str, str]],
        now: float,
    ) -> None:
        added = []
        for rule_id, (direction, ethertype) in zip(rule_ids, wanted, strict=True):
            row = rule_row(self.standard(rule_id, {"project_id": project_id}, now), group_id, direction, ethertype)
            row["remote_group_id"] = group_id if direction == "ingress" else ""
            added.append(row)
        await tx.many(_ADD_RULE, added)

    async def locked(self, tx: Tx, record_id: str) -> Row:
        """Return the row under the lock of its project: no port begins to use the group while it is deleted."""
        row = await rows.fetch(tx, security_groups, id=record_id)
        if row is None:
            raise GROUP.missing(record_id)
        await lock_project(tx, row["project_id"])
        return await super().locked(tx, record_id)

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        name = request.get("name", row["name"])
        if (name == DEFAULT) is not (row["name"] == DEFAULT):
            code = "default_group_stays" if row["name"] == DEFAULT else "default_group_exists"
            raise Refused(code, "The name 'default' belongs to the default security group, and it to the name.")
        if "stateful" in request and bool(row["stateful"]) is not request["stateful"]:
            await self._refuse_if_used(tx, row["id"])
        if name != row["name"]:
            await mark_group(tx, row["id"])
        return GROUP.columns_of(request)

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        if row["name"] == DEFAULT and viewer is not None:
            raise Refused("default_group_stays", "Insufficient rights for removing the default security group.")
        await self._refuse_if_used(tx, row["id"])
        for key in ("group_id", "remote_group_id"):
            for rule in await rows.fetch_all(tx, security_group_rules, **{key: row["id"]}):
                await rows.remove(tx, tags, record_id=rule["id"])
            await rows.remove(tx, security_group_rules, **{key: row["id"]})
        await rows.change(
            tx, projects, {"default_group_id": ""}, project_id=row["project_id"], default_group_id=row["id"]
        )

    async def _refuse_if_used(self, tx: Tx, group_id: str) -> None:
        if await rows.fetch(tx, port_groups, group_id=group_id) is not None:
            raise Refused("security_group_in_use", f"Security group {group_id} is in use by a port.")


def rule_row(standard: Columns, group_id: str, direction: str, ethertype: str) -> Columns:
    """Return a rule for all traffic of that direction; callers narrow it."""
    return {
        **standard,
        "group_id": group_id,
        "direction": direction,
        "ethertype": ethertype,
        "protocol": "",
        "port_range_min": -1,
        "port_range_max": -1,
        "remote_ip_prefix": "",
        "remote_group_id": "",
    }


def _beside(record_id: str, number: int) -> str:
    """Return the id of a rule made with its group, derived from the group's own: a transaction may run twice."""
    return str(uuid.uuid5(uuid.UUID(record_id), str(number)))


async def groups_of(tx: Tx, viewer: str | None, ids: Sequence[str]) -> list[str]:
    """Return the ids after a check: each group must exist and belong to the project."""
    wanted = list(dict.fromkeys(ids))
    groups = {row["id"]: row for row in await tx.all(_BY_IDS, ids=wanted)} if wanted else {}
    for group_id in wanted:
        if group_id not in groups or viewer not in (None, groups[group_id]["project_id"]):
            raise GROUP.missing(group_id)
    return wanted
