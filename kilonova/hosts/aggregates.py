"""The aggregates of hosts, in the records and in placement, and the zones of servers.

Placement is written first, both ways: an interrupted request is simply repeated. A server never changes its zone: a
change that would put a host with servers into another zone is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import func, select

from kilonova.domain.errors import Refused
from kilonova.engine.core import Engine
from kilonova.hosts.states import find_host
from kilonova.placement.aggregates import join_aggregate, leave_aggregate
from kilonova.schema.tables.cell import servers
from kilonova.services.compute.aggregate_book import AggregateBook
from kilonova.services.compute.aggregates import ZONE, Aggregate, Aggregates, no_such_host
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

_INHABITED = Sql(
    select(servers.c.host, func.count().label("number"))
    .where(servers.c.deleted == 0, in_list(servers.c.host, "names"))
    .group_by(servers.c.host)
    .order_by(servers.c.host)
)


async def add_host(engine: Engine, aggregates: Aggregates, aggregate_id: int, host: str) -> Aggregate:
    aggregate = await aggregates.find(aggregate_id)
    _, record = await find_host(engine, host)
    if aggregate.zone is not None:
        await _refuse_moving(engine, aggregates, [host], aggregate.zone, "adding it to aggregate " + aggregate.name)
    if host not in aggregate.hosts:  # else the records refuse it
        await aggregates.check_host(aggregate_id, host)
        await join_aggregate(engine.world.db.placement, record["provider_id"], aggregate.uuid)
    return await aggregates.add_host(aggregate_id, host)


async def remove_host(engine: Engine, aggregates: Aggregates, aggregate_id: int, host: str) -> Aggregate:
    aggregate = await aggregates.find(aggregate_id)
    if host not in aggregate.hosts:
        raise no_such_host(aggregate_id, host)
    _, record = await find_host(engine, host)
    if aggregate.zone is not None:
        rest = [one for one in await aggregates.all() if one.id != aggregate_id]
        zone = next((one.zone for one in rest if host in one.hosts and one.zone), _default(engine))
        await _refuse_moving(engine, aggregates, [host], zone, "removing it from aggregate " + aggregate.name)
    await leave_aggregate(engine.world.db.placement, record["provider_id"], aggregate.uuid)
    return await aggregates.remove_host(aggregate_id, host)


async def change(
    engine: Engine,
    aggregates: Aggregates,
    aggregate_id: int,
    *,
    name: str | None = None,
    metadata: Mapping[str, str | None] | None = None,
) -> Aggregate:
    aggregate = await aggregates.find(aggregate_id)
    if metadata and ZONE in metadata and metadata[ZONE] != aggregate.zone:
        if metadata[ZONE] == "":
            raise Refused("bad_zone", f"Aggregate {aggregate_id} cannot have an availability zone without a name")
        zone = metadata[ZONE] or _default(engine)
        await _refuse_moving(
            engine, aggregates, aggregate.hosts, zone, f"changing the zone of aggregate {aggregate.name}"
        )
    return await aggregates.change(aggregate_id, name=name, metadata=metadata)


def _default(engine: Engine) -> str:
    return engine.settings.default.default_availability_zone


async def _refuse_moving(engine: Engine, aggregates: Aggregates, hosts: Iterable[str], zone: str, doing: str) -> None:
    """Refuse to change the zone of hosts that have servers."""
    book = AggregateBook(engine.world.db.control, _default(engine))
    book.take(0, await aggregates.all())
    moving = [host for host in hosts if book.zone_of(host) != zone]
    inhabited = await _inhabited(engine, moving) if moving else {}
    if inhabited:
        host, number = next(iter(inhabited.items()))
        raise Refused(
            "zone_inhabited",
            f"Host {host} has {number} servers in availability zone {book.zone_of(host)}; {doing} would put them "
            f"into {zone}. Move them away first",
        )


async def _inhabited(engine: Engine, hosts: list[str]) -> dict[str, int]:
    async def body(tx: Tx) -> dict[str, int]:
        return {row["host"]: row["number"] for row in await tx.all(_INHABITED, names=hosts)}

    server_counts: dict[str, int] = {}
    for cell in engine.world.db.cells():
        server_counts |= await engine.world.db.cell(cell).read(body)
    return server_counts
