"""`kilonova placement`: the Placement API alone, on its own port.

Of a cloud it has only the placement database, and identity to check tokens: that is in the control database of the same
data directory or fleet. With `noauth2` there is no identity at all.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kilonova.cli import opening
from kilonova.cli.options import DEFAULT_DATA, DEFAULT_LISTEN, Config, Data, Listen, Overrides, PublicUrl
from kilonova.domain.errors import KilonovaError, Refused
from kilonova.roles.seed import known_passwords, seed_identity
from kilonova.roles.services import POLICY_NAME, make_identity
from kilonova.roles.stores import MACHINES_NAME, clouds_of
from kilonova.roles.wiring import look, make_seal, make_world, seal_of
from kilonova.runtime import SystemClock, Uuids, new_key, run, say_once, stop_signal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from kilonova.api.listening import Listener
    from kilonova.api.service import Checks
    from kilonova.policy.enforcer import Policy
    from kilonova.services.identity.service import Identity
    from kilonova.settings import Settings
    from kilonova.store.data_directory import DataDirectory
    from kilonova.store.roll import Roll
    from kilonova.world import Store, World

NOAUTH = "noauth2"
TESTED_ORIGIN, TESTED_HEADER = "http://valid.example.com", "openstack-api-version"  # of the suite's profile `cors`


def placement(
    *,
    data: Data = DEFAULT_DATA,
    listen: Listen = DEFAULT_LISTEN,
    public_url: PublicUrl = "",
    auth: Literal["identity", "noauth2"] = "identity",
    profile: Literal["secure-rbac", "default", "legacy-rbac", "open-policy", "cors"] = "secure-rbac",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run placement alone, at the root of its own port: on a SQLite file in DATA, or on the fleet's database.

    Parameters
    ----------
    auth
        Tokens of the embedded identity; or, for tests and on loopback only, headers that are believed.
    profile
        Who may do what; the others are those that Placement's own tests are run with.
    """
    from kilonova.api.listening import listening
    from kilonova.settings import load

    settings = load(data, config, overrides or [])
    with listening(listen, public_url, settings.wsgi) as listener:
        refuse_noauth(auth, listener.socket)
        run(_placement(data, settings, listener, auth=auth, profile=profile), settings)


@dataclass
class PlacementService:
    """The services that a ServiceApp needs (api/service.py)."""

    world: World
    identity: Checks
    policy: Policy
    public_url: str

    async def unready(self) -> str:
        try:
            await self.world.db.placement.read(look)
        except KilonovaError:
            return "the placement database does not answer"
        return ""


def refuse_noauth(auth: str, listener: socket.socket) -> None:
    """Refuse noauth beyond loopback: any client of such a port can claim to be an administrator."""
    host = listener.getsockname()[0]
    if auth == NOAUTH and not ipaddress.ip_address(host).is_loopback:
        raise Refused(
            "bad_configuration", f"--auth {NOAUTH}: any caller can be an administrator; listen on 127.0.0.1 or [::1]"
        )


async def _placement(path: Path, settings: Settings, listener: Listener, *, auth: str, profile: str) -> None:
    from kilonova.api.connections import Connections
    from kilonova.api.placement.noauth import Nobody
    from kilonova.api.seen import Seen
    from kilonova.api.web import serve_web
    from kilonova.bus.memory import MemoryBus, MemoryHub
    from kilonova.policy.enforcer import Policy
    from kilonova.policy.placement import rules_of
    from kilonova.policy.rules import DEFAULTS
    from kilonova.store.data_directory import DataDirectory
    from kilonova.store.open_stores import open_store

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with contextlib.AsyncExitStack() as closing:
            stores: dict[str, Store] = {}
            upgrading = not settings.database.is_set
            addresses = _addresses(settings, path, auth)
            roll = await _roll(addresses, clouds_of(path, settings, hosts=MACHINES_NAME), may_begin=upgrading)
            for name, address in addresses.items():
                stores[name] = await open_store(name, address, clock=SystemClock(), upgrading=upgrading)
                closing.push_async_callback(stores[name].close)
                await roll.claim(name, stores[name])
            await roll.list_all(stores.get("control", stores["placement"]))
            world = make_world(MemoryBus(MemoryHub(), "placement"), settings, PlacementStores(stores))
            file = path / POLICY_NAME
            policy = Policy(rules_of(profile, DEFAULTS), file if file.is_file() else None)
            identity = await _identity(data, settings, world, stores) if auth != NOAUTH else None
            service = PlacementService(world, identity or Nobody(), policy, listener.url)
            app = Seen(make_placement_app(service, settings, auth, profile), access_log=listener.options.access_log)
            if identity is not None:
                await _print_login(identity, data, settings, listener)
            data.keep_all()
            listener.listen()
            say_once(f"kilonova: placement ready on {listener.address}", service.unready)
            await serve_web(app, listener.socket, stopping, Connections(listener.options), listener.certificate)


