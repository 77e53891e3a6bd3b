"""Wake-ups for hosts whose network data has changed. Changes are collected for a moment after their commit; then each
host that may have the data is asked to read it again. A lost message costs a host one heartbeat interval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import or_, select

from kilonova.bus import in_cell, network_subject
from kilonova.domain.errors import KilonovaError
from kilonova.schema.tables.control import host_mappings
from kilonova.schema.tables.network import hosts, port_groups, ports
from kilonova.store.statements import Sql, in_list
from kilonova.world import Bus, Clock, Row, Store, Tx

logger = logging.getLogger(__name__)
MOMENT = 0.1  # seconds; a batch of servers touches the same hosts

_ANY_HOST = Sql(select(hosts.c.host).limit(1))
_CELL = host_mappings.c.cell
_OF_PORTS = Sql(
    select(hosts.c.host, _CELL)
    .join(host_mappings, host_mappings.c.host == hosts.c.host)
    .where(
        hosts.c.host.in_(
            select(ports.c.host).where(
                or_(
                    in_list(ports.c.project_id, "projects"),
                    in_list(ports.c.network_id, "networks"),
                    ports.c.id.in_(select(port_groups.c.port_id).where(in_list(port_groups.c.group_id, "groups"))),
                )
            )
        )
    )
)
_NODES = Sql(
    select(hosts.c.host, _CELL).join(host_mappings, host_mappings.c.host == hosts.c.host).where(hosts.c.is_node == 1)
)


@dataclass
class Touched:
    projects: set[str] = field(default_factory=set)
    networks: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class Wakeups:
    def __init__(self, control: Store, bus: Bus, clock: Clock, prefix_of: Callable[[str], str]) -> None:
        self._control, self._bus, self._clock = control, bus, clock
        self._prefix_of = prefix_of  # by cell: the prefix of its hosts' subjects
        self._touched = Touched()
        self._task: asyncio.Task[None] | None = None

    def touch(self, *, projects: Iterable[str] = (), networks: Iterable[str] = (), groups: Iterable[str] = ()) -> None:
        """Note, after the commit, that these have changed for all that have ports there. The network node is always
        woken."""
        self._touched.projects.update(projects)
        self._touched.networks.update(networks)
        self._touched.groups.update(groups)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._later())

    def touch_record(self, kind: str, record: Mapping[str, Any]) -> None:
        """Touch by a record of the API: its view or its row."""
        names = {"network": "id", "subnet": "network_id", "port": "network_id"}
        networks = [record[names[kind]]] if kind in names else []
        if kind == "security_group_rule":
            self.touch(groups=[record["security_group_id" if "security_group_id" in record else "group_id"]])
        else:
            # a port's groups are its project's
            self.touch(projects=[record["project_id"]] if kind in ("port", "security_group") else [], networks=networks)

    async def _later(self) -> None:
        await self._clock.sleep(MOMENT)
        touched, self._touched = self._touched, Touched()
        try:
            for row in await self._control.read(lambda tx: _concerned(tx, touched)):
                subject = in_cell(self._prefix_of(row["cell"]), network_subject(row["host"]))
                await self._bus.cast(subject, b"")
        except KilonovaError as error:
            logger.warning("no wake-up sent for changed networks, hosts ask at their next heartbeat: reason=%s", error)
        if self._touched != Touched():  # more changes arrived meanwhile
            self._task = asyncio.create_task(self._later())


async def _concerned(tx: Tx, touched: Touched) -> list[Row]:
    """Return the hosts concerned. In a simulated cloud no host asks for documents; then one query is enough."""
    if await tx.one(_ANY_HOST) is None:
        return []
    chosen = {
        "projects": sorted(touched.projects - {""}),
        "networks": sorted(touched.networks),
        "groups": sorted(touched.groups),
    }
    host_rows = [*await tx.all(_NODES), *(await tx.all(_OF_PORTS, **chosen) if any(chosen.values()) else [])]
    return list({row["host"]: row for row in host_rows}.values())
