"""The ports of servers.

Every write comes from another journal, so it passes the server's fence first (law 2): an older write changes nothing,
and a repeated one finds its result by the server's id and the port's slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, select, union_all, update

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.network import Vif, VifAddress, WantedPort
from kilonova.schema.tables.network import (
    STANDS_FOR_A_PORT,
    fixed_ips,
    floating_ips,
    networks,
    port_groups,
    ports,
    security_groups,
)
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.groups import NoDefaultGroup, SecurityGroups, groups_of
from kilonova.services.network.kinds import NETWORK, PORT
from kilonova.services.network.locks import lock_networks, lock_project
from kilonova.services.network.making import UNBOUND, NewPort, binding, drop_ports, make_port
from kilonova.services.network.outdated_servers import marked_among, unmark
from kilonova.services.network.owners import of_a_server
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.statements import Sql, in_list
from kilonova.world import Body, Row, Tx

FenceKey = tuple[str, int, int]  # server, turn, ordinal

_OF_SERVER = Sql(
    select(ports).where(ports.c.device_id == bindparam("server_id"), ports.c.slot >= 0).order_by(ports.c.slot)
)
_BIND = Sql(
    update(ports)
    .where(ports.c.device_id == bindparam("server"), ports.c.slot >= 0, ports.c.host != bindparam("new_host"))
    .values(
        host=bindparam("new_host"),
        vif_type=bindparam("new_vif_type"),
        vif_details=bindparam("new_vif_details"),
        status=bindparam("new_status"),
        updated_at=bindparam("now"),
        revision=ports.c.revision + 1,
    )
)
# One row per port, address and group. Named records appear by id; their names are read once for all ports.
_VIFS = Sql(
    select(
        *(
            ports.c[name]
            for name in ("id", "device_id", "slot", "network_id", "mac", "created_here", "tag", "vif_type", "host")
        ),
        port_groups.c.group_id,
        fixed_ips.c.position,
        fixed_ips.c.address,
        fixed_ips.c.subnet_id,
        floating_ips.c.address.label("floating"),
    )
    .select_from(
        ports.outerjoin(port_groups, port_groups.c.port_id == ports.c.id)
        .outerjoin(fixed_ips, fixed_ips.c.port_id == ports.c.id)
        .outerjoin(
            floating_ips,
            and_(
                floating_ips.c.port_id == fixed_ips.c.port_id,
                floating_ips.c.fixed_address == fixed_ips.c.address,
                STANDS_FOR_A_PORT,
            ),
        )
    )
    .where(in_list(ports.c.device_id, "server_ids"), ports.c.slot >= 0)
)
_NAMES = Sql(
    union_all(
        select(networks.c.id, networks.c.name).where(in_list(networks.c.id, "network_ids")),
        select(security_groups.c.id, security_groups.c.name).where(in_list(security_groups.c.id, "group_ids")),
    )
)


class ServerPorts:
    def __init__(self, context: NetworkContext, groups: SecurityGroups) -> None:
        self._context, self._groups = context, groups

    async def allocate(
        self,
        fence: FenceKey,
        *,
        project_id: str,
        wanted: Sequence[WantedPort],
        security_groups: Sequence[str],
        host: str,
        availability_zone: str,
        hostname: str,
    ) -> list[Vif]:
        server_id, now = fence[0], self._context.clock.now()
        ids = [self._context.ids.uuid() for _ in wanted]
        common = {
            "device_id": server_id,
            "device_owner": of_a_server(availability_zone),
            "dns_name": hostname,
            **binding(host),
        }

        async def body(tx: Tx) -> list[Vif]:
            await pass_fence_in_control(tx, *fence)
            there = {row["slot"] for row in await tx.all(_OF_SERVER, server_id=server_id)}
            if there:
                await self._bind(tx, server_id, host, now)
            missing = {slot: want for slot, want in enumerate(wanted) if slot not in there}
            if missing:
                await self._add(tx, project_id, missing, ids, security_groups, common, now)
            return (await vifs_of(tx, [server_id])).get(server_id, [])

        try:
            vifs = await self._with_default_group(project_id, body)
        except Refused as why:
            raise Failed(why.code, why.message, final=True) from why
        self._touch([{"project_id": project_id, "network_id": vif.network_id} for vif in vifs])
        return vifs

    def _touch(self, changed: Sequence[Mapping[str, Any]]) -> None:
        """Wake other hosts for new members of groups and new peers; this host learns of them from its orders."""
        self._context.touched(PORT.name, changed)

    async def _with_default_group(self, project_id: str, body: Body[list[Vif]]) -> list[Vif]:
        try:
            return await self._context.control.write(body)
        except NoDefaultGroup:
            await self._groups.ensure_default(project_id)
            return await self._context.control.write(body)

    async def _add(
        self,
        tx: Tx,
        project_id: str,
        missing: Mapping[int, WantedPort],
        ids: Sequence[str],
        group_ids: Sequence[str],
        common: Mapping[str, object],
        now: float,
    ) -> None:
        default = await lock_project(tx, project_id)
        new_count = sum(not want.port_id for want in missing.values())
        if new_count:
            await self._context.quotas.charge(tx, project_id, PORT.name, new_count)
        groups = await groups_of(tx, project_id, group_ids) if group_ids else [default]
        known = {slot: await self._given(tx, want.port_id) for slot, want in missing.items() if want.port_id}
        used = [known[slot]["network_id"] if want.port_id else want.network_id for slot, want in missing.items()]
        there = await lock_networks(tx, used)
        for slot, want in missing.items():
            columns = {**common, "slot": slot, "tag": want.tag}
            if want.port_id:
                await self._take(tx, want.port_id, project_id, columns, now)
                continue
            network = there.get(want.network_id)
            if network is None:
                raise NETWORK.missing(want.network_id)
            if network["port_security"] and groups == [""]:
                raise NoDefaultGroup
            new = NewPort(
                id=ids[slot],
                project_id=project_id,
                fixed_ips=[{"ip_address": want.fixed_ip}] if want.fixed_ip else None,
                groups=groups if network["port_security"] else [],
                columns={**columns, "created_here": 1},
            )
            await make_port(tx, network, new, now)

    async def _given(self, tx: Tx, port_id: str) -> Row:
        row = await rows.fetch(tx, ports, id=port_id)
        if row is None:
            raise PORT.missing(port_id)
        return row

    async def _take(self, tx: Tx, port_id: str, project_id: str, columns: Mapping[str, object], now: float) -> None:
        port = await self._given(tx, port_id)  # as it is now, under the lock of its network
        if port["project_id"] != project_id:
            raise Refused("port_not_usable", f"Port {port_id} not usable for the server: another project has it.")
        if port["device_id"]:
            raise Refused("port_in_use", f"Port {port_id} is still in use.")
        changes = {**columns, "created_here": 0, "revision": port["revision"] + 1, "updated_at": now}
        changes["dns_name"] = port["dns_name"] or columns["dns_name"]
        await rows.change(tx, ports, changes, id=port_id)

    async def bind(self, fence: FenceKey, *, server_id: str, host: str) -> list[Vif]:
        now = self._context.clock.now()

        async def body(tx: Tx) -> list[Vif]:
            await pass_fence_in_control(tx, *fence)
            await self._bind(tx, server_id, host, now)
            return (await vifs_of(tx, [server_id])).get(server_id, [])

        vifs = await self._context.control.write(body)
        self._touch([{"project_id": "", "network_id": vif.network_id} for vif in vifs])
        return vifs

    async def _bind(self, tx: Tx, server_id: str, host: str, now: float) -> None:
        columns = {f"new_{name}": value for name, value in binding(host).items()}
        await tx.run(_BIND, server=server_id, now=now, **columns)

    async def release(self, fence: FenceKey, *, server_id: str) -> None:
        now = self._context.clock.now()

        async def body(tx: Tx) -> list[dict[str, str]]:
            await pass_fence_in_control(tx, *fence)
            await unmark(tx, server_id)
            there = await tx.all(_OF_SERVER, server_id=server_id)
            if not there:
                return []
            await lock_networks(tx, [port["network_id"] for port in there])
            there = await tx.all(_OF_SERVER, server_id=server_id)
            await drop_ports(tx, [port for port in there if port["created_here"]])
            free = {"device_id": "", "device_owner": "", "slot": -1, "tag": "", "updated_at": now, **UNBOUND}
            for port in there:
                if not port["created_here"]:
                    await rows.change(tx, ports, {**free, "revision": port["revision"] + 1}, id=port["id"])
            return [{name: port[name] for name in ("project_id", "network_id")} for port in there]

        self._touch(await self._context.control.write(body))

    async def vifs(self, server_ids: Sequence[str]) -> dict[str, list[Vif]]:
        async def body(tx: Tx) -> dict[str, list[Vif]]:
            return await vifs_of(tx, server_ids)

        return await self._context.control.read(body) if server_ids else {}

    async def port_states(self, server_id: str) -> dict[str, str]:
        async def body(tx: Tx) -> dict[str, str]:
            return {row["id"]: row["status"] for row in await rows.fetch_all(tx, ports, device_id=server_id)}

        return await self._context.control.read(body, few=True)

    async def changed_vifs(self, server_ids: Sequence[str]) -> dict[str, list[Vif]]:
        async def body(tx: Tx) -> dict[str, list[Vif]]:
            marked = await marked_among(tx, server_ids)
            vifs = await vifs_of(tx, marked) if marked else {}
            return {server_id: vifs.get(server_id, []) for server_id in marked}

        return await self._context.control.read(body, few=len(server_ids) == 1) if server_ids else {}


async def vifs_of(tx: Tx, server_ids: Sequence[str]) -> dict[str, list[Vif]]:
    """Return the ports by server; servers without ports are left out. Two statements for any number of servers."""
    port_rows: dict[str, list[Row]] = {}  # by port
    for row in await tx.all(_VIFS, server_ids=list(server_ids)):
        port_rows.setdefault(row["id"], []).append(row)
    if not port_rows:
        return {}
    every = [row for same in port_rows.values() for row in same]
    network_ids = list({row["network_id"] for row in every})
    group_ids = list({row["group_id"] for row in every if row["group_id"] is not None})
    names = {row["id"]: row["name"] for row in await tx.all(_NAMES, network_ids=network_ids, group_ids=group_ids)}
    vifs: dict[str, list[Vif]] = {}
    for same in sorted(port_rows.values(), key=lambda same: same[0]["slot"]):
        vifs.setdefault(same[0]["device_id"], []).append(_vif(same, names))
    return vifs


def _vif(same: Sequence[Row], names: Mapping[str, str]) -> Vif:
    """`same` are the rows of one port: each of its addresses with each of its groups."""
    row = same[0]
    groups = {each["group_id"] for each in same if each["group_id"] is not None}
    by_position = {each["position"]: each for each in same if each["position"] is not None}
    return Vif(
        port_id=row["id"],
        network_id=row["network_id"],
        network_name=names[row["network_id"]],
        mac=row["mac"],
        created_here=bool(row["created_here"]),
        tag=row["tag"],
        vif_type=row["vif_type"],
        host=row["host"],
        addresses=[address for position in sorted(by_position) for address in _addresses(by_position[position])],
        security_groups=sorted(names[group_id] for group_id in groups),
    )


def _addresses(row: Row) -> list[VifAddress]:
    version = 6 if ":" in row["address"] else 4
    fixed = VifAddress(address=row["address"], version=version, subnet_id=row["subnet_id"])
    if row["floating"] is None:
        return [fixed]
    return [fixed, VifAddress(address=row["floating"], version=4, subnet_id="", kind="floating")]
