"""/metrics for Prometheus: counters of this process, and gauges read from the databases at each request.

Without a token metrics are served on loopback only; elsewhere to administrators, by a role that checks tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from sqlalchemy import func, select
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as Page

from kilonova.api.addresses import LOOPBACK, is_in, networks
from kilonova.api.service import Checks
from kilonova.domain.errors import KilonovaError
from kilonova.domain.host import HOST_STATES
from kilonova.measures import REGISTRY
from kilonova.schema.tables.journal import steps
from kilonova.schema.tables.placement import inventories, resource_classes
from kilonova.services.compute.hosts import read_hosts
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Stores, Tx

HERE = networks(LOOPBACK)
_OPEN = Sql(select(steps.c.state, func.count().label("number")).where(steps.c.open == 1).group_by(steps.c.state))
_CAPACITY = Sql(
    select(
        resource_classes.c.name,
        func.sum(inventories.c.capacity).label("capacity"),
        func.sum(inventories.c.used).label("used"),
    )
    .join(inventories, inventories.c.class_id == resource_classes.c.id)
    .group_by(resource_classes.c.name)
)


def metrics_pages(stores: Stores, identity: Checks | None, down_after: float) -> list[Page]:
    """`identity`: None of a role that checks no tokens, and answers on loopback only."""

    async def metrics(request: Request) -> Response:
        client = request.client
        if client is None or not is_in(client.host, HERE):
            if identity is None:
                return PlainTextResponse("metrics are served on loopback only\n", 403)
            caller = await identity.check(request.headers.get("x-auth-token", ""))
            if caller is None or not caller.is_admin:
                return PlainTextResponse("an administrator's token is needed\n", 401 if caller is None else 403)
        registry = CollectorRegistry()
        await _read_cloud(stores, down_after, registry)
        text = generate_latest(REGISTRY) + generate_latest(registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return [Page("/metrics", metrics, methods=["GET"])]


async def _read_cloud(stores: Stores, down_after: float, registry: CollectorRegistry) -> None:
    """Set the gauges from the databases. An unreachable database has only the gauge that says so."""
    answers = Gauge("kilonova_database_answers", "1 if the database answers.", ("database",), registry=registry)
    waiting = Gauge(
        "kilonova_steps_open", "Steps that are not done, by state.", ("database", "state"), registry=registry
    )
    for journal in stores.journals():
        for row in await _rows(journal, _OPEN, answers):
            waiting.labels(journal.name, row["state"]).set(row["number"])
    capacity = Gauge(
        "kilonova_capacity", "Capacity of all hosts, by resource class.", ("resource_class",), registry=registry
    )
    used = Gauge("kilonova_used", "Allocated capacity, by resource class.", ("resource_class",), registry=registry)
    for row in await _rows(stores.placement, _CAPACITY, answers):
        capacity.labels(row["name"]).set(row["capacity"])
        used.labels(row["name"]).set(row["used"])
    hosts = Gauge("kilonova_hosts", "Hosts by cell and state.", ("cell", "state"), registry=registry)
    for record in await read_hosts(stores, down_after):
        for state in HOST_STATES:
            hosts.labels(record.cell, state).inc(record.state.status == state)


async def _rows(store: Store, query: Sql, answers: Gauge) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(query)

    try:
        rows = await store.read(body)
    except KilonovaError:
        answers.labels(store.name).set(0)
        return []
    answers.labels(store.name).set(1)
    return rows
