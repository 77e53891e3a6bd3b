"""The web application: one port, one prefix per service."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.routing import Route as Page
from starlette.types import ASGIApp

from kilonova.api.compute.manner import ComputeManner, LegacyManner, RootManner
from kilonova.api.compute.routes import LEGACY_ROUTES
from kilonova.api.compute.routes import ROUTES as COMPUTE_ROUTES
from kilonova.api.compute.versions import ELSEWHERE, ROOT_ROUTES
from kilonova.api.consoles.pages import novnc_pages
from kilonova.api.consoles.proxy import ConsoleProxy
from kilonova.api.consoles.urls import PAGES_PATH
from kilonova.api.extra.manner import OwnManner
from kilonova.api.extra.routes import ROUTES as OWN_ROUTES
from kilonova.api.face import Face
from kilonova.api.health import PAGES
from kilonova.api.home import home
from kilonova.api.identity.manner import IdentityManner
from kilonova.api.identity.manner import RootManner as IdentityRootManner
from kilonova.api.identity.routes import ROOT_ROUTES as IDENTITY_ROOT_ROUTES
from kilonova.api.identity.routes import ROUTES as IDENTITY_ROUTES
from kilonova.api.image.manner import ImageManner
from kilonova.api.image.routes import ROUTES as IMAGE_ROUTES
from kilonova.api.metrics import metrics_pages
from kilonova.api.network.manner import NetworkManner
from kilonova.api.network.routes import ROUTES as NETWORK_ROUTES
from kilonova.api.placement.manner import PlacementFace, PlacementManner
from kilonova.api.placement.routes import ROUTES as PLACEMENT_ROUTES
from kilonova.api.port import Port
from kilonova.api.service import Service
from kilonova.api.volume.manner import RootManner as VolumeRootManner
from kilonova.api.volume.manner import VolumeManner
from kilonova.api.volume.routes import ROUTES as VOLUME_ROUTES
from kilonova.api.volume.versions import ROOT_ROUTES as VOLUME_ROOT_ROUTES
from kilonova.settings import DEFAULTS


def make_app(service: Service) -> ASGIApp:
    metrics = metrics_pages(service.world.db, service.identity, service.engine.limits.service_down_time)
    settings = service.world.settings or DEFAULTS
    novnc = Mount(PAGES_PATH, novnc_pages(settings.default.web))
    pages = Starlette(routes=[Page("/", home, methods=["GET"]), *PAGES, *metrics, novnc])
    pages.state.service = service
    faces = faces_of(service, settings.api.max_microversion)
    for prefix, face in sorted(faces.items(), key=lambda item: len(item[1].router.routes)):
        service.faces[prefix.split("/")[1]] = face  # where one name has several, the last with the most to say
    return Port(faces, pages, ConsoleProxy(service))


def faces_of(service: Service, newest_compute: str = "") -> dict[str, Face]:
    """By prefix."""
    return {
        "/kilonova/v1": Face(service, OWN_ROUTES, OwnManner()),
        "/identity": Face(service, IDENTITY_ROOT_ROUTES, IdentityRootManner()),
        "/identity/v3": Face(service, IDENTITY_ROUTES, IdentityManner()),
        "/compute": Face(service, ROOT_ROUTES, RootManner(), ELSEWHERE),
        "/compute/v2": Face(service, LEGACY_ROUTES, LegacyManner()),
        "/compute/v2.1": Face(service, COMPUTE_ROUTES, ComputeManner(newest_compute)),
        "/image": Face(service, IMAGE_ROUTES, ImageManner()),
        "/network": Face(service, NETWORK_ROUTES, NetworkManner()),
        "/volume": Face(service, VOLUME_ROOT_ROUTES, VolumeRootManner()),
        "/volume/v3": Face(service, VOLUME_ROUTES, VolumeManner()),
        "/placement": PlacementFace(service, PLACEMENT_ROUTES, PlacementManner()),
    }
