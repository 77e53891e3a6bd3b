"""The dialect of Compute: microversions 2.1 to 2.105 in either header, and Nova's names for faults."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.microversions import HEADER, requested, spoken, text_of, without_project
from kilonova.api.routes import EVER, Version
from kilonova.api.service_app import Dialect
from kilonova.domain.errors import Refused

MIN: Version = (2, 1)
MAX: Version = (2, 105)  # the last one is our own: server_unplaced.py
OLD_HEADER = "X-OpenStack-Nova-API-Version"
FAULTS = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
STATUS = {
    "no_such_host": 404,
    "host_unknown": 400,
    "image_not_found": 400,
    "image_not_active": 400,
    "network_not_found": 400,
    "port_not_found": 400,
    "network_needs_subnet": 400,
    "network_auto_unavailable": 400,
    "external_network_forbidden": 403,
    "invalid_fixed_ip": 400,
    "address_in_use": 400,
    "duplicate_port": 400,
    "port_needs_address": 400,
    "port_not_usable": 400,
    "security_group_not_found": 400,
    "network_ambiguous": 409,
    "port_in_use": 409,
    "too_many_ports": 403,
    "security_group_ambiguous": 409,
    "aggregate_exists": 409,
    "aggregate_host_exists": 409,
    "aggregate_in_use": 400,
    "bad_zone": 400,
    "zone_conflict": 409,
    "zone_inhabited": 409,
    "invalid_input": 400,
    "invalid_snapshot": 400,
    "snapshot_not_found": 404,
    "type_not_found": 404,
    "over_quota": 403,
    "volume_too_large": 403,
    "no_backend": 503,
}
NOVAS_ACTIONS = """
    addFixedIp addFloatingIp addSecurityGroup changePassword confirmResize createBackup createImage evacuate forceDelete
    injectNetworkInfo lock migrate os-getConsoleOutput os-getRDPConsole os-getSPICEConsole os-getSerialConsole
    os-getVNCConsole os-migrateLive os-resetState os-start os-stop pause reboot rebuild removeFixedIp removeFloatingIp
    removeSecurityGroup rescue resetNetwork resize restore resume revertResize shelve shelveOffload suspend
    trigger_crash_dump unlock unpause unrescue unshelve
"""


class ComputeDialect(Dialect):
    prefix = "/compute/v2.1"
    newest = MAX
    status = STATUS
    unsupported_action = 404

    def __init__(self, newest: str = "") -> None:
        """`newest`: the last one that is offered, if not the last there is."""
        if newest:
            major, minor = newest.split(".")
            self.newest = int(major), int(minor)

    def version(self, request: Request) -> Version:
        return spoken(_requested(request), MIN, self.newest)

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        return answer({FAULTS.get(status, "computeFault"): {"code": status, "message": message}}, status)

    def no_action(self, name: str) -> str:
        return f"This cloud does not offer '{name}' yet." if name in NOVAS_ACTIONS.split() else super().no_action(name)

    def decorate(self, response: Response, version: Version, request_id: str) -> None:
        headers = response.headers
        headers["x-openstack-request-id"] = headers["x-compute-request-id"] = request_id
        if version != EVER:
            headers[HEADER], headers[OLD_HEADER] = f"compute {text_of(version)}", text_of(version)
        headers["Vary"] = f"{HEADER}, {OLD_HEADER}"

    def path_of(self, call_path: str) -> tuple[str, str]:
        """Return the path without the project id, and that id, which must be the token's.

        Refuse a trailing slash: a client that lost an id must not list or delete the collection instead.
        """
        path, project = without_project(call_path)
        if path.rstrip("/") and path.endswith("/"):
            raise Refused(404, "The resource could not be found.")
        return path, project


class LegacyDialect(ComputeDialect):
    """/v2: the same code; version headers are ignored and unknown keys of a body are passed over."""

    prefix = "/compute/v2"
    strict = False

    def version(self, request: Request) -> Version:
        return MIN


class ComputeRootDialect(ComputeDialect):
    """/compute itself: only says which versions there are."""

    prefix = "/compute"

    def version(self, request: Request) -> Version:
        return EVER

    def path_of(self, call_path: str) -> tuple[str, str]:
        return call_path, ""


def _requested(request: Request) -> str | None:
    """Return the requested version; the newer header takes precedence."""
    newer, old = requested(request, "compute"), request.headers.get(OLD_HEADER)
    return newer if newer is not None or old is None else old.strip().lower()
