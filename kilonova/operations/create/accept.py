"""The way in for new servers: how many the quota has room for, and one control transaction that accepts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.json import as_list, as_object, as_text, json_object
from kilonova.domain.network import WantedPort
from kilonova.domain.params import ManyParams, ServerSpec, SpecOfMany
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey, claim_key, known_key, store_operation
from kilonova.engine.build_requests import put_request, stored_spec
from kilonova.engine.core import Engine
from kilonova.engine.submit import fresh
from kilonova.operations.checks.held import held_in_placement
from kilonova.operations.steps.volumes import named
from kilonova.quota.check import Held, exceeded, given, room
from kilonova.quota.resources import default_limits
from kilonova.quota.usage import map_server
from kilonova.schema.tables import control
from kilonova.schema.tables.journal import operations
from kilonova.services.compute.server_groups import join
from kilonova.store import rows
from kilonova.world import Tx


class NewServer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    flavor: Flavor
    image: str
    id: str | None = None
    host: str | None = None  # the scheduler still checks it
    forced: bool = False  # with no filter: only placement is asked
    details: Details = msgspec.field(default_factory=Details)
    networks: list[WantedPort] = []
    security_groups: list[str] = []  # ids
    volumes: list[WantedVolume] = []
    secrets: dict[str, str] = {}
    group: str | None = None  # the server group that it joins


class NewServers(msgspec.Struct, frozen=True, kw_only=True):
    """New servers of one flavor: as many as the quota allows, at most `most`; none if it allows fewer than `least`."""

    flavor: Flavor
    least: int
    most: int
    make: Callable[[int], list[NewServer]]  # they are numbered, unless there is one only

    @property
    def each(self) -> dict[str, int]:
        """The quota usage of one server."""
        return {"instances": 1, "cores": self.flavor.vcpus, "ram": self.flavor.memory_mb}


async def create(
    engine: Engine, new: NewServer, cause: Cause, key: IdempotencyKey | None = None
) -> tuple[str, Accepted]:
    one = NewServers(flavor=new.flavor, least=1, most=1, make=lambda count: [new])
    return (await create_many(engine, one, cause, key))[0]


async def create_many(
    engine: Engine, wanted: NewServers, cause: Cause, key: IdempotencyKey | None = None
) -> list[tuple[str, Accepted]]:
    """Store new servers in one control transaction: their number, the build request, mapping and request spec of each,
    and `place` for a single server or `place_many` for several."""
    now, uuid = engine.world.clock.now(), engine.world.ids.uuid
    ids: list[tuple[str, str]] = []  # of servers and operations; the same ones whenever this is tried again
    together: list[str] = []  # likewise, the id of `place_many`
    accepted_servers: list[tuple[str, Accepted]] = []
    held = await held_in_placement(engine.world.db.placement, engine.settings.quota, cause.project_id, cause.user_id)

    async def body(tx: Tx) -> list[tuple[str, Accepted]]:
        if accepted_servers and await rows.fetch(tx, operations, id=accepted_servers[0][1].operation_id) is not None:
            return accepted_servers  # our own COMMIT was unknown (law 12)
        known = await claim_key(tx, Ask(kind="place", server_id="", cause=cause, key=key), now)
        if known is not None:
            return await _created_before(tx, known)
        servers = wanted.make(await how_many(engine, tx, cause, wanted, held))
        ids.extend((new.id or uuid(), uuid()) for new in servers[len(ids) :])
        if servers[0].group is not None:
            await _join_group(engine, tx, servers[0].group, [server for server, _ in ids[: len(servers)]], cause, now)
        asks = [ask_of(ids[n], new, cause, now, key) for n, new in enumerate(servers)]
        if len(asks) > 1 and not together:
            together.append(uuid())
        ask = asks[0] if len(asks) == 1 else all_together(together[0], asks)
        for one, new in zip(asks, servers, strict=True):
            await _insert_unplaced(tx, one, new.flavor, ask.operation_id or "", now)
            await _hold_volumes(engine, tx, one)
        op, operation = fresh(engine, ask, ask.operation_id or "", turn=1), engine.operation(ask.kind)
        op.facts(operation).devices = bool(servers[0].volumes)
        await store_operation(engine, tx, engine.world.db.control, operation, op, ask, now)
        accepted_servers[:] = [(one.server_id, Accepted(op.id)) for one in asks]
        return accepted_servers

    accepted = await engine.write(engine.world.db.control, body)
    await engine.wake("control", accepted[0][1].operation_id)
    return accepted


async def known_creates(engine: Engine, key: IdempotencyKey, cause: Cause) -> list[tuple[str, Accepted]]:
    """Return the servers that an earlier request with this key has created."""

    async def body(tx: Tx) -> list[tuple[str, Accepted]]:
        known = await known_key(tx, Ask(kind="place", server_id="", cause=cause, key=key))
        return [] if known is None else await _created_before(tx, known)

    return await engine.world.db.control.read(body)


def ask_of(ids: tuple[str, str], new: NewServer, cause: Cause, now: float, key: IdempotencyKey | None) -> Ask:
    """`ids`: of the server and of the operation."""
    return Ask(
        kind="place",
        server_id=ids[0],
        cause=cause,
        params=_spec(new, cause, now),
        secrets=new.secrets,
        key=key,
        operation_id=ids[1],
    )


def _spec(new: NewServer, cause: Cause, now: float) -> ServerSpec:
    return ServerSpec(
        name=new.name,
        flavor=new.flavor,
        image=new.image,
        host=new.host,
        forced=new.forced,
        details=new.details,
        networks=new.networks,
        security_groups=new.security_groups,
        volumes=new.volumes,
        project_id=cause.project_id,
        user_id=cause.user_id,
        created_at=now,
    )


def spec_in(ask: Ask) -> ServerSpec:
    assert isinstance(ask.params, ServerSpec)
    return ask.params


def all_together(operation_id: str, asks: Sequence[Ask]) -> Ask:
    """Return one request for all, with the first one's common values; each server begins its own `place` under the id
    that it has here."""
    servers = [
        SpecOfMany(server_id=ask.server_id, operation_id=ask.operation_id or "", params=spec_in(ask)) for ask in asks
    ]
    params = ManyParams(**msgspec.structs.asdict(spec_in(asks[0])), servers=servers)
    whole: Ask = msgspec.structs.replace(
        asks[0], kind="place_many", server_id="", operation_id=operation_id, params=params
    )
    return whole


async def _created_before(tx: Tx, known: Accepted) -> list[tuple[str, Accepted]]:
    """The servers of the request that carried the same key."""
    first = await rows.fetch(tx, operations, id=known.operation_id)
    if first is None:
        return []
    servers = as_list(json_object(first["params"]).get("servers")) or [{"server_id": first["server_id"]}]
    return [(as_text(as_object(one).get("server_id")), Accepted(first["id"], joined=True)) for one in servers]


async def how_many(engine: Engine, tx: Tx, cause: Cause, wanted: NewServers, held: Held, *, locks: bool = True) -> int:
    """Return how many servers the quota allows, in the transaction that adds them: of two concurrent requests only one
    gets the last server."""
    project, user = cause.project_id, cause.user_id
    each, defaults = wanted.each, default_limits(engine.settings.quota)
    count = await room(tx, project, each, wanted.most, user=user, defaults=defaults, held=held, locks=locks)
    if count >= wanted.least:
        return count
    requested = {resource: amount * wanted.least for resource, amount in each.items()}
    over = await exceeded(tx, project, requested, user=user, defaults=defaults, held=held)
    raise Refused("quota_exceeded", f"Quota exceeded: {'; '.join(over)}")


async def _join_group(engine: Engine, tx: Tx, group: str, servers: list[str], cause: Cause, now: float) -> None:
    await join(tx, group, servers, cause.user_id, await most_members(engine, tx, cause), now)


async def most_members(engine: Engine, tx: Tx, cause: Cause) -> int:
    """Return how many members of a server group one user may have."""
    limits = await given(tx, cause.project_id, default_limits(engine.settings.quota))
    return limits.of_user(cause.user_id, "server_group_members")


async def _insert_unplaced(tx: Tx, ask: Ask, flavor: Flavor, operation_id: str, now: float) -> None:
    if await rows.fetch(tx, control.server_mappings, server_id=ask.server_id) is not None:
        raise Refused("exists", f"a server {ask.server_id} exists already")
    spec = spec_in(ask)
    await put_request(tx, ask.server_id, 1, operation_id, spec)
    owner = ask.cause.project_id, ask.cause.user_id
    await map_server(tx, ask.server_id, owner, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb, now=now)
    await rows.put(tx, control.request_specs, server_id=ask.server_id, spec=stored_spec(spec), sealed=None)


async def _hold_volumes(engine: Engine, tx: Tx, ask: Ask) -> None:
    """Hold the volumes that the request names: of two servers that request one volume, the second is refused here."""
    devices, volumes = named(spec_in(ask).volumes), engine.world.volume
    if devices and volumes is not None:
        await volumes.hold(tx, (ask.server_id, 1, 0), project_id=ask.cause.project_id, devices=devices)
