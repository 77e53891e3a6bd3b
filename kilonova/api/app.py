"""The web application: one port, one prefix per service."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.routing import Route as Page
from starlette.types import ASGIApp

from kilonova.api.compute.dialect import ComputeDialect, ComputeRootDialect, LegacyDialect
from kilonova.api.compute.routes import LEGACY_ROUTES
from kilonova.api.compute.routes import ROUTES as COMPUTE_ROUTES
from kilonova.api.compute.versions import ELSEWHERE, ROOT_ROUTES
from kilonova.api.consoles.pages import novnc_pages
from kilonova.api.consoles.proxy import ConsoleProxy
from kilonova.api.consoles.urls import PAGES_PATH
from kilonova.api.extra.dialect import OwnDialect
from kilonova.api.extra.routes import ROUTES as OWN_ROUTES
from kilonova.api.health import PAGES
from kilonova.api.home import home
from kilonova.api.identity.dialect import IdentityDialect, IdentityRootDialect
from kilonova.api.identity.routes import ROOT_ROUTES as IDENTITY_ROOT_ROUTES
from kilonova.api.identity.routes import ROUTES as IDENTITY_ROUTES
from kilonova.api.image.dialect import ImageDialect
from kilonova.api.image.routes import ROUTES as IMAGE_ROUTES
from kilonova.api.metrics import metrics_pages
from kilonova.api.mux import Mux
from kilonova.api.network.dialect import NetworkDialect
from kilonova.api.network.routes import ROUTES as NETWORK_ROUTES
from kilonova.api.placement.dialect import PlacementApp, PlacementDialect
from kilonova.api.placement.routes import ROUTES as PLACEMENT_ROUTES
from kilonova.api.service import Service
from kilonova.api.service_app import ServiceApp
from kilonova.api.volume.dialect import VolumeDialect, VolumeRootDialect
from kilonova.api.volume.routes import ROUTES as VOLUME_ROUTES
from kilonova.api.volume.versions import ROOT_ROUTES as VOLUME_ROOT_ROUTES


def make_app(service: Service) -> ASGIApp:
    settings = service.world.settings
    metrics = metrics_pages(service.world.db, service.identity, settings.default.service_down_time)
    novnc = Mount(PAGES_PATH, novnc_pages(settings.default.web))
    pages = Starlette(routes=[Page("/", home, methods=["GET"]), *PAGES, *metrics, novnc])
    pages.state.service = service
    apps = service_apps(service, settings.api.max_microversion)
    for prefix, app in sorted(apps.items(), key=lambda item: len(item[1].router.routes)):
        service.apps[prefix.split("/")[1]] = app  # where one name has several, the last with the most to say
    return Mux(apps, pages, ConsoleProxy(service))


def service_apps(service: Service, newest_compute: str = "") -> dict[str, ServiceApp]:
    """Return the app of each service by URL prefix."""
    return {
        "/kilonova/v1": ServiceApp(service, OWN_ROUTES, OwnDialect()),
        "/identity": ServiceApp(service, IDENTITY_ROOT_ROUTES, IdentityRootDialect()),
        "/identity/v3": ServiceApp(service, IDENTITY_ROUTES, IdentityDialect()),
        "/compute": ServiceApp(service, ROOT_ROUTES, ComputeRootDialect(), ELSEWHERE),
        "/compute/v2": ServiceApp(service, LEGACY_ROUTES, LegacyDialect()),
        "/compute/v2.1": ServiceApp(service, COMPUTE_ROUTES, ComputeDialect(newest_compute)),
        "/image": ServiceApp(service, IMAGE_ROUTES, ImageDialect()),
        "/network": ServiceApp(service, NETWORK_ROUTES, NetworkDialect()),
        "/volume": ServiceApp(service, VOLUME_ROOT_ROUTES, VolumeRootDialect()),
        "/volume/v3": ServiceApp(service, VOLUME_ROUTES, VolumeDialect()),
        "/placement": PlacementApp(service, PLACEMENT_ROUTES, PlacementDialect()),
    }