async def _roll(addresses: Mapping[str, str], witnesses: Mapping[str, str], *, may_begin: bool) -> Roll:
    """Return the roll. Without control it is unknown to which cloud this placement belongs."""
    from kilonova.store.roll import Roll, call_roll

    if "control" not in addresses:
        return Roll()
    roll = await call_roll(addresses, witnesses, new_id=Uuids().uuid, may_begin=may_begin)
    for name, address in addresses.items():
        await roll.check(name, address)
    return roll


class PlacementStores:
    """The stores of a process without cells (world.Stores)."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.placement = stores["placement"]
        self.control = stores.get("control", self.placement)

    cloud = halted = ""
    marks = None

    def cell(self, name: str) -> Store:
        raise KeyError(name)

    def cells(self) -> list[str]:
        return []

    def destinations(self) -> list[str]:
        return []

    def unopened(self) -> list[str]:
        return []

    def may_go(self, name: str) -> bool:
        return False

    def outage(self, name: str) -> None:
        raise KeyError(name)

    def on_return(self, call: Callable[[str], None]) -> None:
        return

    def bus_prefix(self, name: str) -> str:
        raise KeyError(name)

    async def learn(self) -> None:
        return

    def journals(self) -> list[Store]:
        return []


def _addresses(settings: Settings, path: Path, auth: str) -> dict[str, str]:
    known = opening.addresses(settings, path)
    wanted = ("placement",) if auth == NOAUTH else ("control", "placement")
    for name in wanted:
        if not known.get(name):
            raise Refused("bad_configuration", f"[database] {name} is not set; kilonova placement needs it")
    return {name: known[name] for name in wanted}


async def _identity(data: DataDirectory, settings: Settings, world: World, stores: Mapping[str, Store]) -> Identity:
    seal = seal_of(settings) if settings.secrets.key_file else make_seal(data.secret(opening.SEAL_KEY_NAME, new_key))
    identity = make_identity((stores["control"], world.clock, world.ids), settings, seal)
    given = settings.identity.admin_password_file
    await seed_identity(identity, data, admin_password_file=given)
    return identity


async def _print_login(identity: Identity, data: DataDirectory, settings: Settings, listener: Listener) -> None:
    from kilonova.store.clouds import write_clouds

    given = settings.identity.admin_password_file
    passwords = await known_passwords(identity, data.path, admin_password_file=given)
    write_clouds(data.path, listener.url, passwords, listener.ca_file)


def make_placement_app(service: PlacementService, settings: Settings, auth: str, profile: str) -> ASGIApp:
    """Return the app: Placement at the root and, as in a whole cloud, under its prefix; identity under its own, if
    there is one."""
    from starlette.applications import Starlette

    from kilonova.api.cors import with_cors
    from kilonova.api.health import PAGES
    from kilonova.api.identity.dialect import IdentityDialect, IdentityRootDialect
    from kilonova.api.identity.routes import ROOT_ROUTES
    from kilonova.api.identity.routes import ROUTES as IDENTITY_ROUTES
    from kilonova.api.metrics import metrics_pages
    from kilonova.api.mux import Mux
    from kilonova.api.placement.dialect import PlacementApp, PlacementDialect
    from kilonova.api.placement.noauth import NoAuthDialect
    from kilonova.api.placement.routes import ROUTES
    from kilonova.api.service_app import ServiceApp

    dialect = NoAuthDialect if auth == NOAUTH else PlacementDialect
    apps: dict[str, ASGIApp] = {prefix: PlacementApp(service, ROUTES, dialect(prefix)) for prefix in ("", "/placement")}
    known = None if auth == NOAUTH else service.identity
    metrics = metrics_pages(service.world.db, known, settings.default.service_down_time)
    pages = Starlette(routes=[*PAGES, *metrics])
    pages.state.service = service
    apps |= {"/healthz": pages, "/readyz": pages, "/metrics": pages}
    if auth != NOAUTH:
        apps["/identity"] = ServiceApp(service, ROOT_ROUTES, IdentityRootDialect())
        apps["/identity/v3"] = ServiceApp(service, IDENTITY_ROUTES, IdentityDialect())
    cors = (TESTED_ORIGIN, TESTED_HEADER) if profile == "cors" else _cors(settings)
    return with_cors(Mux(apps, pages), *cors)


def _cors(settings: Settings) -> tuple[str, str]:
    return settings.cors.allowed_origin, settings.cors.allow_headers
